"""Estimators without a network: canonical correlations, and nearest neighbours."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma

from denoscope.information.errors import InformationError

Array = NDArray[np.float64]


def cca_information(x: NDArray[np.floating], y: NDArray[np.floating]) -> float:
    """Mutual information of jointly Gaussian x ``(N, d)`` and y ``(N, e)``: −½ Σ log(1 − ρ²), nats.

    ρ are canonical correlations (Brillinger 2004). The mean of what a sample's log determinants are off by is known for
    Gaussians and taken off (Wishart: E log|S| = log|Σ| + Σᵢ ψ((n − i + 1)/2) + p·log(2/n)). At least 0. Right for
    Gaussians alone.

    Raises :class:`InformationError` for sizes that differ, or fewer than d + e + 2 samples.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(5000, 1))
    >>> y = x + rng.normal(size=(5000, 1))  # ρ² = ½, so ½·log 2
    >>> abs(cca_information(x, y) - 0.3466) < 0.03
    True
    """
    x, y = _pair(x, y)
    count, width, dims = len(x), x.shape[1], x.shape[1] + y.shape[1]
    if count < dims + 2:
        raise InformationError(f"{count} samples are too few for canonical correlations of {dims} dimensions")
    both = _scaled(np.concatenate([x, y], 1))
    # A share of a millionth keeps columns that say the same from making the determinant zero.
    covariance = both.T @ both / count + 1e-6 * np.eye(dims)

    def log_determinant(part: Array) -> float:
        drift = digamma((count - 1 - np.arange(len(part))) / 2).sum() + len(part) * np.log(2 / (count - 1))
        return float(np.linalg.slogdet(part)[1] - drift)

    one, other = covariance[:width, :width], covariance[width:, width:]
    return max(0.0, (log_determinant(one) + log_determinant(other) - log_determinant(covariance)) / 2)


def ksg_information(x: NDArray[np.floating], y: NDArray[np.floating], neighbours: int = 3) -> float:
    """Mutual information of continuous x and y by nearest neighbours (Kraskov, Stögbauer & Grassberger 2004, eq. 8).

    ψ(k) + ψ(N) − ⟨ψ(n_x + 1) + ψ(n_y + 1)⟩ in nats, with the maximum norm; at least 0. Reliable to about five
    dimensions: reduce wider features first. A little noise, from a generator of its own, parts equal samples.

    Raises :class:`InformationError` for sizes that differ, or no more samples than ``neighbours``.
    """
    x, y = _pair(x, y)
    count = len(x)
    if count <= neighbours:
        raise InformationError(f"{count} samples are too few for {neighbours} neighbours")
    rng = np.random.default_rng(0)
    x, y = (_scaled(side) + 1e-10 * rng.normal(size=side.shape) for side in (x, y))
    reach = _reach(np.concatenate([x, y], 1), neighbours)
    within = np.stack([_neighbours(side, np.nextafter(reach, 0)) for side in (x, y)])
    found = digamma(neighbours) + digamma(count) - digamma(within).sum(0).mean()
    return max(0.0, float(found))


def ross_information(x: NDArray[np.floating], labels: NDArray[np.integer], neighbours: int = 3) -> float:
    """Mutual information of continuous x and labels by nearest neighbours (Ross 2014, eq. 3), nats, in [0, H(Y)].

    Raises :class:`InformationError` for a value with no more samples than ``neighbours``.
    """
    x, _ = _pair(x, labels[:, None].astype(np.float64))
    counts = np.bincount(labels)
    counts_of = counts[labels]
    if counts[counts > 0].min() <= neighbours:
        raise InformationError(f"every value needs more than {neighbours} samples")
    held = _scaled(x) + 1e-10 * np.random.default_rng(0).normal(size=x.shape)
    reach = np.empty(len(held))
    for value in np.flatnonzero(counts):
        reach[labels == value] = _reach(held[labels == value], neighbours)
    near = _neighbours(held, np.nextafter(reach, 0))
    found = digamma(len(held)) - digamma(counts_of).mean() + digamma(neighbours) - digamma(near).mean()
    shares = counts[counts > 0] / len(held)
    return float(np.clip(found, 0, -(shares * np.log(shares)).sum()))


def _reach(rows: Array, neighbours: int) -> Array:
    """How far each row's ``neighbours``-th neighbour is."""
    found: Array = np.asarray(cKDTree(rows).query(rows, neighbours + 1, p=np.inf)[0])
    return found[:, -1]


def _neighbours(side: Array, reach: Array) -> Array:
    """Samples nearer than ``reach``, each itself among them."""
    found: Array = np.asarray(cKDTree(side).query_ball_point(side, reach, p=np.inf, return_length=True), np.float64)
    return found


def _scaled(side: Array) -> Array:
    scaled: Array = (side - side.mean(0)) / side.std(0).clip(1e-12)
    return scaled


def _pair(x: NDArray[np.floating], y: NDArray[np.floating]) -> tuple[Array, Array]:
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(x) < 4:
        raise InformationError(f"x and y must be (N, d) and (N, e) with N of four or more, not {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InformationError("features must be finite numbers: a layer may have overflowed, try float32")
    return x.astype(np.float64), y.astype(np.float64)
