"""What a population experiment says of each sample: the score and the belief, cell by cell.

A cell is one slot, branch, layer and step. Of each sample of a cell a probe that did not see it gave log q(y | x) for
all values of the slot; all measures of this room are weighted means over samples of two numbers taken from it.
"""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from denoscope.information.errors import InformationError

Array = NDArray[np.float64]
CELL = ("slot", "branch", "layer", "step")
_AXES = (*CELL, "sample", "value")


@dataclass(frozen=True, slots=True)
class Scores:
    """The samples of an experiment, reduced to what its measures need.

    ``information`` is log q(y | x) − log p(y) in nats and ``belief`` is q(y | x), both at the sample's own value:
    ``(slot, branch, layer, step, sample)``, NaN in cells that were not measured. ``entropy (slot)`` is H(Y) in nats.
    ``context`` and ``seed`` number the clusters of each sample. ``null (slot)`` is the greatest information that
    shuffled labels reach, as a quantile over shuffles; NaN where the experiment has none.
    """

    information: Array
    belief: Array
    entropy: Array
    logsnr: Array
    context: NDArray[np.intp]
    seed: NDArray[np.intp]
    coords: dict[str, NDArray[np.generic]]

    def named(self, values: Array, dims: tuple[str, ...] = CELL, units: str = "nat") -> xr.DataArray:
        """``values`` with the experiment's own coordinates of ``dims``."""
        coords: dict[str, object] = {dim: self.coords[dim] for dim in dims if dim in self.coords}
        if "step" in dims:
            coords["logsnr"] = ("step", self.logsnr)
        return xr.DataArray(values, dims=dims, coords=coords, attrs={"units": units})


def scores(dataset: xr.Dataset) -> Scores:
    """Read and check an experiment.

    ``dataset`` holds ``log_belief (slot, branch, layer, step, sample, value)`` in nats, cross-fitted, −inf or NaN
    beyond a slot's values; ``label (slot, sample)``; ``prior (slot, value)``; along ``sample`` the coordinates
    ``context`` and ``seed``, along ``step`` ``logsnr``, which rises. A cell is measured for all samples or is NaN.

    Raises :class:`InformationError` for anything missing, labels outside a slot's values, beliefs that don't add up
    to 1, a true value that was believed impossible, steps out of order.
    """
    for name in ("log_belief", "label", "prior", "logsnr", "context", "seed"):
        if name not in dataset:
            raise InformationError(f"the experiment has no {name!r}: give the dataset that the experiment wrote, whole")
    missing = [axis for axis in _AXES if axis not in dataset["log_belief"].dims]
    if missing:
        raise InformationError(f"log_belief has no axis {missing[0]!r}: its axes are {', '.join(_AXES)}")
    logsnr = dataset["logsnr"].to_numpy().astype(np.float64)
    if len(logsnr) < 2 or not (np.diff(logsnr) > 0).all():
        raise InformationError("logsnr must rise from step to step, noisiest first, over at least two steps: sort them")
    beliefs = dataset["log_belief"].transpose(*_AXES)
    labels = dataset["label"].transpose("slot", "sample").to_numpy()
    priors = dataset["prior"].transpose("slot", "value").to_numpy().astype(np.float64)
    shape = tuple(beliefs.sizes[axis] for axis in (*CELL, "sample"))
    information, belief, entropy = np.empty(shape), np.empty(shape), np.empty(shape[0])
    for index in range(shape[0]):  # slot by slot: the beliefs of all slots in float64 would be the largest array here
        prior = slot_prior(priors[index])
        name = str(beliefs["slot"].to_numpy()[index]) if "slot" in beliefs.coords else str(index)
        own = _own_belief(beliefs[index].to_numpy(), labels[index], len(prior), name)
        information[index] = own - np.log(prior)[labels[index]]
        belief[index] = np.exp(own)
        entropy[index] = -(prior * np.log(prior)).sum()
    clusters = [np.unique(dataset[name].to_numpy(), return_inverse=True)[1] for name in ("context", "seed")]
    coords = {axis: beliefs[axis].to_numpy() for axis in CELL if axis in beliefs.coords}
    return Scores(information, belief, entropy, logsnr, clusters[0], clusters[1], coords)


def slot_prior(padded: Array) -> Array:
    """The prior of a slot without its padding. Raises :class:`InformationError` unless it is a distribution."""
    count = int(np.nan_to_num(padded > 0).sum())
    prior = padded[:count]
    if count < 2 or not (prior > 0).all() or abs(prior.sum() - 1) > 1e-6:
        raise InformationError(f"the prior {padded.tolist()} is none: at least two values, all positive, that sum to 1")
    return prior


def _own_belief(beliefs: NDArray[np.floating], labels: NDArray[np.integer], values: int, slot: str) -> Array:
    """log q at each sample's own value ``(branch, layer, step, sample)``, checked."""
    if labels.min() < 0 or labels.max() >= values:
        raise InformationError(
            f"labels of {slot!r} go from {labels.min()} to {labels.max()}, but it has {values} values"
        )
    kept = beliefs[..., :values]
    unknown = np.isnan(kept).any(-1)
    if not np.array_equal(unknown.any(-1), unknown.all(-1)):
        raise InformationError(f"cells of {slot!r} hold NaN for some samples only: measure a cell for all or none")
    total = np.exp(kept, dtype=np.float64).sum(-1)
    if (abs(total - 1) > 1e-3).any():
        raise InformationError(f"beliefs of {slot!r} don't add up to 1 over its values: give normalised log q(y | x)")
    own = np.take_along_axis(kept, np.broadcast_to(labels[..., None], (*kept.shape[:-1], 1)), -1)[..., 0]
    if np.isneginf(own).any():
        raise InformationError(f"a true value of {slot!r} was believed impossible (log q = −inf): smooth the probe")
    return own.astype(np.float64)


def null_threshold(dataset: xr.Dataset, alpha: float = 0.05) -> Array:
    """The information that shuffled labels exceed with probability ``alpha``, anywhere in a slot: ``(slot,)``, nats.

    From ``null_max (slot, draw)``, or from ``null (slot, branch, layer, step, draw)`` by its maximum over cells. NaN
    where the experiment has neither.
    """
    if "null_max" in dataset:
        greatest = dataset["null_max"].transpose("slot", "draw").to_numpy()
    elif "null" in dataset:
        greatest = dataset["null"].max(("branch", "layer", "step")).transpose("slot", "draw").to_numpy()
    else:
        return np.full(dataset.sizes["slot"], np.nan)
    return np.quantile(greatest.astype(np.float64), 1 - alpha, axis=1)
