"""Solvers on a finite set of samples, where the denoiser is a closed form, against SciPy's ODE solver."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from torch import Tensor

from denoscope.sampling import Grid, Level, Solver, sample
from denoscope.sampling.solvers import adams, ddim, dpm2, dpmpp_2m, dpmpp_2s, dpmpp_3m, heun, plms, unipc
from denoscope.sampling.spacing import exponential_ratios
from denoscope.schedules import Family

POINTS = torch.randn(7, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
HIGH, LOW = 20.0, 0.05

# (solver, greatest distance from the exact end at 400 steps)
SOLVERS: dict[str, tuple[Solver, float]] = {
    "ddim": (ddim(), 5e-3),
    "heun": (heun(), 3e-4),
    "dpm2": (dpm2(), 3e-4),
    "dpmpp_2s": (dpmpp_2s(), 3e-4),
    "dpmpp_2m": (dpmpp_2m(), 3e-4),
    "dpmpp_3m": (dpmpp_3m(), 3e-5),
    "lms": (adams(4), 3e-5),
    "deis": (adams(3, "log"), 3e-5),
    "unipc": (unipc(2), 3e-5),
    "pndm": (plms(), 3e-5),
}


def denoise(z: Tensor, level: Level) -> Tensor:
    """E[x0 | z] over seven points alike."""
    distances = (z[:, None] - level.alpha * POINTS).square().sum(-1) / (2 * level.sigma**2)
    return torch.softmax(-distances, dim=1) @ POINTS


def exact_end(y: Tensor) -> NDArray[np.float64]:
    """Each path's end at σ/α = LOW, from dy/dr = (y − D)/r."""

    def slope(r: float, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        now = torch.from_numpy(flat.reshape(y.shape))
        return ((now - denoise(now, Level(1.0, r))) / r).numpy().ravel()

    found = solve_ivp(slope, (HIGH, LOW), y.numpy().ravel(), method="DOP853", rtol=1e-11, atol=1e-11)
    assert found.success
    return np.asarray(found.y[:, -1]).reshape(y.shape)


Y = HIGH * torch.randn(12, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
END = exact_end(Y)


@pytest.mark.parametrize("family", ["vp", "ve", "flow"])
@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_reaches_the_exact_end(name: str, family: Family) -> None:
    solver, bound = SOLVERS[name]
    grid = Grid.from_ratios(exponential_ratios(401, LOW, HIGH)[:-1], family)
    found = sample(denoise, grid[0].alpha * Y, grid, solver) / grid[400].alpha
    assert float((found - torch.from_numpy(END)).abs().max()) < bound


def test_the_ends_are_not_all_one_point() -> None:
    nearest = torch.cdist(torch.from_numpy(END), POINTS).argmin(1)
    assert len(set(nearest.tolist())) >= 4
