"""The Fréchet distance between normal distributions fitted to two sets of features (Heusel et al. 2017)."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svdvals

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
    x, y = checked(a), checked(b)
    if x.shape[1] != y.shape[1]:
        raise FeatureError(f"features of {x.shape[1]} and {y.shape[1]} dimensions can't be compared")
    if max(len(x), len(y)) >= x.shape[1]:
        return frechet_from_moments(Moments.of(x), Moments.of(y))
    # Few features of many dimensions: centred, they are roots of their own covariances.
    gap = x.mean(0) - y.mean(0)
    x, y = (each - each.mean(0) for each in (x, y))
    n, m = len(x) - 1, len(y) - 1
    overlap = svdvals(x @ y.T, check_finite=False).sum() / np.sqrt(n * m)
    return float(gap @ gap + (x**2).sum() / n + (y**2).sum() / m - 2 * overlap)


def frechet_from_moments(a: Moments, b: Moments) -> float:
    """The same from moments.

    With covariances of full rank, tr(Σa·Σb)^½ is the sum of the roots of the eigenvalues of LᵀΣbL, L being a Cholesky
    factor of Σa: twenty times faster than a root of the product. Otherwise it is the sum of the singular values of
    RᵃᵀRᵇ, R being roots of the covariances without their empty directions: squaring singular values, or adding a small
    multiple of the identity, would cost half the digits there. Raises :class:`FeatureError` when the widths differ.
    """
    if a.mean.shape != b.mean.shape:
        raise FeatureError(f"features of {len(a.mean)} and {len(b.mean)} dimensions can't be compared")
    gap = a.mean - b.mean
    return float(gap @ gap + np.trace(a.covariance) + np.trace(b.covariance) - 2 * _overlap(a, b))


def checked(features: ArrayLike, least: int = 2) -> Array:
    """Features as float64 ``(n, d)``.

    Raises :class:`FeatureError` when they are no such table, fewer than ``least``, or not finite.
    """
    x = np.asarray(features, np.float64)
    if x.ndim != 2:
        raise FeatureError(f"features must be (n, d), not of shape {x.shape}")
    if len(x) < least:
        raise FeatureError(f"at least {least} feature{'s' * (least > 1)} are needed, not {len(x)}")
    if not np.isfinite(x).all():
        raise FeatureError(f"feature {int(np.argwhere(~np.isfinite(x).all(1))[0, 0])} is not finite")
    return x


def _overlap(a: Moments, b: Moments) -> float:
    """tr(Σa·Σb)^½."""
    width = len(a.mean)
    if min(a.n, b.n) > width:
        try:
            lower = np.linalg.cholesky(a.covariance)
        except np.linalg.LinAlgError:
            pass
        else:
            values = np.linalg.eigvalsh(lower.T @ b.covariance @ lower)
            # Eigenvalues lost in rounding mean a covariance that is singular in all but name.
            if values[0] > width * np.finfo(np.float64).eps * values[-1]:
                return float(np.sqrt(values).sum())
    return float(svdvals(_root(a.covariance).T @ _root(b.covariance), check_finite=False).sum())


def _root(covariance: Array) -> Array:
    """R ``(d, rank)`` with R·Rᵀ = covariance."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))
