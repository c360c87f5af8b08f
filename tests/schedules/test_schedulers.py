"""The noise level that a scheduler tells us, against the noise that the scheduler works with."""

import math
from typing import Protocol

import diffusers
import pytest
import torch
from torch import Tensor

from denoscope.schedules import NoiseSchedule, logsnr_of

# diffusers hands torch tensors to numpy.
pytestmark = pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")


class Stepped(Protocol):
    prev_sample: Tensor


class Scheduler(Protocol):
    timesteps: Tensor
    sigmas: Tensor
    alphas_cumprod: Tensor

    def set_timesteps(self, num_inference_steps: int) -> None: ...
    def scale_model_input(self, sample: Tensor, timestep: Tensor) -> Tensor: ...
    def step(self, model_output: Tensor, timestep: Tensor, sample: Tensor) -> Stepped: ...


def make(name: str, steps: int | None = None, **settings: bool | float | str) -> Scheduler:
    scheduler: Scheduler = getattr(diffusers, name)(**settings)
    if steps is not None:
        scheduler.set_timesteps(steps)
    return scheduler


@pytest.mark.parametrize("name", ["DDIMScheduler", "DDPMScheduler", "PNDMScheduler", "LCMScheduler", "TCDScheduler"])
def test_schedulers_that_index_by_timestep(name: str) -> None:
    scheduler = make(name, 10, beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    levels = logsnr_of(scheduler, scheduler.timesteps)
    exact = NoiseSchedule.scaled_linear().logsnr[scheduler.timesteps.long()]
    torch.testing.assert_close(levels.logsnr, exact, atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(levels.sigma, (-exact / 2).exp(), atol=1e-5, rtol=1e-3)
    assert levels.sigma.dtype == levels.logsnr.dtype == torch.float64


SCALING = ["EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "HeunDiscreteScheduler"]
SCALING += ["LMSDiscreteScheduler", "KDPM2DiscreteScheduler", "KDPM2AncestralDiscreteScheduler"]


@pytest.mark.parametrize(
    ("name", "karras"),
    [(name, False) for name in SCALING] + [(name, True) for name in SCALING if "Ancestral" not in name],
)
def test_schedulers_that_scale_their_input_reveal_their_sigma(name: str, karras: bool) -> None:
    scheduler = make(name, 8, **({"use_karras_sigmas": True} if karras else {}))
    levels = logsnr_of(scheduler, scheduler.timesteps)
    sample, found = torch.ones(1, 1, 2, 2), []
    for timestep in scheduler.timesteps:
        scaled = scheduler.scale_model_input(torch.ones(1, 1, 2, 2), timestep)
        found.append(math.sqrt(float(scaled[0, 0, 0, 0]) ** -2 - 1))  # input / √(σ²+1)
        sample = scheduler.step(torch.zeros_like(sample), timestep, sample).prev_sample
    torch.testing.assert_close(levels.sigma, torch.tensor(found).double(), rtol=2e-3, atol=1e-3)
    torch.testing.assert_close(levels.logsnr, -2 * levels.sigma.log())


@pytest.mark.parametrize(
    "name",
    [
        "DPMSolverMultistepScheduler",
        "DPMSolverSinglestepScheduler",
        "UniPCMultistepScheduler",
        "DEISMultistepScheduler",
        "EulerDiscreteScheduler",
    ],
)
@pytest.mark.parametrize("karras", [False, True])
def test_schedulers_with_a_list_of_sigmas(name: str, karras: bool) -> None:
    scheduler = make(name, 9, use_karras_sigmas=karras)
    levels = logsnr_of(scheduler, scheduler.timesteps)
    torch.testing.assert_close(levels.sigma, scheduler.sigmas[:-1].double())
    # The timestep says the same noise, up to its rounding to a whole number.
    nearest = NoiseSchedule.linear().logsnr[scheduler.timesteps.round().long()]
    torch.testing.assert_close(levels.logsnr, nearest, atol=0.4, rtol=0)


def test_the_tail_of_the_list_as_image_to_image_uses_it() -> None:
    scheduler = make("HeunDiscreteScheduler", 8, use_karras_sigmas=True)
    levels = logsnr_of(scheduler, scheduler.timesteps)
    tail = logsnr_of(scheduler, scheduler.timesteps[6:])
    assert torch.equal(tail.sigma, levels.sigma[6:])
    some = logsnr_of(scheduler, scheduler.timesteps[[9, 3]])
    assert torch.equal(some.sigma, levels.sigma[[9, 3]])


@pytest.mark.parametrize("name", ["DDIMScheduler", "EulerDiscreteScheduler", "DPMSolverMultistepScheduler"])
def test_training_timesteps_before_any_set_timesteps(name: str) -> None:
    levels = logsnr_of(make(name), torch.tensor([999, 500, 0]))
    torch.testing.assert_close(levels.logsnr, NoiseSchedule.linear().logsnr[[999, 500, 0]], atol=2e-3, rtol=1e-4)


def test_fractional_timesteps_lie_between() -> None:
    levels = logsnr_of(make("DDIMScheduler"), torch.tensor([500.5, 500.0, 501.0]))
    assert float(levels.logsnr[0]) == pytest.approx(float(levels.logsnr[1:].mean()))


@pytest.mark.parametrize("shift", [1.0, 3.0])
@pytest.mark.parametrize("name", ["FlowMatchEulerDiscreteScheduler", "FlowMatchHeunDiscreteScheduler"])
def test_flow_matching(name: str, shift: float) -> None:
    scheduler = make(name, 6, shift=shift)
    levels = logsnr_of(scheduler, scheduler.timesteps)
    share = scheduler.timesteps.double() / 1000
    torch.testing.assert_close(levels.sigma, share, atol=1e-6, rtol=1e-6)
    expected = 2 * ((1 - levels.sigma) / levels.sigma).log()
    torch.testing.assert_close(levels.logsnr, expected)
    assert float(levels.logsnr[0]) == -math.inf  # t = 1 is pure noise
    any_time = logsnr_of(scheduler, torch.tensor([250.0]))
    assert float(any_time.logsnr) == pytest.approx(2 * math.log(3))


@pytest.mark.parametrize("name", ["DPMSolverMultistepScheduler", "UniPCMultistepScheduler"])
def test_flow_matching_by_a_diffusion_solver(name: str) -> None:
    scheduler = make(name, 6, use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=3.0)
    levels = logsnr_of(scheduler, scheduler.timesteps)
    torch.testing.assert_close(levels.sigma, scheduler.sigmas[:-1].double())
    torch.testing.assert_close(levels.logsnr, 2 * ((1 - levels.sigma) / levels.sigma).log())


def test_edm() -> None:
    scheduler = make("EDMEulerScheduler", 5)
    levels = logsnr_of(scheduler, scheduler.timesteps)
    torch.testing.assert_close(levels.sigma[[0, -1]], torch.tensor([80.0, 0.002]).double(), rtol=1e-4, atol=0)
    torch.testing.assert_close(levels.logsnr, -2 * levels.sigma.log())
    with pytest.raises(ValueError, match="EDMEulerScheduler has no step"):
        logsnr_of(scheduler, torch.tensor([12.0]))


def test_zero_terminal_snr() -> None:
    scheduler = make("DDIMScheduler", 10, rescale_betas_zero_snr=True, timestep_spacing="trailing")
    levels = logsnr_of(scheduler, scheduler.timesteps)
    assert float(levels.logsnr[0]) == -math.inf
    assert float(levels.sigma[0]) == math.inf
    assert levels.logsnr[1:].isfinite().all()


def test_timesteps_beyond_the_table_are_refused() -> None:
    scheduler = make("DDIMScheduler", 1000, steps_offset=1)  # a known trap: this list starts at 1000
    with pytest.raises(ValueError, match="DDIMScheduler knows timesteps 0 to 999, not 1 to 1000"):
        logsnr_of(scheduler, scheduler.timesteps)


def test_schedulers_of_another_kind_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="VQDiffusionScheduler"):
        logsnr_of(make("VQDiffusionScheduler", num_vec_classes=8), torch.tensor([1]))
