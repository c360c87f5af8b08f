"""From the features of a population to log beliefs: what each picture's features say of its word."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from denoscope.information.estimators import CrossCheck, null_information, probe, unlearnt
from denoscope.information.population.design import Arm, Population
from denoscope.information.population.parts import Parts


def measure_slot(
    parts: Parts,
    population: Population,
    arm: Arm,
    *,
    check: CrossCheck | None = None,
    permutations: int = 200,
    on_cell: Callable[[], None] | None = None,
) -> xr.Dataset:
    """What the features say of one slot's word, cell by cell.

    Returns ``log_belief`` ``(slot, branch, layer, step, sample, value)`` float32, cross-fitted, in nats; ``unlearnt``
    ``(slot, branch, layer, step)``, what more pictures might show; ``label`` and ``prior``; along ``sample``
    ``context`` and ``seed``. With ``permutations`` also ``null`` ``(slot, branch, layer, step, draw)``: the information
    about labels shuffled within context and seed, the same shuffle in every cell. With a ``check`` also
    ``cross_check`` ``(slot, branch, layer, step)``: the information by another estimator. ``on_cell`` is told of each
    finished cell.
    """
    told = samples_of(arm, len(population.seeds))
    labels, context, seed = told["label"], told["context"], told["seed"]
    shape = (len(parts.branches), len(parts.layers), len(parts.levels))
    beliefs = np.full((*shape, len(labels), len(arm.values)), np.nan, dtype=np.float32)
    checked, missing = np.full(shape, np.nan), np.full(shape, np.nan)
    null = np.full((*shape, permutations), np.nan, dtype=np.float32)
    for side, branch in enumerate(parts.branches):
        for at, layer in enumerate(parts.layers):
            for step, features in parts.features(layer, branch, arm.prompts.ravel().tolist()):
                beliefs[side, at, step] = probe(features, labels, context=context, seed=seed).log_belief
                missing[side, at, step] = unlearnt(features, labels, context=context, seed=seed)
                if check is not None:
                    checked[side, at, step] = check(features, labels)
                if permutations:
                    null[side, at, step] = null_information(
                        features, labels, context=context, seed=seed, draws=permutations
                    )
                if on_cell is not None:
                    on_cell()
    axes = ("slot", "branch", "layer", "step")
    variables = {
        "log_belief": ((*axes, "sample", "value"), beliefs[None]),
        "unlearnt": (axes, missing[None]),
        "label": (("slot", "sample"), labels[None]),
        "prior": (("slot", "value"), np.full((1, len(arm.values)), 1 / len(arm.values))),
    }
    if check is not None:
        variables["cross_check"] = (axes, checked[None])
    if permutations:
        variables["null"] = ((*axes, "draw"), null[None])
    return xr.Dataset(
        variables,
        {
            "slot": [arm.slot],
            "branch": list(parts.branches),
            "layer": list(parts.layers),
            "step": list(range(len(parts.levels))),
            "value": list(arm.values),
            "timestep": ("step", parts.levels[:, 0]),
            "sigma": ("step", parts.levels[:, 1]),
            "logsnr": ("step", finite_levels(parts.levels[:, 2])),
            "context": ("sample", context),
            "seed": ("sample", seed),
        },
    )


def samples_of(arm: Arm, seeds: int) -> dict[str, NDArray[np.int64]]:
    """Label, context and seed of every picture of an arm, in the order of :meth:`Parts.features`.

    >>> arm = Arm("colour", ("red", "blue"), np.array([3]), np.array([[0, 1]]))
    >>> {name: values.tolist() for name, values in samples_of(arm, 2).items()}
    {'context': [3, 3, 3, 3], 'label': [0, 0, 1, 1], 'seed': [0, 1, 0, 1]}
    """
    context, label, seed = np.meshgrid(arm.contexts, np.arange(len(arm.values)), np.arange(seeds), indexing="ij")
    return {"context": context.ravel(), "label": label.ravel(), "seed": seed.ravel()}


def finite_levels(logsnr: NDArray[np.float64]) -> NDArray[np.float64]:
    """Noise levels with pure noise, −∞, one spacing before the next level, so that curves have an axis.

    >>> finite_levels(np.array([-np.inf, -2.0, 1.0])).tolist()
    [-5.0, -2.0, 1.0]
    """
    found = logsnr.astype(np.float64).copy()
    if len(found) > 2 and np.isneginf(found[0]):
        found[0] = found[1] - (found[2] - found[1])
    return found
