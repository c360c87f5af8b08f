"""Networks as denoisers: predictions, preconditioning, thresholds, guidance."""

import math

import pytest
import torch
from diffusers import UNet2DModel
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import rescale_noise_cfg
from torch import Tensor

from denoscope.sampling import Denoise, Grid, Level, sample
from denoscope.sampling.denoisers import clipped, continuous, discrete, edm, flow, thresholded, timestep_of
from denoscope.sampling.guidance import guided
from denoscope.sampling.solvers import ddim
from denoscope.sampling.spacing import karras_ratios, spaced_timesteps
from denoscope.schedules import NoiseSchedule, PredictionType, convert_prediction
from denoscope.schedules.continuous import linear as linear_in_time

SCHEDULE = NoiseSchedule.cosine()
MEAN, STD = 0.3, 0.5


def exact(z: Tensor, level: Level) -> Tensor:
    gain = level.alpha * STD**2 / (level.alpha**2 * STD**2 + level.sigma**2)
    return MEAN + gain * (z - level.alpha * MEAN)


def noisy() -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("kind", ["epsilon", "sample", "v_prediction", "flow_prediction"])
@pytest.mark.parametrize("family", ["vp", "ve", "flow"])
def test_a_network_of_a_discrete_schedule_on_any_grid(kind: PredictionType, family: str) -> None:
    def network(z: Tensor, timestep: Tensor) -> Tensor:
        assert timestep.dtype == torch.int64
        t = int(timestep[0])
        level = Level(float(SCHEDULE.alpha[t]), float(SCHEDULE.sigma[t]))
        return convert_prediction(exact(z, level), "sample", kind, z, *level)

    grid = Grid.from_timesteps(SCHEDULE, torch.tensor([999, 700, 300, 1]))
    grid = Grid.from_ratios(grid.sigma / grid.alpha, family)  # type: ignore[arg-type]
    denoise = discrete(network, SCHEDULE, kind)
    for level in list(grid)[:-1]:
        z = noisy() * math.hypot(*level)
        torch.testing.assert_close(denoise(z, level), exact(z, level), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
def test_a_network_of_continuous_time(kind: PredictionType) -> None:
    schedule, told = linear_in_time(), []

    def network(z: Tensor, timestep: Tensor) -> Tensor:
        told.append(float(timestep[0]))
        alpha, sigma = schedule.alpha_sigma(timestep[0].double() / 1000)
        level = Level(float(alpha), float(sigma))
        return convert_prediction(exact(z, level), "sample", kind, z, *level)

    times = torch.tensor([0.9, 0.33333, 0.0123])
    grid = Grid.from_ratios((-schedule.logsnr(times) / 2).exp(), "vp")
    for level in list(grid)[: len(times)]:
        torch.testing.assert_close(
            continuous(network, schedule, kind)(noisy(), level), exact(noisy(), level), rtol=1e-4, atol=1e-4
        )
    assert told == pytest.approx((1000 * times).tolist(), rel=1e-4)


def test_timesteps_between_two() -> None:
    middle = (-(SCHEDULE.logsnr[500] + SCHEDULE.logsnr[501]) / 4).exp()
    found = timestep_of(SCHEDULE, Level(1.0, float(middle)))
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(500.5)
    for t in range(1000):
        level = Level(float(SCHEDULE.alpha[t]), float(SCHEDULE.sigma[t]))
        assert timestep_of(SCHEDULE, level).dtype == torch.int64
        assert int(timestep_of(SCHEDULE, level)) == t
    assert int(timestep_of(SCHEDULE, Level(0.0, 1.0))) == 999
    zero = SCHEDULE.zero_terminal_snr()
    assert int(timestep_of(zero, Level(0.0, 1.0))) == 999


def test_levels_that_the_network_never_saw_are_refused() -> None:
    for level in (Level(1.0, 0.0), Level(1.0, 1e-4), Level(1e-7, 1.0)):
        with pytest.raises(ValueError, match="beyond the schedule's levels"):
            timestep_of(SCHEDULE, level)
    with pytest.raises(ValueError, match="beyond"):  # this schedule keeps signal at its end
        timestep_of(NoiseSchedule.scaled_linear(), Level(0.0, 1.0))


def test_epsilon_at_zero_terminal_snr_is_refused() -> None:
    with pytest.raises(ValueError, match="zero terminal SNR"):
        discrete(lambda z, t: z, SCHEDULE.zero_terminal_snr(), "epsilon")
    discrete(lambda z, t: z, SCHEDULE.zero_terminal_snr(), "v_prediction")(noisy(), Level(0.0, 1.0))


def test_edm_preconditioning() -> None:
    """The raw network that makes D exact for normal data: eq. 7 solved for F."""
    sigma_data = 0.5

    def network(scaled: Tensor, told: Tensor) -> Tensor:
        sigma = float((4 * told[0]).exp())
        y = scaled * math.sqrt(sigma**2 + sigma_data**2)
        wanted = exact(y, Level(1.0, sigma))
        skip = sigma_data**2 / (sigma**2 + sigma_data**2)
        return (wanted - skip * y) * math.sqrt(sigma**2 + sigma_data**2) / (sigma * sigma_data)

    for level in (Level(1.0, 80.0), Level(0.6, 0.8), Level(0.9, 0.1)):
        torch.testing.assert_close(
            edm(network, sigma_data)(noisy(), level), exact(noisy(), level), rtol=1e-6, atol=1e-9
        )
    # A network that says nothing leaves the best linear guess for data of zero mean and this spread.
    silent = edm(lambda z, t: torch.zeros_like(z), sigma_data)
    torch.testing.assert_close(silent(noisy(), Level(1.0, 0.5)), noisy() / 2)
    with pytest.raises(ValueError, match="pure noise"):
        silent(noisy(), Level(0.0, 1.0))


@pytest.mark.parametrize("level", [Level(0.0, 1.0), Level(0.25, 0.75), Level(0.6, 0.8), Level(1.0, 2.0)])
def test_flow(level: Level) -> None:
    def network(z: Tensor, told: Tensor) -> Tensor:
        t = float(told[0]) / 1000
        return convert_prediction(exact(z, Level(1 - t, t)), "sample", "flow_prediction", z, 1 - t, t)

    torch.testing.assert_close(flow(network)(noisy(), level), exact(noisy(), level), rtol=1e-6, atol=1e-6)


def test_a_network_of_diffusers_is_sampled_like_diffusers_does() -> None:
    from diffusers import DDIMPipeline, DDIMScheduler

    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
    ).eval()
    scheduler = DDIMScheduler(clip_sample=True, timestep_spacing="trailing")
    theirs = DDIMPipeline(unet, scheduler)
    theirs.set_progress_bar_config(disable=True)
    wanted = theirs(
        2,
        generator=torch.Generator().manual_seed(3),
        num_inference_steps=8,
        output_type="np",
        use_clipped_model_output=True,
    ).images
    schedule = NoiseSchedule.linear()
    z = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    grid = Grid.from_timesteps(schedule, spaced_timesteps(1000, 8, "trailing"))
    found = sample(clipped(discrete(unet, schedule)), z, grid, ddim())
    torch.testing.assert_close(
        (found / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1), torch.tensor(wanted), atol=1e-4, rtol=0
    )


