"""Solvers on normal data, where denoiser and path are closed forms: order of convergence, and what is exact."""

import math

import pytest
import torch
from torch import Tensor

from denoscope.sampling import Grid, Level, Solver, sample
from denoscope.sampling.solvers import (
    adams,
    ddim,
    ddpm,
    dpm2,
    dpmpp_2m,
    dpmpp_2s,
    dpmpp_3m,
    heun,
    plms,
    unipc,
    with_langevin,
)
from denoscope.sampling.spacing import karras_ratios, spaced_timesteps
from denoscope.schedules import Family, NoiseSchedule

MEAN, STD = 0.3, 0.5

# (solver, order of convergence): UniPC's corrector adds one to its predictor's.
ORDERS: dict[str, tuple[Solver, int]] = {
    "ddim": (ddim(), 1),
    "heun": (heun(), 2),
    "dpm2": (dpm2(), 2),
    "dpmpp_2s": (dpmpp_2s(), 2),
    "dpmpp_2m": (dpmpp_2m(lower_order_final=False), 2),
    "dpmpp_3m": (dpmpp_3m(lower_order_final=False), 3),
    "lms 2": (adams(2), 2),
    "lms 3": (adams(3), 3),
    "lms 4": (adams(4), 4),
    "deis 2": (adams(2, "log"), 2),
    "deis 3": (adams(3, "log"), 3),
    "unipc 1": (unipc(1, lower_order_final=False), 2),
    "unipc 2": (unipc(2, lower_order_final=False), 3),
    "unipc 3": (unipc(3, lower_order_final=False), 4),
}


def exact(z: Tensor, level: Level) -> Tensor:
    """E[x0 | z] for x0 ~ N(MEAN, STD²)."""
    gain = level.alpha * STD**2 / (level.alpha**2 * STD**2 + level.sigma**2)
    return MEAN + gain * (z - level.alpha * MEAN)


def on_path(z: Tensor, here: Level, there: Level) -> Tensor:
    """The exact solution of the probability-flow ODE: the sample keeps its place in units of the marginal's spread."""
    spread = [math.hypot(level.alpha * STD, level.sigma) for level in (here, there)]
    return there.alpha * MEAN + (z - here.alpha * MEAN) * spread[1] / spread[0]


@pytest.mark.parametrize("family", ["ve", "vp", "flow"])
@pytest.mark.parametrize("name", ORDERS)
def test_order_of_convergence(name: str, family: Family) -> None:
    solver, order = ORDERS[name]
    errors = []
    for steps in (128, 256):
        grid = Grid.from_ratios(karras_ratios(steps + 1, 0.002, 80.0)[:-1], family)
        z = grid[0].alpha * torch.linspace(-80, 80, 9, dtype=torch.float64)[:, None]
        errors.append(float((sample(exact, z, grid, solver) - on_path(z, grid[0], grid[steps])).abs().max()))
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("family", ["vp", "flow"])
def test_from_pure_noise_to_none(name: str, family: Family) -> None:
    ratios = torch.cat([torch.tensor([math.inf]), karras_ratios(100, 0.002, 80.0)])
    grid = Grid.from_ratios(ratios, family)
    z = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    found = sample(exact, z, grid, ORDERS[name][0])
    assert found.isfinite().all()
    assert float((found - on_path(z, grid[0], grid[len(grid)])).abs().max()) < 0.04


def test_plms_on_even_timesteps() -> None:
    errors = []
    for steps in (50, 100):
        schedule = NoiseSchedule.linear()
        grid = Grid.from_timesteps(schedule, spaced_timesteps(1000, steps, "leading", 1), "first")
        z = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
        errors.append(float((sample(exact, z, grid, plms()) - on_path(z, grid[0], grid[steps])).abs().max()))
    euler = float((sample(exact, z, grid, ddim()) - on_path(z, grid[0], grid[steps])).abs().max())
    assert errors[1] < errors[0] < euler


@pytest.mark.parametrize(("variance", "spread"), [("fixed_large", 1.0), ("fixed_small", 0.0)])
def test_ancestral_sampling_is_exact_at_its_two_bounds(variance: str, spread: float) -> None:
    """The variance of what comes out, followed in closed form through every step (Ho et al. 2020, section 3.2)."""
    grid = Grid.from_timesteps(NoiseSchedule.cosine(100), spaced_timesteps(100, 100), "first")
    solver = ddpm("fixed_large" if variance == "fixed_large" else "fixed_small")

    def denoise(z: Tensor, level: Level) -> Tensor:
        return z * level.alpha * spread**2 / (level.alpha**2 * spread**2 + level.sigma**2)

    # Linear in z and in each step's noise: send a unit of each through and add up the variances.
    class Unit:
        def __init__(self, at: int) -> None:
            self.at, self.drawn = at, 0

        def __len__(self) -> int:
            return 1

        def draw(self, like: Tensor) -> Tensor:
            self.drawn += 1
            return torch.full_like(like, float(self.drawn - 1 == self.at))

    start = math.hypot(grid[0].alpha * spread, grid[0].sigma) ** 2
    one = torch.ones(1, 1, dtype=torch.float64)
    variances = [start * float(sample(denoise, one, grid, solver, seeds=Unit(-1))) ** 2]  # type: ignore[arg-type]
    variances += [
        float(sample(denoise, 0 * one, grid, solver, seeds=Unit(k))) ** 2  # type: ignore[arg-type]
        for k in range(len(grid))
    ]
    end = grid[len(grid)]
    assert sum(variances) == pytest.approx(end.alpha**2 * spread**2 + end.sigma**2, abs=1e-12)


@pytest.mark.parametrize(
    "solver",
    [ddim(1.0), dpmpp_2m(eta=1.0), dpmpp_3m(eta=1.0), heun(churn=20.0), with_langevin(ddim(1.0), snr=0.1)],
    ids=["ancestral", "2M SDE", "3M SDE", "churn", "Langevin"],
)
def test_stochastic_solvers_keep_the_distribution(solver: Solver) -> None:
    count = 4000
    grid = Grid.from_ratios(karras_ratios(400, 0.01, 40.0))
    z = torch.randn(1, count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = sample(exact, z, grid, solver, seeds=[0])
    assert float(found.mean()) == pytest.approx(MEAN, abs=4 * STD / math.sqrt(count))
    assert float(found.std()) == pytest.approx(STD, rel=0.06)
