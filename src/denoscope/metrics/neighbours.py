"""What lies near what: precision, recall, density, coverage, and copies of the training set."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from denoscope.metrics.frechet import FeatureError, checked

Array = NDArray[np.float64]
_BLOCK: Final = 1 << 22
"""So many squared distances are held at once: 32 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Manifolds:
    """Of each feature, whether and how often it lies among the other set's neighbourhoods.

    ``fake_inside`` ``(m,)`` and ``real_inside`` ``(n,)``: within the ball of some feature of the other set
    (Kynkäänniemi et al. 2019, ``≤``). ``balls`` ``(m,)``: in how many real balls a fake lies (``<``). ``covered``
    ``(n,)``: whether a real ball holds a fake (``<``). ``k`` is the neighbour that a ball reaches to.
    """

    k: int
    fake_inside: NDArray[np.bool_]
    real_inside: NDArray[np.bool_]
    balls: NDArray[np.int64]
    covered: NDArray[np.bool_]

    def shares(self) -> dict[str, float]:
        """``precision``, ``recall``, ``density`` and ``coverage``."""
        return {
            "precision": float(self.fake_inside.mean()),
            "recall": float(self.real_inside.mean()),
            "density": float(self.balls.mean()) / self.k,
            "coverage": float(self.covered.mean()),
        }


def prdc(real: ArrayLike, fake: ArrayLike, nearest_k: int = 5) -> dict[str, float]:
    """Precision, recall, density and coverage of features ``(n, d)`` and ``(m, d)`` (Naeem et al. 2020).

    A feature's ball reaches to its ``nearest_k``-th neighbour in its own set. Precision: fakes in a real ball; recall:
    reals in a fake ball; density: real balls that a fake lies in, over k; coverage: real balls that hold a fake. Equal
    laws have a density of 1, and a coverage of :func:`expected_coverage`. All but density lie in [0, 1].

    Distances are held in blocks of 32 MiB. Raises :class:`FeatureError` for features of other widths, not more than
    ``nearest_k`` of a set, values that are not finite, or a set whose features are all the same, which has no balls.

    >>> grid = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> prdc(grid, grid + 0.25, nearest_k=1)
    {'precision': 1.0, 'recall': 1.0, 'density': 1.75, 'coverage': 1.0}
    """
    return manifolds(real, fake, nearest_k).shares()


def manifolds(real: ArrayLike, fake: ArrayLike, nearest_k: int = 5) -> Manifolds:
    """The same feature by feature; see :func:`prdc`."""
    x, y = checked(real), checked(fake)
    if x.shape[1] != y.shape[1]:
        raise FeatureError(f"features of {x.shape[1]} and {y.shape[1]} dimensions can't be compared")
    of_x, of_y = radii(x, nearest_k), radii(y, nearest_k)
    for name, own in (("real", of_x), ("generated", of_y)):
        if not own.any():
            raise FeatureError(f"the {name} features are the same {nearest_k} times over: they have no neighbourhoods")
    inside_y, balls = np.zeros(len(y), bool), np.zeros(len(y), np.int64)
    inside_x, covered = np.zeros(len(x), bool), np.zeros(len(x), bool)
    for start, gaps in squared_distances(x, y):
        rows = slice(start, start + len(gaps))
        radius = of_x[rows, None]
        inside_y |= (gaps <= radius).any(0)
        within = gaps < radius
        balls += within.sum(0)
        covered[rows] = within.any(1)
        inside_x[rows] = (gaps <= of_y).any(1)
    return Manifolds(nearest_k, inside_y, inside_x, balls, covered)


def radii(features: ArrayLike, nearest_k: int) -> Array:
    """The squared distance of each feature to its ``nearest_k``-th neighbour among the others, ``(n,)``.

    Raises :class:`FeatureError` for not more than ``nearest_k`` features.

    >>> radii([[0.0], [1.0], [3.0]], 1)
    array([1., 1., 4.])
    """
    x = checked(features)
    if not 0 < nearest_k < len(x):
        raise FeatureError(
            f"{len(x)} features have no neighbour number {nearest_k}; more pictures or a smaller k are needed"
        )
    found = np.empty(len(x))
    for start, gaps in squared_distances(x, x):
        rows = np.arange(len(gaps))
        gaps[rows, start + rows] = -1.0  # itself comes first, also among copies of it
        found[start : start + len(gaps)] = np.partition(gaps, nearest_k, axis=1)[:, nearest_k]
    return found


