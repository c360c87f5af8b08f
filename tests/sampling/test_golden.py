"""Solvers against the published figures of diffusers' scheduler tests."""

import pytest
import torch
from sampler_samples import SharedNoise, golden_network, golden_sample
from torch import Tensor

from denoscope.sampling import Grid, Solver, sample
from denoscope.sampling.denoisers import clipped, discrete
from denoscope.sampling.solvers import adams, ddim, ddpm, dpmpp_2m, unipc
from denoscope.sampling.spacing import spaced_timesteps
from denoscope.schedules import NoiseSchedule, PredictionType

LINEAR = NoiseSchedule.linear()


def with_one_more(steps: int) -> Tensor:
    """Timesteps of diffusers' multistep schedulers for ``linspace``: N + 1 from 999 to 0, without the last."""
    return torch.linspace(0, 999, steps + 1, dtype=torch.float64).round().long().flip(0)[:-1]


def run(
    solver: Solver, grid: Grid, kind: PredictionType, clip: bool = False, schedule: NoiseSchedule = LINEAR
) -> Tensor:
    denoise = discrete(golden_network, schedule, kind)
    return sample(clipped(denoise) if clip else denoise, golden_sample(), grid, solver, seeds=None)


@pytest.mark.parametrize(("kind", "total"), [("epsilon", 172.0067), ("v_prediction", 52.5302)])
def test_ddim(kind: PredictionType, total: float) -> None:
    grid = Grid.from_timesteps(LINEAR, spaced_timesteps(1000, 10, "leading"))
    assert float(run(ddim(), grid, kind, clip=True).abs().sum()) == pytest.approx(total, abs=1e-2)


def test_ddim_in_float64() -> None:
    grid = Grid.from_timesteps(LINEAR, spaced_timesteps(1000, 10, "leading"))
    found = sample(clipped(discrete(golden_network, LINEAR)), golden_sample().double(), grid, ddim())
    assert float(found.abs().sum()) == pytest.approx(172.0065, abs=1e-4)
    assert float(found.abs().mean()) == pytest.approx(0.223967, abs=1e-6)


@pytest.mark.parametrize(("final", "total"), [("clean", 149.8295), ("first", 149.0784)])
def test_ddim_ends_where_it_is_told(final: str, total: float) -> None:
    schedule = NoiseSchedule.linear(beta_start=0.01)
    timesteps = spaced_timesteps(1000, 10, "leading")
    grid = Grid.from_timesteps(schedule, timesteps, "clean" if final == "clean" else "first")
    found = run(ddim(), grid, "epsilon", clip=True, schedule=schedule)
    assert float(found.abs().sum()) == pytest.approx(total, abs=1e-2)


@pytest.mark.parametrize(("kind", "total"), [("epsilon", 258.9606), ("v_prediction", 202.0296)])
def test_ddpm(kind: PredictionType, total: float) -> None:
    grid = Grid.from_timesteps(LINEAR, spaced_timesteps(1000, 1000))
    denoise = clipped(discrete(golden_network, LINEAR, kind))
    found = sample(denoise, golden_sample(), grid, ddpm(), seeds=SharedNoise(0, range(4)))
    assert float(found.abs().sum()) == pytest.approx(total, abs=1e-2)


@pytest.mark.parametrize(("kind", "mean"), [("epsilon", 0.3301), ("v_prediction", 0.2251)])
def test_dpmpp_2m(kind: PredictionType, mean: float) -> None:
    grid = Grid.from_timesteps(LINEAR, with_one_more(10), "first")
    found = run(dpmpp_2m(lower_order_final=False), grid, kind)
    assert float(found.abs().mean()) == pytest.approx(mean, abs=1e-3)


def test_unipc() -> None:
    grid = Grid.from_timesteps(LINEAR, with_one_more(10), "first")
    assert float(run(unipc(2), grid, "epsilon").abs().mean()) == pytest.approx(0.2464, abs=1e-3)


def test_deis() -> None:
    grid = Grid.from_timesteps(LINEAR, with_one_more(10), "first")
    assert float(run(adams(2, "log", lower_order_final=True), grid, "epsilon").abs().mean()) == pytest.approx(
        0.23916, abs=1e-3
    )
