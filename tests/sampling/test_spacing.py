"""Where steps lie: every number of steps, against exact rational arithmetic; and the published lists."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from denoscope.sampling.spacing import (
    ALIGN_YOUR_STEPS,
    Spacing,
    align_your_steps_ratios,
    exponential_ratios,
    karras_ratios,
    ratio_range,
    spaced_timesteps,
)
from denoscope.schedules import NoiseSchedule

T = 1000


def expected(steps: int, spacing: Spacing) -> list[int]:
    """The same rules in rational numbers, one timestep at a time."""
    match spacing:
        case "leading":
            return [k * (T // steps) for k in reversed(range(steps))]
        case "trailing":
            return [round(Fraction(T * k, steps)) - 1 for k in range(steps, 0, -1)]
        case "linspace":
            if steps == 1:
                return [T - 1]
            return [round(Fraction((T - 1) * k, steps - 1)) for k in reversed(range(steps))]


@pytest.mark.parametrize("spacing", ["leading", "linspace", "trailing"])
def test_every_number_of_steps(spacing: Spacing) -> None:
    for steps in range(1, T + 1):
        found = spaced_timesteps(T, steps, spacing)
        assert found.tolist() == expected(steps, spacing)
        assert len(found) == steps
        assert bool((found.diff() < 0).all())
        assert int(found[-1]) >= 0
        assert int(found[0]) <= T - 1
        if spacing != "leading":
            assert int(found[0]) == T - 1
        if spacing == "linspace" and steps > 1:
            assert int(found[-1]) == 0


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_an_offset_never_leaves_the_schedule(offset: int) -> None:
    for steps in range(1, T + 1):
        found = spaced_timesteps(T, steps, "leading", offset)
        assert len(found) == steps
        assert int(found[0]) <= T - 1
        room = T - 1 - (steps - 1) * (T // steps)
        assert int(found[-1]) == min(offset, room)


@pytest.mark.parametrize("steps", [61, 103, 121])
def test_trailing_where_floating_point_fails(steps: int) -> None:
    floating = np.round(np.arange(T, 0, -T / steps)) - 1
    assert len(floating) == steps + 1  # the fault that this guards against
    assert len(spaced_timesteps(T, steps, "trailing")) == steps


def test_published_lists() -> None:
    assert spaced_timesteps(T, 5, "leading", 1).tolist() == [801, 601, 401, 201, 1]
    for family, published in ALIGN_YOUR_STEPS.items():
        found = align_your_steps_ratios(10, family)
        assert found[:-1].tolist() == pytest.approx(published[:-1])
        assert float(found[-1]) == 0
    # Twenty steps pass through the ten published ones.
    assert align_your_steps_ratios(20)[:-1:2].tolist() == pytest.approx(ALIGN_YOUR_STEPS["sd15"][:-1])


def test_ratios_against_their_formulas() -> None:
    steps, least, greatest, rho = 12, 0.002, 80.0, 7.0
    wanted = [
        (greatest ** (1 / rho) + i / (steps - 1) * (least ** (1 / rho) - greatest ** (1 / rho))) ** rho
        for i in range(steps)
    ]
    assert karras_ratios(steps, least, greatest).tolist() == pytest.approx([*wanted, 0.0], rel=1e-12)
    assert exponential_ratios(steps, least, greatest).tolist() == pytest.approx(
        [*np.geomspace(greatest, least, steps), 0.0], rel=1e-12
    )
    assert ratio_range(NoiseSchedule.linear()) == pytest.approx((0.0100005, 157.407), rel=1e-5)


@pytest.mark.parametrize("steps", [0, T + 1])
def test_impossible_numbers_of_steps_are_refused(steps: int) -> None:
    with pytest.raises(ValueError, match="1 to 1000 steps"):
        spaced_timesteps(T, steps)


def test_what_is_no_list_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown spacing 'middle'"):
        spaced_timesteps(T, 10, "middle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        spaced_timesteps(T, 10, "leading", -1)
    with pytest.raises(ValueError, match="positive and in order"):
        karras_ratios(5, 0.0, 80.0)
    with pytest.raises(ValueError, match="sdxl"):
        align_your_steps_ratios(10, "flux")
    with pytest.raises(ValueError, match="one step"):
        exponential_ratios(0, 0.1, 1.0)


def test_lists_are_float64() -> None:
    assert karras_ratios(3, 0.1, 1.0).dtype == torch.float64
