"""Do decision times agree with commitment times, and better than what needs no information?"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kendalltau, spearmanr

from denoscope.information.errors import InformationError


def agreement(
    predictors: Mapping[str, ArrayLike],
    committed: ArrayLike,
    clusters: Sequence[str],
    *,
    resamples: int = 1000,
    level: float = 0.9,
    seed: int = 0,
) -> xr.Dataset:
    """Rank correlation and distance of predicted times to commitment times over N cells (attribute × context).

    ``predictors`` are times in logsnr, each ``(N,)``: t50 and what it has to beat (a constant, the time of most
    attention mass, argmax ‖Δε̂‖). ``committed`` is t_c ``(N,)``; ``clusters`` name what cells share (their context or
    template), which the bootstrap draws whole. Cells where any number isn't finite are left out of all.

    Returns over ``predictor``: ``spearman``, ``kendall`` (τ_b) and ``distance``, the mean |Δlogsnr|, each with
    ``_low`` and ``_high``. Ranks of a constant are not defined: NaN; so is an interval where a resample has none.

    Raises :class:`InformationError` for lengths that differ, or fewer than 3 cells or 2 clusters.

    >>> found = agreement({"t50": [-3.1, -2.4, -1.9, -1.0]}, [-3, -2, -2, -1], ["a", "b", "a", "b"], resamples=99)
    >>> round(float(found.spearman[0]), 3), round(float(found.distance[0]), 3)
    (0.949, 0.15)
    """
    times = {name: np.asarray(held, dtype=np.float64) for name, held in predictors.items()}
    truth, groups = np.asarray(committed, dtype=np.float64), np.asarray(clusters)
    if any(held.shape != truth.shape for held in times.values()) or groups.shape != truth.shape:
        raise InformationError(f"there are {len(truth)} commitment times: give as many times and clusters")
    kept = np.all([np.isfinite(held) for held in (*times.values(), truth)], axis=0)
    names = np.unique(groups[kept])
    if kept.sum() < 3 or len(names) < 2:
        raise InformationError("agreement needs at least 3 cells with finite times, in at least 2 clusters")
    members = [np.flatnonzero(kept & (groups == name)) for name in names]
    rng = np.random.default_rng(seed)
    draws = [
        np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))]) for _ in range(resamples)
    ]
    tail = (1 - level) / 2
    rows = []
    for held in times.values():
        points = _measures(held[kept], truth[kept])
        resampled = np.array([_measures(held[draw], truth[draw]) for draw in draws])
        rows.append([points, *np.quantile(resampled, [tail, 1 - tail], axis=0)])
    table = np.array(rows)
    found = xr.Dataset(coords={"predictor": list(times)}, attrs={"cells": int(kept.sum()), "clusters": len(names)})
    for column, name in enumerate(("spearman", "kendall", "distance")):
        for row, ending in enumerate(("", "_low", "_high")):
            found[name + ending] = "predictor", table[:, row, column]
    return found


def _measures(times: NDArray[np.float64], truth: NDArray[np.float64]) -> tuple[float, float, float]:
    distance = float(np.abs(times - truth).mean())
    if np.ptp(times) == 0 or np.ptp(truth) == 0:
        return float("nan"), float("nan"), distance
    return float(spearmanr(times, truth).statistic), float(kendalltau(times, truth).statistic), distance
