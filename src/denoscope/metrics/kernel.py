"""Kernel distances between sets of features: KID (Bińkowski et al. 2018) and CMMD (Jayasumana et al. 2024)."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from denoscope.metrics.frechet import FeatureError, checked
from denoscope.metrics.intervals import Interval

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]
"""Of ``(n, d)`` and ``(m, d)`` to ``(n, m)``."""

_BLOCK: Final = 1 << 23
"""So many numbers of a kernel matrix are held at once: 64 MiB."""


def cubic(x: Array, y: Array) -> Array:
    """(x·y/d + 1)³, the kernel of KID.

    >>> cubic(np.ones((1, 2)), np.ones((1, 2)))
    array([[8.]])
    """
    return np.asarray((x @ y.T / x.shape[1] + 1) ** 3)


def kernel_distance(a: ArrayLike, b: ArrayLike, kernel: Kernel = cubic) -> float:
    """The unbiased squared MMD of features ``(n, d)`` and ``(m, d)`` over all pairs; below 0 by chance.

    Held in blocks of 64 MiB. Raises :class:`FeatureError` when the widths differ, there are fewer than two features, or
    values are not finite.

    >>> x = np.random.default_rng(0).normal(size=(2, 500, 8))
    >>> bool(abs(kernel_distance(x[0], x[1])) < 0.02 < kernel_distance(x[0], x[1] + 1))
    True
    """
    x, y = _pair(a, b)
    return float(_Sums(x, y, kernel).value)


def kernel_interval(a: ArrayLike, b: ArrayLike, kernel: Kernel = cubic, *, level: float = 0.9) -> Interval:
    """:func:`kernel_distance` with its interval over pictures, from the same sums.

    The variance of the U-statistic has a part of first order, of what each picture contributes over the other set, and
    one of second order that is left when both sets are of one law (Serfling 1980, 5.2); both are estimated without bias
    from row sums and squares of the kernel.

    >>> x = np.random.default_rng(0).normal(size=(2, 500, 8))
    >>> low_to_high = kernel_interval(x[0], x[1])
    >>> low_to_high.low < 0 < low_to_high.high
    True
    """
    x, y = _pair(a, b)
    sums = _Sums(x, y, kernel)
    reach = float(norm.ppf((1 + level) / 2)) * float(np.sqrt(sums.variance))
    return Interval(sums.value, sums.value - reach, sums.value + reach)


def kernel_subsets(
    a: ArrayLike, b: ArrayLike, *, subsets: int = 100, size: int = 1000, seed: int = 2020, kernel: Kernel = cubic
) -> Array:
    """KID as torch-fidelity has it: the unbiased squared MMD of ``subsets`` random pairs of ``size`` features each.

    Each is drawn without replacement from a ``RandomState(seed)``, first of ``a``, then of ``b``. The mean is what is
    reported as KID and the standard deviation (ddof 0) as its error, though that is the spread of one subset, not of
    the mean: for an interval take :func:`kernel_interval`. Returns ``(subsets,)``.

    Raises :class:`FeatureError` as :func:`kernel_distance` does, and for fewer than ``size`` features.
    """
    x, y = _pair(a, b)
    if min(len(x), len(y)) < size:
        raise FeatureError(f"subsets of {size} can't be drawn from {min(len(x), len(y))} features; give a smaller size")
    rng = np.random.RandomState(seed)
    found = []
    for _ in range(subsets):
        one = x[rng.choice(len(x), size, replace=False)]
        other = y[rng.choice(len(y), size, replace=False)]
        found.append(_Sums(one, other, kernel).value)
    return np.array(found)


def gaussian_mmd(a: ArrayLike, b: ArrayLike, *, sigma: float = 10.0, scale: float = 1000.0) -> float:
    """CMMD: ``scale`` times the squared MMD with exp(−‖x − y‖²/2σ²), pairs of a feature with itself included.

    CMMD takes CLIP features of length 1, and that V-statistic, biased upwards. Raises :class:`FeatureError` as
    :func:`kernel_distance` does.

    >>> x, y = np.eye(2)[[0, 0]], np.eye(2)[[1, 1]]
    >>> round(gaussian_mmd(x, y), 5), round(gaussian_mmd(x, -x), 5)
    (19.90033, 39.60265)
    """
    x, y = _pair(a, b)

    def mean(one: Array, other: Array) -> float:
        total = 0.0
        for rows in _blocks(one, len(other)):
            gaps = (rows**2).sum(1)[:, None] + (other**2).sum(1) - 2 * rows @ other.T
            total += float(np.exp(-gaps.clip(0) / (2 * sigma**2)).sum())
        return total / (len(one) * len(other))

    return scale * (mean(x, x) + mean(y, y) - 2 * mean(x, y))


class _Sums:
    """Row sums of the three kernel matrices, without what a feature has with itself, and their sums of squares."""

    def __init__(self, x: Array, y: Array, kernel: Kernel) -> None:
        n, m = len(x), len(y)
        self.n, self.m = n, m
        self.xx, self.yy = np.zeros(n), np.zeros(m)
        self.xy, self.yx = np.zeros(n), np.zeros(m)
        self.squares = dict.fromkeys(("xx", "yy", "xy"), 0.0)
        for own, rows_sums, name in ((x, self.xx, "xx"), (y, self.yy, "yy")):
            start = 0
            for rows in _blocks(own, len(own)):
                values = kernel(rows, own)
                values[np.arange(len(rows)), np.arange(start, start + len(rows))] = 0
                rows_sums[start : start + len(rows)] = values.sum(1)
                self.squares[name] += float(np.vdot(values, values))
                start += len(rows)
        start = 0
        for rows in _blocks(x, m):
            values = kernel(rows, y)
            self.xy[start : start + len(rows)] = values.sum(1)
            self.yx += values.sum(0)
            self.squares["xy"] += float(np.vdot(values, values))
            start += len(rows)

    @property
    def value(self) -> float:
        n, m = self.n, self.m
        return float(self.xx.sum() / (n * (n - 1)) + self.yy.sum() / (m * (m - 1)) - 2 * self.xy.sum() / (n * m))

    @property
    def variance(self) -> float:
        n, m = self.n, self.m
        rows = {"xx": self.xx / (n - 1), "yy": self.yy / (m - 1), "xy": self.xy / m, "yx": self.yx / n}
        # Mean squares of the kernels that are left when what rows and columns have in common is taken out.
        xx = self.squares["xx"] / (n * (n - 1)) - 2 * float((rows["xx"] ** 2).mean()) + float(rows["xx"].mean()) ** 2
        yy = self.squares["yy"] / (m * (m - 1)) - 2 * float((rows["yy"] ** 2).mean()) + float(rows["yy"].mean()) ** 2
        both = float((rows["xy"] ** 2).mean() + (rows["yx"] ** 2).mean())
        xy = self.squares["xy"] / (n * m) - both + float(rows["xy"].mean()) ** 2
        xx, yy, xy = max(xx, 0.0), max(yy, 0.0), max(xy, 0.0)
        # A row's mean has noise of its own beside what the feature contributes.
        of_x = float((rows["xx"] - rows["xy"]).var(ddof=1)) - xx / (n - 1) - xy / m
        of_y = float((rows["yy"] - rows["yx"]).var(ddof=1)) - yy / (m - 1) - xy / n
        first = 4 * max(of_x, 0.0) / n + 4 * max(of_y, 0.0) / m
        second = 2 * xx / (n * (n - 1)) + 2 * yy / (m * (m - 1)) + 4 * xy / (n * m)
        return first + second


def _blocks(x: Array, columns: int) -> list[Array]:
    size = max(1, _BLOCK // columns)
    return [x[start : start + size] for start in range(0, len(x), size)]


def _pair(a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    x, y = checked(a), checked(b)
    if x.shape[1] != y.shape[1]:
        raise FeatureError(f"features of {x.shape[1]} and {y.shape[1]} dimensions can't be compared")
    return x, y
