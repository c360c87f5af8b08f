"""The two-way cluster bootstrap: one set of weights for every cell, so that all differences are paired."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from denoscope.information.dynamics.scores import Array, Scores
from denoscope.information.errors import InformationError

LEVEL = 0.9
DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Resampled:
    """Means over samples, and the same means under each draw of weights.

    ``information`` and ``belief`` are ``(slot, branch, layer, step)``; their draws have ``draw`` in front. Draw 7 of
    one cell and draw 7 of another have the same contexts and seeds.
    """

    information: Array
    belief: Array
    information_draws: Array
    belief_draws: Array


def cluster_weights(
    context: NDArray[np.integer], seed: NDArray[np.integer], draws: int = DRAWS, rng_seed: int = 0
) -> Array:
    """Weights of the samples in each draw ``(draws, sample)``; each row sums to 1.

    Contexts and seeds are drawn with replacement, independently, and a sample's weight is the product of their counts
    (Owen 2007, the pigeonhole bootstrap). That errs to the safe side: noise of single samples is counted up to three
    times. Of G clusters, G − 1 are drawn (Rao & Wu 1988), which takes away the factor (G − 1)/G by which resampling G
    of G understates a variance. With one context, or one seed, only the other is drawn, and the interval says nothing
    about other contexts.

    Raises :class:`InformationError` for fewer than 2 draws, a single cluster, or clusters that hardly cross.

    >>> weights = cluster_weights(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), draws=3)
    >>> weights.shape, weights.sum(1).round(9).tolist()
    ((3, 4), [1.0, 1.0, 1.0])
    """
    if draws < 2:
        raise InformationError(f"an interval needs at least 2 draws, not {draws}")
    rng = np.random.default_rng(rng_seed)
    weights = np.ones((draws, len(context)))
    counts = [int(of.max()) + 1 for of in (context, seed)]
    if max(counts) < 2:
        raise InformationError("one context and one seed give no interval: repeat the experiment with more seeds")
    for of, count in zip((context, seed), counts, strict=True):
        if count > 1:
            weights *= rng.multinomial(count - 1, np.full(count, 1 / count), size=draws)[:, of]
    total = weights.sum(1, keepdims=True)
    if (total == 0).any():
        raise InformationError(
            "contexts and seeds hardly cross, so they can't be drawn apart: use every seed everywhere"
        )
    return weights / total


def resample(cells: Scores, draws: int = DRAWS, rng_seed: int = 0) -> Resampled:
    """The means of every cell, and their draws. The memory is 16 bytes a cell and draw."""
    weights = cluster_weights(cells.context, cells.seed, draws, rng_seed).T
    drawn = [np.moveaxis(values @ weights, -1, 0) for values in (cells.information, cells.belief)]
    return Resampled(cells.information.mean(-1), cells.belief.mean(-1), drawn[0], drawn[1])


def interval(draws: Array, level: float = LEVEL) -> tuple[Array, Array]:
    """Percentile interval over the first axis; infinite draws are allowed, and ends are rounded outwards.

    >>> low, high = interval(np.array([[-np.inf], [0.0], [1.0], [2.0]]), level=0.5)
    >>> low.tolist(), high.tolist()
    ([-inf], [2.0])
    """
    if not 0 < level < 1:
        raise InformationError(f"the level of an interval is between 0 and 1, not {level}")
    last = len(draws) - 1
    low, high = int(np.floor((1 - level) / 2 * last)), int(np.ceil((1 + level) / 2 * last))
    ordered = np.partition(draws, (low, high), axis=0)
    unknown = np.isnan(draws).any(0)
    return np.where(unknown, np.nan, ordered[low]), np.where(unknown, np.nan, ordered[high])


def critical_value(greatest: Array, alpha: float, cells: Scores) -> float:
    """How many standard errors a contrast must be away from its null, for a whole family at once.

    ``greatest (draw,)`` is each draw's maximum over the family of (draw − estimate)/sd. Its 1 − ``alpha`` quantile is
    the critical value of many clusters (Romano & Wolf 2005); the sd of few is itself uncertain, so it is carried over
    from the normal to Student's t at the same tail probability, with one degree of freedom less than the fewer
    clusters.
    """
    normal = float(np.quantile(greatest, 1 - alpha))
    clusters = [int(of.max()) + 1 for of in (cells.context, cells.seed)]
    return float(t.isf(norm.sf(normal), min(count for count in clusters if count > 1) - 1))
