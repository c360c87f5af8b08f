"""Schedules against golden numbers and against diffusers' own tables."""

import math
from typing import Protocol

import diffusers
import pytest
import torch
from torch import Tensor

from denoscope.schedules import NoiseSchedule

SCHEDULES = {
    "cosine": NoiseSchedule.cosine(),
    "linear": NoiseSchedule.linear(),
    "scaled linear": NoiseSchedule.scaled_linear(),
    "short cosine": NoiseSchedule.cosine(100),
    "unnamed cap": NoiseSchedule.cosine(max_beta=0.9999),
    "cosine to zero": NoiseSchedule.cosine().zero_terminal_snr(),
    "scaled linear to zero": NoiseSchedule.scaled_linear().zero_terminal_snr(),
    "unnamed to zero": NoiseSchedule.cosine(max_beta=0.9999).zero_terminal_snr(),
}
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())


class Scheduler(Protocol):
    alphas_cumprod: Tensor
    betas: Tensor


def diffusers_scheduler(name: str, config: dict[str, bool | int | float | str | list[float]]) -> Scheduler:
    made: Scheduler = getattr(diffusers, name)(**config)
    return made


@every_schedule
@pytest.mark.parametrize("name", ["DDPMScheduler", "DDIMScheduler"])
def test_diffusers_builds_the_same_schedule(schedule: NoiseSchedule, name: str) -> None:
    theirs = diffusers_scheduler(name, schedule.to_diffusers_config())
    assert len(schedule) == len(theirs.alphas_cumprod)
    # Their tables are float32: the absolute error of a float32 product near 1, and of T products far from it.
    torch.testing.assert_close(theirs.alphas_cumprod.double(), schedule.alphas_cumprod, atol=3e-7, rtol=2e-4)
    torch.testing.assert_close(theirs.betas.double(), schedule.betas, atol=3e-7, rtol=2e-4)


@every_schedule
@pytest.mark.parametrize("name", ["DDPMScheduler", "DDIMScheduler", "EulerDiscreteScheduler"])
def test_a_schedule_comes_back_from_diffusers(schedule: NoiseSchedule, name: str) -> None:
    found = NoiseSchedule.from_diffusers(diffusers_scheduler(name, schedule.to_diffusers_config()))
    # Named ones exactly; others through a float32 table. Euler replaces a last ᾱ of zero by 2⁻²⁴.
    if schedule.scheduler_config:
        assert torch.equal(found.alphas_cumprod, schedule.alphas_cumprod)
    else:
        torch.testing.assert_close(found.alphas_cumprod, schedule.alphas_cumprod, atol=3e-7, rtol=2e-4)


def test_a_scheduler_without_such_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="FlowMatchEulerDiscreteScheduler has no alphas_cumprod"):
        NoiseSchedule.from_diffusers(diffusers.FlowMatchEulerDiscreteScheduler())


def test_cosine_has_a_cap_and_no_floor() -> None:
    schedule = NoiseSchedule.cosine()
    assert float(schedule.betas[0]) == pytest.approx(4.128e-5, abs=1e-8)
    assert float(schedule.alphas_cumprod[-1]) == pytest.approx(2.429e-9, rel=1e-3)
    assert int((schedule.betas > 0.999 - 1e-9).sum()) == 1
    # The first beta in closed form.
    start, first = (math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2 for t in (0, 1e-3))
    assert float(schedule.betas[0]) == pytest.approx(1 - first / start, rel=1e-9)


def test_cosine_with_another_cap() -> None:
    assert float(NoiseSchedule.cosine(max_beta=0.9999).alphas_cumprod[-1]) == pytest.approx(2.43e-10, rel=1e-3)


def test_linear_golden_numbers() -> None:
    schedule = NoiseSchedule.linear()
    assert float(schedule.alphas_cumprod[-1]) == pytest.approx(4.03583e-5, rel=1e-5)
    ratio = schedule.sigma / schedule.alpha
    assert float(ratio[0]) == pytest.approx(0.0100005, abs=1e-7)
    assert float(ratio[-1]) == pytest.approx(157.407, abs=1e-3)


def test_golden_posterior_variances_of_ddim() -> None:
    # diffusers' public DDIM tests: the variance between steps 420 → 400 and 980 → 960.
    remaining = NoiseSchedule.linear().alphas_cumprod
    for now, then, expected in ((420, 400, 0.14771), (980, 960, 0.32460)):
        variance = (1 - remaining[then]) / (1 - remaining[now]) * (1 - remaining[now] / remaining[then])
        assert float(variance) == pytest.approx(expected, abs=1e-5)


@every_schedule
def test_tables_agree_with_each_other(schedule: NoiseSchedule) -> None:
    torch.testing.assert_close(schedule.alpha**2 + schedule.sigma**2, torch.ones(len(schedule)).double())
    torch.testing.assert_close(schedule.logsnr.sigmoid(), schedule.alphas_cumprod, rtol=1e-9, atol=0)
    again = NoiseSchedule.from_betas(schedule.betas)
    torch.testing.assert_close(again.alphas_cumprod, schedule.alphas_cumprod, rtol=1e-9, atol=1e-15)
    assert schedule.alphas_cumprod.dtype == torch.float64


def test_zero_terminal_snr_keeps_the_first_level() -> None:
    before = NoiseSchedule.scaled_linear()
    after = before.zero_terminal_snr()
    assert float(after.alphas_cumprod[-1]) == 0
    assert float(after.logsnr[-1]) == -math.inf
    assert float(after.betas[-1]) == 1
    assert float(after.alphas_cumprod[0]) == pytest.approx(float(before.alphas_cumprod[0]), rel=1e-12)
    assert float(before.alphas_cumprod[-1]) > 0


@pytest.mark.parametrize(
    "table",
    [
        torch.tensor([]),
        torch.ones(2, 2),
        torch.tensor([0.5, 0.5]),
        torch.tensor([0.5, 0.6]),
        torch.tensor([1.5, 0.6]),
        torch.tensor([0.5, -0.1]),
        torch.tensor([0.5, math.nan]),
    ],
)
def test_refuses_what_is_no_schedule(table: Tensor) -> None:
    with pytest.raises(ValueError, match="alphas_cumprod"):
        NoiseSchedule(table)


def test_a_single_level_cannot_be_stretched() -> None:
    with pytest.raises(ValueError, match="single level"):
        NoiseSchedule(torch.tensor([0.5])).zero_terminal_snr()


def test_the_table_is_a_copy() -> None:
    table = torch.tensor([0.5, 0.25])
    schedule = NoiseSchedule(table)
    table[0] = 0.1
    assert float(schedule.alphas_cumprod[0]) == 0.5
