"""Information, conditional entropy, fraction known and mean belief of every cell."""

import numpy as np
import xarray as xr

from denoscope.information.dynamics.resampling import DRAWS, LEVEL, interval, resample
from denoscope.information.dynamics.scores import CELL, null_threshold, scores


def information(dataset: xr.Dataset, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> xr.Dataset:
    """What the features of each cell say about the slot's value, with intervals.

    ``dataset`` is as :func:`~denoscope.information.dynamics.scores.scores` wants it. Returns, over
    ``(slot, branch, layer, step)`` and each with ``_low`` and ``_high``:

    ``information``
        mean of log q(y | x) − log p(y), nats: a lower bound of I(X; Y) (Barber & Agakov 2003) in expectation. At most
        H(Y); negative where the probe did worse than the prior, and kept so. Where the experiment says what more
        pictures might show (``unlearnt``), the interval's upper end has it added, up to H(Y).
    ``conditional_entropy``
        H(Y) − I: an upper bound of H(Y | X), nats.
    ``fraction_known``
        I / H(Y), at most 1.
    ``belief``
        mean of q(y | x) at the true value, in [0, 1]; a chance belief is Σ p².

    and ``entropy (slot)``, ``null_threshold (slot)``: the information that shuffled labels exceed anywhere in the slot
    with probability .05 (NaN if the experiment has no null).

    Raises :class:`InformationError` for an experiment that can't be read or has too few clusters.
    """
    cells = scores(dataset)
    drawn = resample(cells, draws, seed)
    low, high = interval(drawn.information_draws, level)
    entropy = cells.entropy[:, None, None, None]
    if "unlearnt" in dataset:
        high = np.minimum(high + dataset["unlearnt"].transpose(*CELL).to_numpy(), entropy)
    found = {
        "information": (drawn.information, low, high, "nat"),
        "conditional_entropy": (entropy - drawn.information, entropy - high, entropy - low, "nat"),
        "fraction_known": (drawn.information / entropy, low / entropy, high / entropy, "1"),
        "belief": (drawn.belief, *interval(drawn.belief_draws, level), "1"),
    }
    arrays: dict[str, xr.DataArray] = {}
    for name, (value, lower, upper, units) in found.items():
        arrays |= {name: cells.named(value, units=units)}
        arrays |= {f"{name}_low": cells.named(lower, units=units), f"{name}_high": cells.named(upper, units=units)}
    arrays["entropy"] = cells.named(cells.entropy, ("slot",))
    arrays["null_threshold"] = cells.named(null_threshold(dataset), ("slot",))
    attrs: dict[str, float] = {"draws": draws, "level": level, "seed": seed, "samples": len(cells.context)}
    return xr.Dataset(arrays, attrs=attrs)
