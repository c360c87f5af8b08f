"""The Inception score (Salimans et al. 2016): how sure a classifier is of each picture, and how varied its answers."""

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from scipy.stats import norm

from denoscope.metrics.frechet import FeatureError, checked
from denoscope.metrics.intervals import Interval

Array = NDArray[np.float64]


def inception_score(logits: ArrayLike, *, level: float = 0.9) -> Interval:
    """exp of the mean Kullback–Leibler divergence of p(y|x) from p(y), of all pictures at once, with an interval.

    ``logits`` ``(n, classes)`` are those of the classifier, without a bias in Inception's case. From 1 (answers say
    nothing of the picture) to the number of classes (sure and evenly spread). The interval is by the delta method: the
    derivative of the mean divergence with respect to a picture is its own divergence less the mean.

    Raises :class:`FeatureError` for fewer than two rows, or values that are not finite.

    >>> str(inception_score(np.zeros((8, 10)))), round(inception_score(1e3 * np.eye(10)).value, 6)
    ('1 (1 to 1)', 10.0)
    """
    divergences = _divergences(log_softmax(checked(logits), axis=1))
    value = float(np.exp(divergences.mean()))
    reach = float(norm.ppf((1 + level) / 2)) * value * float(divergences.std() / np.sqrt(len(divergences)))
    return Interval(value, value - reach, value + reach)


def inception_score_splits(
    logits: ArrayLike, *, splits: int = 10, shuffle: bool = True, seed: int = 2020, rows: int | None = None
) -> Array:
    """The score of each of several parts, ``(splits,)``, as torch-fidelity takes them; their mean is what is reported.

    Rows are put in the order of ``RandomState(seed).permutation`` and cut at ⌊i·n/splits⌋. With ``shuffle=False`` and
    ``rows=5000`` they are ADM's: parts of so many rows, in order, the last one shorter. A part's score is lower than
    that of the whole, as fewer pictures show fewer of the classes.

    Raises :class:`FeatureError` for fewer rows than parts.

    >>> inception_score_splits(np.zeros((20, 3)))
    array([1., 1., 1., 1., 1., 1., 1., 1., 1., 1.])
    """
    values = checked(logits)
    n = len(values)
    if n < splits:
        raise FeatureError(f"{n} pictures can't be cut into {splits} parts")
    if shuffle:
        values = values[np.random.RandomState(seed).permutation(n)]
    logs = log_softmax(values, axis=1)
    ends = [number * n // splits for number in range(splits + 1)] if rows is None else [*range(0, n, rows), n]
    return np.array([np.exp(_divergences(logs[a:b]).mean()) for a, b in pairwise(ends)])


def _divergences(logs: Array) -> Array:
    """Of each row of log p(y|x) from the mean row."""
    shares = np.exp(logs)
    mean = shares.mean(0)
    with np.errstate(divide="ignore"):
        gaps = logs - np.log(mean)
    # A class that no picture has, even in the mean, adds nothing: 0·log 0.
    return np.asarray(np.where(shares > 0, shares * np.where(np.isfinite(gaps), gaps, 0.0), 0.0).sum(1))
