"""The spatio-temporal atlas: what every channel does at every step, and how much of it a word decides."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from denoscope.information.population.design import Population
from denoscope.information.population.parts import Parts


def atlas(parts: Parts, population: Population) -> xr.Dataset:
    """F[step, layer, channel] and the share of its variance that each slot's word decides.

    ``mean`` ``(branch, layer, step, channel)`` is each channel's mean over places and pictures, in the layer's own
    unit; ``decided`` ``(slot, branch, layer, step, channel)`` the share of its variance over the pictures of a slot's
    arm that the word decides: ω² (Hays 1963), 0 for a channel that the word doesn't move; slightly negative by chance.
    Layers have more or fewer channels: what there is not is NaN.
    """
    steps, widest = len(parts.levels), max(parts.channels.values())
    shape = (len(parts.branches), len(parts.layers), steps, widest)
    mean = np.full(shape, np.nan, dtype=np.float32)
    decided = np.full((len(population.arms), *shape), np.nan, dtype=np.float32)
    for at, (layer, channels) in enumerate(parts.channels.items()):
        for side, branch in enumerate(parts.branches):
            for step, found in parts.features(layer, branch, range(len(population.prompts))):
                rows = found[:, :channels].reshape(len(population.prompts), -1, channels).astype(np.float64)
                mean[side, at, step, :channels] = rows.mean((0, 1))
                for slot, arm in enumerate(population.arms):
                    decided[slot, side, at, step, :channels] = omega_squared(rows[arm.prompts])
    return xr.Dataset(
        {
            "mean": (("branch", "layer", "step", "channel"), mean),
            "decided": (("slot", "branch", "layer", "step", "channel"), decided),
        },
        {
            "branch": list(parts.branches),
            "layer": list(parts.layers),
            "step": list(range(steps)),
            "slot": [arm.slot for arm in population.arms],
            "logsnr": ("step", parts.levels[:, 2]),
        },
    )


def omega_squared(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """ω² of the second axis: ``(contexts, values, seeds, channels)`` to ``(channels,)``; NaN for a constant channel.

    One-way analysis of variance by value, contexts and seeds being repetitions: (SS_b − (K−1)·MS_w) / (SS_t + MS_w).

    >>> rows = np.zeros((2, 2, 3, 1)); rows[:, 1] = 1.0  # the value alone decides
    >>> float(omega_squared(rows)[0])
    1.0
    """
    count, values = rows.shape[0] * rows.shape[2], rows.shape[1]
    grand = rows.mean((0, 1, 2))
    between = count * np.square(rows.mean((0, 2)) - grand).sum(0)
    total = np.square(rows - grand).sum((0, 1, 2))
    within = (total - between) / (values * count - values)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = (between - (values - 1) * within) / (total + within)
    return np.where(total > 0, found, np.nan)
