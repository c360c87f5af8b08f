"""Every solver that has a name, on a part of the shapes world: its exact denoiser against the list of its pictures.

The solvers ask the world's closed form, which knows layouts and halves but no list of scenes. The reference is SciPy's
path along the posterior mean over the plain list, and the list itself.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from torch import Tensor

from denoscope.data.worlds.shapes.exact import Conditions, ExactShapes, crop, pixels
from denoscope.data.worlds.shapes.rendering import render
from denoscope.data.worlds.shapes.scenes import (
    BACKGROUNDS,
    LAYOUT_PRIOR,
    LAYOUTS,
    Region,
    Scene,
    Thing,
    table,
    thing,
)
from denoscope.sampling import SOLVERS, Grid, Level, SamplingError, Step, sample
from denoscope.sampling.spacing import exponential_ratios, karras_ratios

HIGH, BETWEEN, LOW = 20.0, 0.3, 0.05
SHAPE = (3, 8, 8)

# By how much four times the steps must lessen the error, at least: half of 4^order.
ORDERS = {
    "ddim": 1,
    "euler": 1,
    "dpmpp_1s": 1,
    "heun": 2,
    "dpm2": 2,
    "dpmpp_2s": 2,
    "dpmpp_2m": 2,
    "dpmpp_3m": 3,
    "deis": 3,
    "unipc": 2,  # of third order but for its last step, which is of first order and is not corrected
    "lms": 4,
    "pndm": 1,  # of fourth order only on even timesteps, which these levels are not
}
STOCHASTIC = set(SOLVERS) - set(ORDERS)


def pooled(scenes: list[Scene]) -> Tensor:
    """Means of blocks of 8 by 8 pixels: maps ``(n, 3, 8, 8)``."""
    pictures = pixels(np.stack([render(scene) for scene in scenes]))
    return pictures.reshape(-1, 3, 8, 8, 8, 8).mean((3, 5))


def some_things() -> dict[Region, list[Thing]]:
    """Twelve objects of the whole picture, three of each half."""
    rng = np.random.default_rng(0)
    found: dict[Region, list[Thing]] = {}
    for region in (region for regions in LAYOUTS.values() for region in regions):
        rows = rng.choice(table(region), 12 if region == "whole" else 3, replace=False)
        found[region] = [thing(row, region) for row in rows]
    return found


def part_of_the_world(chosen: dict[Region, list[Thing]]) -> ExactShapes:
    templates = {}
    for region, items in chosen.items():
        rows, columns = crop(region, *SHAPE[1:])
        maps = [pooled([Scene("one", (item,), background) for item in items]) for background in BACKGROUNDS]
        templates[region] = torch.stack([each[:, :, rows, columns].flatten(1) for each in maps])
    return ExactShapes(templates, SHAPE)


CHOSEN = some_things()
WORLD = part_of_the_world(CHOSEN)
SCENES = [
    Scene(layout, both, background)
    for layout, regions in LAYOUTS.items()
    for both in product(*(CHOSEN[region] for region in regions))
    for background in BACKGROUNDS
]
PICTURES = pooled(SCENES)
LAYOUT_OF = torch.tensor([list(LAYOUTS).index(scene.layout) for scene in SCENES])
PRIOR = torch.tensor(list(LAYOUT_PRIOR.values()), dtype=torch.float64)


def denoise(z: Tensor, level: Level) -> Tensor:
    """The world's own closed form, no caption."""
    objects = {
        region: torch.full((len(z), len(items)), -math.log(len(items)), dtype=torch.float64)
        for region, items in CHOSEN.items()
    }
    return WORLD.denoise(z, level.logsnr, Conditions(PRIOR.log().expand(len(z), -1), objects))