def squared_distances(x: Array, y: Array) -> Iterator[tuple[int, Array]]:
    """Blocks of rows of ‖xᵢ − yⱼ‖² with the number of their first row; each at least 0.

    >>> [(start, gaps.tolist()) for start, gaps in squared_distances(np.array([[0.0], [3.0]]), np.array([[1.0]]))]
    [(0, [[1.0], [4.0]])]
    """
    # Distances don't change with the origin, but rounding does: it is the middle of one set.
    origin = y.mean(0)
    x, y = x - origin, y - origin
    lengths = np.einsum("md,md->m", y, y)
    size = max(1, _BLOCK // len(y))
    for start in range(0, len(x), size):
        rows = x[start : start + size]
        gaps = rows @ y.T
        gaps *= -2
        gaps += np.einsum("nd,nd->n", rows, rows)[:, None]
        gaps += lengths
        yield start, np.maximum(gaps, 0, out=gaps)


def nearest(queries: ArrayLike, among: ArrayLike, k: int = 1) -> tuple[NDArray[np.int64], Array]:
    """Indices and distances ``(n, k)`` of the nearest features ``among`` ``(m, d)`` to each of ``queries`` ``(n, d)``.

    Nearest first. Raises :class:`FeatureError` for other widths or fewer than k features.

    >>> nearest([[0.0], [2.0]], [[5.0], [1.5]])
    (array([[1],
           [1]]), array([[1.5],
           [0.5]]))
    """
    x, y = checked(queries, 1), checked(among, 1)
    if x.shape[1] != y.shape[1] or not 0 < k <= len(y):
        raise FeatureError(f"no {k} neighbours of {x.shape[1]} dimensions among {len(y)} features of {y.shape[1]}")
    indices = np.empty((len(x), k), np.int64)
    distances = np.empty((len(x), k))
    for start, gaps in squared_distances(x, y):
        rows = slice(start, start + len(gaps))
        chosen = np.argpartition(gaps, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(gaps, chosen, 1)
        order = values.argsort(1, kind="stable")
        indices[rows] = np.take_along_axis(chosen, order, 1)
        distances[rows] = np.sqrt(np.take_along_axis(values, order, 1))
    return indices, distances


def copied(fake: ArrayLike, training: ArrayLike) -> NDArray[np.bool_]:
    """Which fakes lie nearer to a training picture than that one's own nearest neighbour does, ``(m,)``.

    One minus their share is authenticity (Alaa et al. 2022). A model that draws from the law of the training set itself
    has about half of its pictures so: read it beside the same of held-out pictures.

    >>> copied([[0.1], [1.6]], [[0.0], [1.0], [3.0]])
    array([ True,  True])
    >>> copied([[2.1]], [[0.0], [1.0], [3.0]])
    array([ True])
    >>> copied([[1.9]], [[0.0], [0.5], [1.0]])
    array([False])
    """
    y = checked(training)
    own = radii(y, 1)
    found, distances = nearest(fake, y)
    return np.asarray(distances[:, 0] ** 2 < own[found[:, 0]])


def expected_coverage(n: int, m: int, nearest_k: int = 5) -> float:
    """Coverage of ``n`` reals by ``m`` fakes of the same continuous law: 1 − ∏ⱼ₌₁ᵏ (n − j)/(n + m − j).

    The nearest k of a real's n + m − 1 neighbours are then all real with that chance (Naeem et al. 2020, lemma 2).

    >>> round(expected_coverage(10_000, 10_000), 5)
    0.96877
    """
    j = np.arange(1, nearest_k + 1)
    return float(1 - np.prod((n - j) / (n + m - j)))
