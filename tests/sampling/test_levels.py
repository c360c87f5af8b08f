"""Levels and grids."""

import math

import pytest
import torch

from denoscope.sampling import Grid, Level
from denoscope.schedules import Family, NoiseSchedule

FAMILIES: tuple[Family, ...] = ("vp", "flow", "ve")


def test_one_level_in_three_families() -> None:
    ratios = torch.tensor([20.0, 1.0, 0.1, 0.0])
    vp, flow, ve = (Grid.from_ratios(ratios, family) for family in FAMILIES)
    torch.testing.assert_close(vp.alpha**2 + vp.sigma**2, torch.ones(4).double())
    torch.testing.assert_close(flow.alpha + flow.sigma, torch.ones(4).double())
    assert torch.equal(ve.alpha, torch.ones(4).double())
    for grid in (vp, flow, ve):
        assert [level.ratio for level in grid] == pytest.approx(ratios.tolist())


def test_pure_noise() -> None:
    for family in FAMILIES[:2]:
        assert Grid.from_ratios([math.inf, 1.0], family)[0] == Level(0.0, 1.0)
    with pytest.raises(ValueError, match="variance-exploding"):
        Grid.from_ratios([math.inf, 1.0], "ve")
    assert Level(0.0, 1.0).logsnr == -math.inf
    assert Level(1.0, 0.0).logsnr == math.inf
    assert Level(0.0, 1.0).ratio == math.inf


def test_flow_with_shift_is_a_list_of_diffusers() -> None:
    from diffusers import FlowMatchEulerDiscreteScheduler

    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    # Their own list starts at the shifted end of a shifted range; give them the plain one.
    scheduler.set_timesteps(sigmas=torch.linspace(1, 0, 11)[:-1].tolist())
    torch.testing.assert_close(Grid.flow(10, shift=3.0).sigma.float(), scheduler.sigmas, atol=1e-6, rtol=1e-6)


def test_a_schedule_s_own_levels_and_where_it_ends() -> None:
    schedule = NoiseSchedule.linear()
    timesteps = torch.tensor([900, 100])
    assert Grid.from_timesteps(schedule, timesteps)[2] == Level(1.0, 0.0)
    left = Grid.from_timesteps(schedule, timesteps, "first")
    assert left[2] == Level(float(schedule.alpha[0]), float(schedule.sigma[0]))
    assert len(Grid.from_timesteps(schedule, torch.tensor([900, 100, 0]), "first")) == 2


@pytest.mark.parametrize(
    ("alpha", "sigma", "message"),
    [
        ([0.5, 0.5], [0.5, 0.5], "fall at every step"),
        ([0.9, 0.1], [0.1, 0.9], "fall at every step"),
        ([0.5], [0.5], "two levels"),
        ([0.5, 0.6], [0.5], "two levels"),
        ([-0.5, 0.6], [0.5, 0.1], "negative"),
        ([0.0, 0.6], [0.0, 0.1], "both zero"),
        ([math.nan, 0.6], [0.5, 0.1], "negative"),
    ],
)
def test_refuses_what_is_no_grid(alpha: list[float], sigma: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grid(torch.tensor(alpha), torch.tensor(sigma))


def test_levels_are_counted_from_the_noisy_end() -> None:
    grid = Grid.from_ratios([2.0, 1.0, 0.0])
    assert len(grid) == 2
    with pytest.raises(IndexError, match="levels 0 to 2"):
        grid[3]
    with pytest.raises(ValueError, match="shift"):
        Grid.flow(3, shift=0.0)
