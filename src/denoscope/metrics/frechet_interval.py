"""How sure a Fréchet distance is, and what it tends to with more pictures."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.stats import norm

from denoscope.metrics.frechet import (
    FeatureError,
    Moments,
    checked,
    frechet_distance,
    frechet_from_moments,
)
from denoscope.metrics.intervals import Interval, subsampled_interval

Array = NDArray[np.float64]
_ENOUGH: Final = 2
"""So many times as many features as dimensions, and the covariance can be inverted without blowing up noise."""


def frechet_interval(a: ArrayLike, b: ArrayLike, *, level: float = 0.9, repeats: int = 200, seed: int = 0) -> Interval:
    """:func:`frechet_distance` of features ``(n, d)`` and ``(m, d)`` with its interval over pictures.

    By the delta method: the distance's derivative with respect to a distribution gives each picture an influence
    (:func:`frechet_influences`), and the variance of the distance is that of the influences over their number; no
    resampling, one factorisation. With fewer than 2·d features in a set covariances can't be inverted, and halves are
    drawn ``repeats`` times (:func:`~denoscope.metrics.intervals.subsampled_interval`). Either is about the distance
    that sets of this size have in the mean, the estimate's bias at this size included.

    Raises :class:`FeatureError` as :func:`frechet_distance` does.

    >>> x = np.random.default_rng(0).normal(size=(2, 1000, 2))
    >>> str(frechet_interval(x[0], x[1] + 1))
    '2.107 (1.898 to 2.317)'
    """
    x, y = checked(a), checked(b)
    if min(len(x), len(y)) < _ENOUGH * x.shape[1]:
        return subsampled_interval(
            [x, y], lambda sets: frechet_distance(*sets), level=level, repeats=repeats, seed=seed
        )
    value = frechet_distance(x, y)
    of_a, of_b = frechet_influences(x, y)
    reach = float(norm.ppf((1 + level) / 2)) * float(np.sqrt(of_a.var() / len(x) + of_b.var() / len(y)))
    return Interval(value, value - reach, value + reach)


def frechet_influences(a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    """By how much each feature of either set pulls at the distance: ``(n,)`` and ``(m,)``, of mean zero.

    With T the optimal map between the normal distributions, ∂/∂Σa of the distance is 1 − T (Takatsu 2011), so that the
    influence of x is 2(μa − μb)·(x − μa) + (x − μa)ᵀ(1 − T)(x − μa), less its mean. Raises :class:`FeatureError` when
    a covariance has no inverse.
    """
    x, y = checked(a), checked(b)
    first, second = Moments.of(x), Moments.of(y)
    try:
        lower = np.linalg.cholesky(first.covariance)
    except np.linalg.LinAlgError as error:
        raise FeatureError("a covariance without an inverse has no influences") from error
    values, vectors = np.linalg.eigh(lower.T @ second.covariance @ lower)
    if values[0] <= 0:
        raise FeatureError("a covariance without an inverse has no influences")
    gap = first.mean - second.mean
    x, y = x - first.mean, y - second.mean
    # Tab = L⁻ᵀ·M^½·L⁻¹ and Tba, its inverse, = L·M^−½·Lᵀ, with M = LᵀΣbL = V·values·Vᵀ.
    by_a = vectors.T @ solve_triangular(lower, x.T, lower=True)
    by_b = vectors.T @ (lower.T @ y.T)
    moved_a = (np.sqrt(values)[:, None] * by_a**2).sum(0)
    moved_b = (by_b**2 / np.sqrt(values)[:, None]).sum(0)
    of_a = 2 * x @ gap + (x**2).sum(1) - moved_a
    of_b = -2 * y @ gap + (y**2).sum(1) - moved_b
    return of_a - of_a.mean(), of_b - of_b.mean()


def frechet_at_infinity(
    a: ArrayLike, b: ArrayLike | Moments, *, points: int = 15, least: int | None = None, seed: int = 0
) -> float:
    """The distance extrapolated to sets without end, FID∞ (Chong & Forsyth 2020): linear in 1/n, at 1/n = 0.

    ``points`` sizes from ``least`` (a tenth of the features, but more than d) to all features of ``a`` are drawn, and
    of ``b``, if those are features, as large a part; given moments, the reference stays as it is, and its own bias
    stays too. Raises :class:`FeatureError` where the features don't suffice for a line.

    >>> x, y = np.random.default_rng(0).normal(size=(2, 2000, 20))
    >>> bool(frechet_distance(x, y) > 0.1), abs(frechet_at_infinity(x, y)) < 0.05
    (True, True)
    """
    x = checked(a)
    y = None if isinstance(b, Moments) else checked(b)
    smallest = max(len(x) // 10, x.shape[1] + 1) if least is None else least
    if smallest < 2 or len(x) < 2 * smallest or points < 2:
        raise FeatureError(
            f"{len(x)} features of {x.shape[1]} dimensions are too few to extrapolate; {2 * smallest} are needed"
        )
    rng = np.random.default_rng(seed)
    sizes = np.unique(np.linspace(smallest, len(x), points).astype(int))
    found = []
    for size in sizes:
        ours = Moments.of(x[rng.permutation(len(x))[:size]])
        if y is None:
            assert isinstance(b, Moments)
            theirs = b
        else:
            theirs = Moments.of(y[rng.permutation(len(y))[: max(2, round(size * len(y) / len(x)))]])
        found.append(frechet_from_moments(ours, theirs))
    _, intercept = np.polyfit(1 / sizes, found, 1)
    return float(intercept)
