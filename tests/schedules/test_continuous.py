"""Schedules in continuous time against closed forms written down elsewhere, and against tables and diffusers."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from torch import Tensor

from denoscope.schedules import ContinuousSchedule, LearnedSchedule, NoiseSchedule
from denoscope.schedules.continuous import cosine, flow, flow_shift, karras, laplace, linear, log_linear, sigmoid

INSIDE = torch.linspace(0, 1, 101, dtype=torch.float64)[1:-1]
SCHEDULES = {
    "cosine": cosine(),
    "cosine, shifted": cosine(shift=-1.4),
    "linear": linear(),
    "sigmoid": sigmoid(),
    "laplace": laplace(),
    "log-linear": log_linear(),
    "karras": karras(),
    "flow": flow(),
    "flow, shifted": flow(3.0),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_levels_fall_and_belong_together(name: str) -> None:
    schedule = SCHEDULES[name]
    logsnr = schedule.logsnr(INSIDE)
    assert logsnr.dtype == torch.float64
    assert bool((logsnr.diff() < 0).all())
    alpha, sigma = schedule.alpha_sigma(INSIDE)
    torch.testing.assert_close(2 * (alpha / sigma).log(), logsnr)
    kept = {"vp": alpha**2 + sigma**2, "flow": alpha + sigma, "ve": alpha}[schedule.family]
    torch.testing.assert_close(kept, torch.ones_like(kept))


def test_cosine() -> None:
    alpha, sigma = cosine().alpha_sigma(INSIDE)
    torch.testing.assert_close(alpha, torch.cos(math.pi / 2 * INSIDE))
    torch.testing.assert_close(sigma, torch.sin(math.pi / 2 * INSIDE))
    torch.testing.assert_close(
        cosine(shift=-1.4).logsnr(INSIDE) - cosine().logsnr(INSIDE), torch.full_like(INSIDE, -1.4)
    )


def test_linear_is_the_limit_of_many_small_betas() -> None:
    # DDPM's betas times T are the SDE's β(t): .1 to 20 over a thousand steps.
    errors = []
    for steps in (1000, 4000):
        table = NoiseSchedule.linear(steps, 0.1 / steps, 20 / steps)
        t = torch.arange(1, steps + 1, dtype=torch.float64) / steps
        errors.append(float((table.alphas_cumprod - torch.sigmoid(linear().logsnr(t))).abs().max()))
    assert errors[0] < 5e-3
    assert errors[1] < errors[0] / 3


def test_laplace_is_a_quantile_function() -> None:
    wanted = scipy.stats.laplace.ppf(1 - INSIDE.numpy(), loc=0.3, scale=0.7)
    np.testing.assert_allclose(laplace(0.3, 0.7).logsnr(INSIDE).numpy(), wanted, rtol=1e-9, atol=1e-9)


def test_sigmoid_as_published() -> None:
    def gamma(t: float, start: float = -3.0, end: float = 3.0, tau: float = 1.0) -> float:
        first, last = (1 / (1 + math.exp(-x / tau)) for x in (start, end))
        return (last - 1 / (1 + math.exp(-(t * (end - start) + start) / tau))) / (last - first)

    found = torch.sigmoid(sigmoid().logsnr(INSIDE))
    assert found.tolist() == pytest.approx([gamma(float(t)) for t in INSIDE], rel=1e-9)


def test_sigmas_of_edm_and_of_the_geometric_schedule() -> None:
    ratios = (-karras().logsnr(torch.tensor([0.0, 0.5, 1.0])) / 2).exp()
    assert ratios.tolist() == pytest.approx([0.002, ((0.002 ** (1 / 7) + 80 ** (1 / 7)) / 2) ** 7, 80.0])
    ratios = (-log_linear(0.01, 100.0).logsnr(torch.tensor([0.0, 0.5, 1.0])) / 2).exp()
    assert ratios.tolist() == pytest.approx([0.01, 1.0, 100.0])


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_flow(shift: float) -> None:
    alpha, sigma = flow(shift).alpha_sigma(INSIDE)
    wanted = shift * INSIDE / (1 + (shift - 1) * INSIDE)
    torch.testing.assert_close(sigma, wanted)
    torch.testing.assert_close(alpha, 1 - wanted)
    ends = flow(shift).alpha_sigma(torch.tensor([0.0, 1.0]))
    assert [end.tolist() for end in ends] == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("tokens", [256, 1024, 4096])
def test_shift_by_resolution_is_that_of_diffusers(tokens: int) -> None:
    assert math.log(flow_shift(tokens)) == pytest.approx(calculate_shift(tokens))


def test_a_table_is_the_function_looked_up() -> None:
    table = laplace().table(10)
    assert len(table) == 10
    assert float(table.logsnr[4]) == pytest.approx(0.0, abs=1e-12)
    assert float(table.alphas_cumprod[-1]) == 0
    with pytest.raises(ValueError, match="fall strictly"):
        ContinuousSchedule(lambda t: torch.zeros_like(t)).table(3)


def test_times_outside_are_refused() -> None:
    for t in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            cosine().logsnr(torch.tensor([0.5, t]))
    with pytest.raises(ValueError, match="shift must be positive"):
        flow(0.0)
    for make in (log_linear, karras):
        with pytest.raises(ValueError, match=r"in order, not 1 and 0\.5"):
            make(1.0, 0.5)


def test_floored_cosine_changes_the_clean_end_alone() -> None:
    floored, plain = NoiseSchedule.cosine_floored(), NoiseSchedule.cosine()
    assert float(plain.betas[0]) == pytest.approx(4.128e-5, abs=1e-8)
    assert float(floored.betas.min()) == pytest.approx(1e-4)
    changed = (floored.betas - plain.betas).abs() > 1e-9
    assert changed[0]
    assert not bool(changed[30:999].any())
    assert float(floored.alphas_cumprod[-1]) == pytest.approx(2.43e-10, rel=1e-2)


def test_sigmas_as_a_table() -> None:
    schedule = NoiseSchedule.linear()
    again = NoiseSchedule.from_sigmas(schedule.sigma / schedule.alpha)
    torch.testing.assert_close(again.alphas_cumprod, schedule.alphas_cumprod)
    for sigmas in ([0.0, 1.0], [1.0, 0.5], [1.0, math.nan]):
        with pytest.raises(ValueError, match="rise strictly"):
            NoiseSchedule.from_sigmas(torch.tensor(sigmas))


def train(schedule: LearnedSchedule, wanted: Tensor) -> list[float]:
    t, losses = torch.linspace(0, 1, len(wanted)), []
    optimizer = torch.optim.Adam(schedule.parameters(), lr=0.02)
    for _ in range(200):
        loss = (schedule(t) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_a_learnt_schedule_bends_and_never_rises() -> None:
    torch.manual_seed(0)
    schedule = LearnedSchedule(hidden=64)
    wanted = cosine().logsnr(torch.linspace(0.01, 0.99, 50)).float()
    losses = train(schedule, wanted)
    assert losses[-1] < losses[0] / 10
    t = torch.linspace(0, 1, 501)
    assert bool((schedule(t).diff() < 0).all())
    frozen = schedule.frozen()
    torch.testing.assert_close(frozen.logsnr(t).float(), schedule(t).detach(), atol=1e-4, rtol=1e-4)
    before = frozen.logsnr(t)
    train(schedule, -wanted.flip(0) - 20)
    assert torch.equal(frozen.logsnr(t), before)  # what was frozen stays