def exact_path(y: Tensor, ratios: list[float]) -> list[Tensor]:
    """Where the probability-flow ODE leads from σ/α = HIGH: dy/d(log r) = y − E[x0 | y], y = x0 + r·ε."""
    maps = PICTURES.flatten(1).numpy()
    weights = (PRIOR / LAYOUT_OF.bincount())[LAYOUT_OF].log().numpy()

    def slope(log_ratio: float, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        now = flat.reshape(len(y), -1)
        squares = np.square(now[:, None] - maps).sum(-1)
        scores = weights - squares / (2 * math.exp(2 * log_ratio))
        posterior = np.exp(scores - scores.max(1, keepdims=True))
        result: NDArray[np.float64] = (now - posterior / posterior.sum(1, keepdims=True) @ maps).ravel()
        return result

    logs = np.log([HIGH, *ratios])
    found = solve_ivp(slope, (logs[0], logs[-1]), y.numpy().ravel(), "DOP853", logs[1:], rtol=1e-10, atol=1e-10)
    assert found.success
    return [torch.from_numpy(found.y[:, i].reshape(y.shape)) for i in range(len(ratios))]


def nearest(x: Tensor) -> Tensor:
    """The number of the nearest picture: ``(B,)``."""
    return torch.cdist(x.flatten(1), PICTURES.flatten(1)).argmin(1)


Y = HIGH * torch.randn(8, *SHAPE, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.fixture(scope="module")
def path() -> list[Tensor]:
    return exact_path(Y, [BETWEEN, LOW])


@pytest.mark.parametrize("name", SOLVERS)
def test_only_those_known_to_be_stochastic_draw_noise(name: str) -> None:
    grid = Grid.from_ratios([HIGH, 1.0, LOW])
    if name in STOCHASTIC:
        with pytest.raises(SamplingError, match="draws noise"):
            sample(denoise, grid[0].alpha * Y, grid, SOLVERS[name]())
    else:
        sample(denoise, grid[0].alpha * Y, grid, SOLVERS[name]())


@pytest.mark.parametrize("name", ORDERS)
def test_more_steps_come_nearer_to_the_exact_path(name: str, path: list[Tensor]) -> None:
    errors = []
    for steps in (40, 160):
        grid = Grid.from_ratios(exponential_ratios(steps + 1, BETWEEN, HIGH)[:-1])
        found = sample(denoise, grid[0].alpha * Y, grid, SOLVERS[name]()) / grid[steps].alpha
        errors.append(float((found - path[0]).abs().max()))
    assert errors[1] < (2e-2 if ORDERS[name] == 1 else 5e-4)
    assert errors[0] / errors[1] > 0.5 * 4 ** ORDERS[name]


@pytest.mark.parametrize("name", ORDERS)
def test_the_end_is_the_picture_that_the_exact_path_leads_to(name: str, path: list[Tensor]) -> None:
    grid = Grid.from_ratios(karras_ratios(100, 0.002, HIGH))
    found = sample(denoise, grid[0].alpha * Y, grid, SOLVERS[name]())
    torch.testing.assert_close(found, PICTURES[nearest(path[1])], atol=1e-6, rtol=0)


def test_the_exact_paths_part_and_are_still_undecided_on_the_way(path: list[Tensor]) -> None:
    ends = nearest(path[1])
    assert len(set(ends.tolist())) >= 6
    assert set(LAYOUT_OF[ends].tolist()) == {0, 1, 2}
    level = Grid.from_ratios([BETWEEN, LOW])[0]
    undecided = (denoise(level.alpha * path[0], level) - PICTURES[ends]).flatten(1).norm(dim=1)
    assert float(undecided.max()) > 0.1


@pytest.mark.parametrize("name", sorted(STOCHASTIC))
def test_stochastic_solvers_end_in_pictures_as_often_as_the_world_has_them(name: str) -> None:
    count = 300
    grid = Grid.from_ratios(karras_ratios(100, 0.002, 80.0))
    z = torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    noise = []

    def listen(step: Step, z: Tensor) -> None:
        level = step.there
        if step.index == 80:  # where every sample is already about one picture
            noise.append(float((z - level.alpha * PICTURES[nearest(z / level.alpha)]).std()) / level.sigma)

    found = sample(denoise, z, grid, SOLVERS[name](), seeds=range(count), callback=listen)
    # The larger variance of DDPM is right for normal data; for pictures it is an upper bound.
    assert noise == [pytest.approx(1, abs=0.2 if name == "ddpm_large" else 0.02)]
    ends = nearest(found)
    torch.testing.assert_close(found, PICTURES[ends], atol=1e-6, rtol=0)
    shares = LAYOUT_OF[ends].bincount(minlength=3) / count
    spread = (PRIOR * (1 - PRIOR) / count).sqrt()
    assert bool(((shares - PRIOR).abs() < 4 * spread).all()), shares
    assert len(set(ends.tolist())) > 0.9 * len(PICTURES)
