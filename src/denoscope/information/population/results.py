"""One dataset of what an experiment found, over all its slots."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from denoscope.information.dynamics import curves, increments, information, times


def summarise(beliefs: Sequence[xr.Dataset], *, draws: int = 1000, seed: int = 0) -> xr.Dataset:
    """Information, curves and decision times of every slot, branch, layer and step.

    ``beliefs`` are what :func:`measure_slot` returned, one slot each. The same ``seed`` weighs contexts and seeds alike
    for slots with as many of each, so that differences between slots are paired.

    Returns over ``(slot, branch, layer, step)`` ``information``, ``conditional_entropy``, ``fraction_known``,
    ``belief``, ``curve``, ``rate`` and ``increment`` (over the layer before), and over ``(slot, branch, layer)``
    ``t10``, ``t50``, ``t90``, ``t_peak`` and ``lock_in`` in logsnr, each with ``_low`` and ``_high`` (90 %) and the
    times with ``_reason``; ``entropy`` and ``null_threshold`` over ``(slot,)``.
    """
    found = []
    for dataset in beliefs:
        measured = information(dataset, draws=draws, seed=seed)
        bent = curves(dataset, draws=draws, seed=seed)
        decided = times(dataset, draws=draws, seed=seed)
        told = xr.merge([measured, bent, increments(dataset, draws=draws, seed=seed)], combine_attrs="override")
        for name in ("peak", "lock_in"):
            for ending in ("", "_low", "_high", "_reason"):
                told[("t_peak" if name == "peak" else name) + ending] = decided[name + ending]
        for fraction, name in ((0.1, "t10"), (0.5, "t50"), (0.9, "t90")):
            for ending in ("", "_low", "_high", "_reason"):
                told[name + ending] = decided[f"time{ending}"].sel(fraction=fraction, drop=True)
        if "cross_check" in dataset:
            told["cross_check"] = dataset["cross_check"]
        found.append(told)
    whole = xr.concat(found, "slot", combine_attrs="override", join="exact")
    whole.attrs["denoscope"] = "dynamics"
    return whole


def deciding_layer(results: xr.Dataset, slot: str, branch: str) -> str:
    """The layer that knows most of a slot's word, averaged over steps."""
    known = results["fraction_known"].sel(slot=slot, branch=branch).mean("step").fillna(-np.inf)
    return str(known["layer"].values[int(known.argmax("layer"))])
