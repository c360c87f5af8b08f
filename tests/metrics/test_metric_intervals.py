"""Intervals hold what they say, counted over many draws."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from denoscope.metrics import difference_interval, frechet_distance, subsampled_interval


def distance(sets: Sequence[NDArray[np.float64]]) -> float:
    return frechet_distance(sets[0], sets[1])


def test_coverage_of_a_frechet_distance() -> None:
    """Of the distance that sets of this size have on average: nominal .9, and 200 draws vary by .02."""
    rng = np.random.default_rng(0)
    shift = np.array([0.5, 0, 0, 0, 0, 0])

    def draw() -> list[NDArray[np.float64]]:
        return [rng.normal(size=(200, 6)), rng.normal(size=(200, 6)) * 1.2 + shift]

    expected = np.mean([distance(draw()) for _ in range(1000)])
    covered = 0
    for seed in range(200):
        interval = subsampled_interval(draw(), distance, repeats=40, seed=seed)
        covered += int(interval.low <= expected <= interval.high)
    assert 0.84 <= covered / 200 <= 0.96


def test_a_paired_difference_is_narrower_than_two_intervals() -> None:
    rng = np.random.default_rng(1)
    real, fake = rng.normal(size=(300, 4)), rng.normal(size=(300, 4))
    better, worse = fake, fake + 0.02
    gap = difference_interval([real, worse], [real, better], distance)
    alone = subsampled_interval([real, worse], distance)
    assert gap.value == pytest.approx(distance([real, worse]) - distance([real, better]))
    assert gap.high - gap.low < 0.5 * (alone.high - alone.low)
    with pytest.raises(ValueError, match="same numbers of rows"):
        difference_interval([real], [real[1:]], lambda sets: 0.0)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="at least four"):
        subsampled_interval([np.zeros((3, 1))], lambda sets: 0.0)
