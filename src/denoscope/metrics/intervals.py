"""Intervals for statistics of sets of features."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Statistic = Callable[[Sequence[Array]], float]
"""A number from several sets of features ``(n_i, d)``."""


class Interval(NamedTuple):
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """``value (low to high)``."""
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


def subsampled_interval(
    sets: Sequence[Array], statistic: Statistic, *, level: float = 0.9, repeats: int = 200, seed: int = 0
) -> Interval:
    """An interval of ``statistic(sets)`` from halves of the sets (delete-half jackknife, Shao & Wu 1989).

    Each repeat takes a random half of each set, without replacement: the plain bootstrap doubles pictures, which
    lowers the rank of a covariance and biases distances between distributions upwards. A half's statistic is biased
    too, so only its spread counts: with half of n, the variance about its own mean is that of the whole set. The
    interval is value ± z·spread, so it is about the statistic at this n, with this n's bias in it.

    Raises :class:`ValueError` when a set has fewer than four rows.

    >>> x = np.random.default_rng(0).normal(size=(400, 1))
    >>> interval = subsampled_interval([x], lambda sets: float(sets[0].mean()))
    >>> round((interval.high - interval.low) / (2 * 1.645 * float(x.std()) / 20), 1)
    1.0
    """
    return _interval(statistic(sets), _halves(sets, statistic, repeats, seed), level)


def difference_interval(
    first: Sequence[Array],
    second: Sequence[Array],
    statistic: Statistic,
    *,
    level: float = 0.9,
    repeats: int = 200,
    seed: int = 0,
) -> Interval:
    """An interval of ``statistic(first) − statistic(second)``, paired: the same rows of both are taken each time.

    Sets must agree in length, pair by pair. Raises :class:`ValueError` when they don't.
    """
    if [len(one) for one in first] != [len(other) for other in second]:
        raise ValueError("paired sets must have the same numbers of rows")
    joined = [np.concatenate([one, other], 1) for one, other in zip(first, second, strict=True)]
    widths = [one.shape[1] for one in first]

    def gap(sets: Sequence[Array]) -> float:
        ours = [both[:, :width] for both, width in zip(sets, widths, strict=True)]
        theirs = [both[:, width:] for both, width in zip(sets, widths, strict=True)]
        return statistic(ours) - statistic(theirs)

    return subsampled_interval(joined, gap, level=level, repeats=repeats, seed=seed)


def _halves(sets: Sequence[Array], statistic: Statistic, repeats: int, seed: int) -> Array:
    if min(map(len, sets)) < 4:
        raise ValueError(f"halves of {min(map(len, sets))} rows say nothing; at least four are needed")
    rng = np.random.default_rng(seed)
    return np.array(
        [statistic([rows[rng.permutation(len(rows))[: len(rows) // 2]] for rows in sets]) for _ in range(repeats)]
    )


def _interval(value: float, halves: Array, level: float) -> Interval:
    from scipy.stats import norm

    reach = float(norm.ppf((1 + level) / 2)) * float(halves.std(ddof=1))
    return Interval(value, value - reach, value + reach)
