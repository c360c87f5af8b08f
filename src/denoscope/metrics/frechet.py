"""The Fréchet distance between normal distributions fitted to two sets of features (Heusel et al. 2017)."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class FeatureError(ValueError):
    """Features that can't be compared; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Number, mean ``(d,)`` and covariance ``(d, d)`` (by n − 1) of features, float64; sets of them can be merged.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(100, 3))
    >>> parts = Moments.of(x[:30]).merged(Moments.of(x[30:]))
    >>> bool(np.allclose(parts.covariance, np.cov(x.T)))
    True
    """

    n: int
    mean: Array
    covariance: Array

    @classmethod
    def of(cls, features: ArrayLike) -> Self:
        """Of features ``(n, d)``.

        Raises :class:`FeatureError` for fewer than two, and for values that are not finite.
        """
        x = checked(features)
        mean = x.mean(0)
        centred = x - mean
        return cls(len(x), mean, centred.T @ centred / (len(x) - 1))

    def merged(self, other: "Moments") -> "Moments":
        """Of both sets together (Chan et al. 1983)."""
        n = self.n + other.n
        gap = other.mean - self.mean
        scatter = (self.n - 1) * self.covariance + (other.n - 1) * other.covariance
        scatter = scatter + np.outer(gap, gap) * (self.n * other.n / n)
        return Moments(n, self.mean + gap * (other.n / n), scatter / (n - 1))


def frechet_distance(a: ArrayLike, b: ArrayLike) -> float:
    """‖μa − μb‖² + tr(Σa + Σb − 2·(Σa·Σb)^½) of features ``(n, d)`` and ``(m, d)``; not rooted, as FID is not.

    Covariances are by n − 1. The estimate is biased upwards, by an amount that shrinks as 1/n: compare sets of the same
    size. Raises :class:`FeatureError` when the widths differ, there are fewer than two, or values are not finite.

    >>> x = np.random.default_rng(0).normal(size=(500, 4))
    >>> round(frechet_distance(x, x + 2), 6)
    16.0
    """
    return frechet_from_moments(Moments.of(a), Moments.of(b))


def frechet_from_moments(a: Moments, b: Moments) -> float:
    """The same from moments. tr(Σa·Σb)^½ is the sum of the singular values of Σa^½·Σb^½: no root of a matrix product,
    which is not symmetric and loses half the digits when a covariance is singular.
    """
    if a.mean.shape != b.mean.shape:
        raise FeatureError(f"features of {len(a.mean)} and {len(b.mean)} dimensions can't be compared")
    cross = np.linalg.svd(_root(a.covariance) @ _root(b.covariance), compute_uv=False).sum()
    gap = a.mean - b.mean
    return float(gap @ gap + np.trace(a.covariance) + np.trace(b.covariance) - 2 * cross)


def checked(features: ArrayLike) -> Array:
    """Features as float64 ``(n, d)``.

    Raises :class:`FeatureError` when they are no such table, fewer than two, or not finite.
    """
    x = np.asarray(features, np.float64)
    if x.ndim != 2:
        raise FeatureError(f"features must be (n, d), not of shape {x.shape}")
    if len(x) < 2:
        raise FeatureError(f"at least two features are needed for a covariance, not {len(x)}")
    if not np.isfinite(x).all():
        raise FeatureError(f"feature {int(np.argwhere(~np.isfinite(x).all(1))[0, 0])} is not finite")
    return x


def _root(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(values.clip(0))) @ vectors.T)