def test_a_network_must_return_a_tensor() -> None:
    with pytest.raises(TypeError, match="returned NoneType"):
        discrete(lambda z, t: None, SCHEDULE)(noisy(), Level(0.6, 0.8))


def constant(x0: Tensor) -> Denoise:
    return lambda z, level: x0


def test_thresholds() -> None:
    x0 = torch.tensor([[0.1, -0.5, 2.0, -4.0], [0.1, 0.2, 0.3, 0.4]])
    level = Level(0.6, 0.8)
    assert torch.equal(clipped(constant(x0))(x0, level), x0.clamp(-1, 1))
    assert torch.equal(thresholded(constant(x0), greatest=1.0)(x0, level), x0.clamp(-1, 1))
    found = thresholded(constant(x0), quantile=1.0)(x0, level)
    torch.testing.assert_close(found, torch.stack([x0[0] / 4, x0[1]]))  # within ±1 nothing changes
    half = thresholded(constant(x0), quantile=0.5)(x0, level)
    bound = float(torch.quantile(x0[0].abs(), 0.5))
    torch.testing.assert_close(half[0], x0[0].clamp(-bound, bound) / bound)
    with pytest.raises(ValueError, match="quantile"):
        thresholded(constant(x0), quantile=0.0)


def test_guidance_of_scale_one_asks_once() -> None:
    asked: list[str] = []

    def told(name: str) -> Denoise:
        def denoise(z: Tensor, level: Level) -> Tensor:
            asked.append(name)
            return z

        return denoise

    guided(told("c"), told("u"), 1.0)(noisy(), Level(0.6, 0.8))
    assert asked == ["c"]
    guided(told("c"), told("u"), 2.0, interval=(0.0, 5.0))(noisy(), Level(0.6, 0.8))
    assert asked == ["c", "c"]  # outside the interval
    guided(told("c"), told("u"), 2.0, interval=(-5.0, 5.0))(noisy(), Level(0.6, 0.8))
    assert asked == ["c", "c", "c", "u"]


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
def test_rescaled_guidance_is_that_of_diffusers(kind: PredictionType) -> None:
    level, z = Level(0.6, 0.8), noisy()
    c, u = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x0 = [convert_prediction(said, kind, "sample", z, *level) for said in (c, u)]
    found = guided(constant(x0[0]), constant(x0[1]), 7.5, rescale=0.7, rescaled=kind)(z, level)
    wanted = rescale_noise_cfg(u + 7.5 * (c - u), c, guidance_rescale=0.7)
    torch.testing.assert_close(found, convert_prediction(wanted, kind, "sample", z, *level), rtol=1e-6, atol=1e-6)


def test_rescaling_what_has_no_spread_divides_by_nothing() -> None:
    flat = constant(torch.zeros(2, 6))
    found = guided(flat, flat, 3.0, rescale=1.0, rescaled="sample")(torch.zeros(2, 6), Level(0.6, 0.8))
    assert torch.equal(found, torch.zeros(2, 6))
    with pytest.raises(ValueError, match="rescale"):
        guided(flat, flat, 3.0, rescale=1.5)


def test_guided_normal_data_end_where_the_closed_form_says() -> None:
    """Guidance between two point masses c and u moves the end by scale·(c − u) exactly."""
    c, u = torch.full((1, 2), 1.0), torch.full((1, 2), -0.5)
    grid = Grid.from_ratios(karras_ratios(10, 0.01, 50.0))
    found = sample(guided(constant(c), constant(u), 3.0), torch.randn(1, 2), grid, ddim())
    torch.testing.assert_close(found, u + 3.0 * (c - u))
