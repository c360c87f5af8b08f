"""Solvers step for step against diffusers' schedulers, on the same timesteps and with the same noise."""

from typing import Protocol

import diffusers
import pytest
import torch
from sampler_samples import SharedNoise, golden_network, golden_sample
from torch import Tensor

from denoscope.sampling import Grid, Solver, sample
from denoscope.sampling.denoisers import discrete
from denoscope.sampling.solvers import adams, ddim, ddpm, dpm2, dpmpp_2m, heun, plms, unipc
from denoscope.sampling.spacing import spaced_timesteps
from denoscope.schedules import Family, NoiseSchedule

LINEAR = NoiseSchedule.linear()
CONFIG: dict[str, bool | int | float | str] = {
    "num_train_timesteps": 1000,
    "beta_schedule": "linear",
    "beta_start": 1e-4,
    "beta_end": 0.02,
    "timestep_spacing": "leading",
}
PLAIN: dict[str, bool | int | float | str] = {"clip_sample": False, "steps_offset": 1}
Settings = dict[str, bool | int | float | str]
Arguments = dict[str, float]


class Output(Protocol):
    prev_sample: Tensor


class Scheduler(Protocol):
    timesteps: Tensor
    init_noise_sigma: Tensor | float

    def set_timesteps(self, steps: int) -> None: ...
    def scale_model_input(self, sample: Tensor, timestep: Tensor) -> Tensor: ...
    def step(self, output: Tensor, timestep: Tensor, sample: Tensor, **arguments: object) -> Output: ...


def theirs(name: str, settings: Settings, steps: int, z: Tensor, arguments: Arguments, noisy: bool) -> Tensor:
    """What diffusers' scheduler makes of ``z``."""
    scheduler: Scheduler = getattr(diffusers, name)(**(CONFIG | settings))
    scheduler.set_timesteps(steps)
    given: dict[str, object] = dict(arguments)
    if noisy:
        given["generator"] = torch.Generator().manual_seed(5)
    for timestep in scheduler.timesteps:
        output = golden_network(scheduler.scale_model_input(z, timestep), timestep)
        z = scheduler.step(output, timestep, z, **given).prev_sample
    return z


CASES: dict[str, tuple[str, Settings, Arguments, Solver, Family, int, bool]] = {
    "ddim": ("DDIMScheduler", PLAIN, {}, ddim(), "vp", 20, False),
    "ddim η = ½": ("DDIMScheduler", PLAIN, {"eta": 0.5}, ddim(0.5), "vp", 20, True),
    "ddpm small": ("DDPMScheduler", PLAIN, {}, ddpm(), "vp", 20, True),
    "euler": ("EulerDiscreteScheduler", {"steps_offset": 1}, {}, ddim(), "ve", 20, False),
    "euler ancestral": ("EulerAncestralDiscreteScheduler", {"steps_offset": 1}, {}, ddim(1.0), "ve", 20, True),
    "heun": ("HeunDiscreteScheduler", {"steps_offset": 1}, {}, heun(), "ve", 20, False),
    "dpm2": ("KDPM2DiscreteScheduler", {"steps_offset": 1}, {}, dpm2(), "ve", 20, False),
    "lms": ("LMSDiscreteScheduler", {"steps_offset": 1}, {}, adams(4), "ve", 20, False),
    "pndm": ("PNDMScheduler", {"steps_offset": 1, "skip_prk_steps": True}, {}, plms(), "vp", 20, False),
    "dpmpp 2m": ("DPMSolverMultistepScheduler", {"steps_offset": 1}, {}, dpmpp_2m(), "vp", 20, False),
    "dpmpp 2m, few steps": ("DPMSolverMultistepScheduler", {"steps_offset": 1}, {}, dpmpp_2m(), "vp", 8, False),
    "dpmpp 2m sde": (
        "DPMSolverMultistepScheduler",
        {"steps_offset": 1, "algorithm_type": "sde-dpmsolver++"},
        {},
        dpmpp_2m(eta=1.0),
        "vp",
        20,
        True,
    ),
    "unipc 2": ("UniPCMultistepScheduler", {"steps_offset": 1}, {}, unipc(2), "vp", 20, False),
    "unipc 3": ("UniPCMultistepScheduler", {"steps_offset": 1, "solver_order": 3}, {}, unipc(3), "vp", 20, False),
}


@pytest.mark.parametrize("name", CASES)
def test_same_sample(name: str) -> None:
    scheduler, settings, arguments, solver, family, steps, noisy = CASES[name]
    timesteps = spaced_timesteps(1000, steps, "leading", 1)
    made: Scheduler = getattr(diffusers, scheduler)(**(CONFIG | settings))
    made.set_timesteps(steps)
    if "Multistep" in scheduler:  # their "leading" divides by N + 1
        timesteps = made.timesteps
    grid = Grid.from_timesteps(LINEAR, timesteps.long(), "first" if name == "pndm" else "clean")
    # Theirs draws the SDE's noise in float32, whatever the sample is.
    z = golden_sample() if "sde" in name else golden_sample().double()
    if family == "ve":
        grid = Grid.from_ratios(grid.sigma / grid.alpha, "ve")
        z = z * 10
    source = SharedNoise(5, range(len(z))) if noisy else None
    found = sample(discrete(golden_network, LINEAR), z, grid, solver, seeds=source)
    wanted = theirs(scheduler, settings, steps, z, arguments, noisy)
    # Their tables are float32.
    torch.testing.assert_close(found.double(), wanted.double(), rtol=2e-3, atol=2e-3 * float(wanted.abs().max()))
