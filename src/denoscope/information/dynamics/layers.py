"""How information goes from layer to layer: what each adds, and what two of them share."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from denoscope.information.dynamics.measures import information
from denoscope.information.dynamics.resampling import DRAWS, LEVEL, interval, resample
from denoscope.information.dynamics.scores import scores
from denoscope.information.estimators import probe


def increments(dataset: xr.Dataset, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> xr.Dataset:
    """What each layer knows more than the one before it, in nats; paired, so sharper than two intervals.

    ``dataset`` holds one slot's beliefs or more. Returns ``increment`` ``(slot, branch, layer, step)`` with ``_low``
    and ``_high``; layers are in calling order, and the first one's increment is all that it knows. A linear probe reads
    them: an increment may be what a layer made readable, not what it was told.
    """
    cells = scores(dataset)
    drawn = resample(cells, draws, seed)

    def steps(
        values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.diff(values, axis=-2, prepend=0.0)

    low, high = interval(steps(drawn.information_draws), level)
    found = {"increment": steps(drawn.information), "increment_low": low, "increment_high": high}
    return xr.Dataset({name: cells.named(values) for name, values in found.items()})


def transfer(dataset: xr.Dataset, steps: Sequence[int]) -> xr.Dataset:
    """Which layers know the same: the share of what layer b knows that layer a knows too, at some steps.

    From the log beliefs of both a probe makes one joint belief, with the same contexts and seeds held out, and
    T[a, b] = (I(a) + I(b) − I(a, b)) / I(b), all three measured by that second probe. 1 where a knows all that b knows,
    0 where they know different things; a little beyond either end by chance. NaN where b knows no more than shuffled
    labels do, or a tenth of a nat. Returns ``transfer`` ``(slot, branch, step, from_layer, to_layer)``.
    """
    layers = [str(name) for name in dataset["layer"].values]
    told = information(dataset, draws=2)
    floor = np.fmax(told["null_threshold"].values, 0.1)
    sizes = (dataset.sizes["slot"], dataset.sizes["branch"], len(steps), len(layers), len(layers))
    found = np.full(sizes, np.nan)
    context, seed = dataset["context"].values, dataset["seed"].values
    for slot in range(sizes[0]):
        labels = dataset["label"].transpose("slot", "sample").values[slot]
        for branch in range(sizes[1]):
            for at, step in enumerate(steps):
                held = dataset["log_belief"].isel(slot=slot, branch=branch, step=step)
                beliefs = held.transpose("layer", "sample", "value").values.clip(-8, 0)
                alone = [probe(belief, labels, context=context, seed=seed).information for belief in beliefs]
                for one in range(len(layers)):
                    for other in range(one, len(layers)):
                        joined = np.concatenate([beliefs[one], beliefs[other]], 1)
                        both = (
                            alone[one]
                            if one == other
                            else probe(joined, labels, context=context, seed=seed).information
                        )
                        shared = alone[one] + alone[other] - both
                        for a, b in ((one, other), (other, one)):
                            if alone[b] > floor[slot]:
                                found[slot, branch, at, a, b] = shared / alone[b]
    return xr.Dataset(
        {"transfer": (("slot", "branch", "step", "from_layer", "to_layer"), found)},
        {
            "slot": dataset["slot"].values,
            "branch": dataset["branch"].values,
            "step": list(steps),
            "from_layer": layers,
            "to_layer": layers,
        },
    )
