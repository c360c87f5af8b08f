"""The loop's own promises: seeds, callbacks, inpainting, faults."""

import pytest
import torch
from torch import Tensor

from denoscope.sampling import SOLVERS, Grid, Known, Level, SamplingError, Step, sample
from denoscope.sampling.spacing import karras_ratios

GRID = Grid.from_ratios(karras_ratios(12, 0.01, 50.0))


def denoise(z: Tensor, level: Level) -> Tensor:
    """Two points, ±1, in every element: the exact denoiser."""
    return torch.tanh(level.alpha * z / level.sigma**2)


def start(n: int) -> Tensor:
    return torch.stack([torch.randn(3, 4, generator=torch.Generator().manual_seed(100 + i)) for i in range(n)])


@pytest.mark.parametrize("name", SOLVERS)
def test_a_sample_does_not_depend_on_its_batch(name: str) -> None:
    together = sample(denoise, start(3), GRID, SOLVERS[name](), seeds=[4, 5, 6])
    alone = sample(denoise, start(3)[1:2], GRID, SOLVERS[name](), seeds=[5])
    torch.testing.assert_close(together[1:2], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_finds_the_two_points(name: str) -> None:
    grid = Grid.from_ratios(karras_ratios(40, 0.01, 50.0))
    found = sample(denoise, start(20), grid, SOLVERS[name](), seeds=range(20))
    # An element that starts halfway between both may end there.
    assert float(((found.abs() - 1).abs() < 0.02).float().mean()) > 0.97


def test_deterministic_solvers_draw_nothing() -> None:
    for name in ("ddim", "heun", "dpm2", "lms", "deis", "dpmpp_2s", "dpmpp_2m", "dpmpp_3m", "unipc", "pndm"):
        before = torch.random.get_rng_state()
        first = sample(denoise, start(2), GRID, SOLVERS[name]())
        assert torch.equal(before, torch.random.get_rng_state())
        assert torch.equal(first, sample(denoise, start(2), GRID, SOLVERS[name](), seeds=[1, 2]))


def test_a_solver_that_draws_noise_asks_for_seeds() -> None:
    with pytest.raises(SamplingError, match="seeds"):
        sample(denoise, start(2), GRID, SOLVERS["ddpm"]())
    with pytest.raises(ValueError, match="3 seeds for 2 samples"):
        sample(denoise, start(2), GRID, SOLVERS["ddpm"](), seeds=[1, 2, 3])


def test_callback_sees_every_step() -> None:
    seen: list[tuple[int, float]] = []

    def callback(step: Step, z: Tensor) -> None:
        assert step.records[-1].x0.shape == z.shape
        seen.append((step.index, step.here.logsnr))

    sample(denoise, start(1), GRID, SOLVERS["dpmpp_2m"](), callback=callback)
    assert [index for index, _ in seen] == list(range(12))
    assert seen == sorted(seen, key=lambda pair: pair[1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_told_with_its_step(bad: float) -> None:
    def broken(z: Tensor, level: Level) -> Tensor:
        return denoise(z, level) if level.ratio > 1 else torch.full_like(z, bad)

    first = next(i for i in range(12) if GRID[i].ratio <= 1)
    with pytest.raises(SamplingError, match=f"not finite at step {first} of 12"):
        sample(broken, start(1), GRID, SOLVERS["ddim"]())


def test_a_denoiser_of_another_shape_is_refused() -> None:
    with pytest.raises(SamplingError, match=r"shape \(2, 3\) for samples of shape \(2, 3, 4\)"):
        sample(lambda z, level: z[..., 0], start(2), GRID, SOLVERS["ddim"]())


@pytest.mark.parametrize("name", SOLVERS)
def test_inpainting_keeps_what_is_known(name: str) -> None:
    clean, mask = torch.full((3, 4), 0.25), torch.zeros(3, 4)
    mask[:, :2] = 1
    found = sample(denoise, start(2), GRID, SOLVERS[name](), seeds=[1, 2], known=Known(clean, mask))
    assert torch.equal(found[..., :2], clean[:, :2].expand(2, 3, 2))
    assert float((found[..., 2:].abs() - 1).abs().median()) < 0.5  # PNDM is rough on uneven steps


def test_inpainting_conditions_the_rest() -> None:
    """Both elements are the same sign in the data: the unknown one must follow the known one."""

    def tied(z: Tensor, level: Level) -> Tensor:
        return torch.tanh(level.alpha * z.sum(-1, keepdim=True) / level.sigma**2).expand_as(z)

    known = Known(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]))
    grid = Grid.from_ratios(karras_ratios(60, 0.01, 50.0))
    z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    found = sample(tied, z, grid, SOLVERS["ddpm"](), seeds=range(200), known=known)
    assert float((found[:, 1] > 0).float().mean()) > 0.9  # by chance: one half
