"""What the observer has seen, and how it becomes a labelled dataset."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from denoscope.pipelines.adapters.base import TokenKind, Word

KINDS: tuple[TokenKind, ...] = get_args(TokenKind)


@dataclass(slots=True)
class StepRecord:
    """One scheduler step. Maps are float32 on the CPU; the leading axis ``S`` counts the pictures of the call.

    ``attention[layer]`` is ``(S, words, h, w)``, ``token_mass[layer]`` ``(S, kinds)``, ``guidance`` ``(S, y, x)``,
    ``x0`` ``(S, channels, y, x)``.
    """

    timestep: float
    sigma: float
    logsnr: float
    attention: dict[str, Tensor] = field(default_factory=dict)
    token_mass: dict[str, Tensor] = field(default_factory=dict)
    guidance: Tensor | None = None
    x0: Tensor | None = None


@dataclass(slots=True)
class Tally:
    """Records of all steps, or their running mean when the step axis is not kept."""

    keep_steps: bool
    steps: list[StepRecord] = field(default_factory=list)
    levels: list[tuple[float, float, float]] = field(default_factory=list)
    _summed: dict[str, tuple[Tensor, int]] = field(default_factory=dict)

    def add(self, record: StepRecord) -> None:
        """Take in one step."""
        self.levels.append((record.timestep, record.sigma, record.logsnr))
        if self.keep_steps:
            self.steps.append(record)
            return
        for name, value in _tensors(record).items():
            total, count = self._summed.get(name, (torch.zeros_like(value), 0))
            self._summed[name] = (total + value, count + 1)

    def mean(self) -> StepRecord:
        """The mean over steps, as one record; its noise levels mean nothing."""
        means = {name: total / count for name, (total, count) in self._summed.items()}
        return StepRecord(
            np.nan,
            np.nan,
            np.nan,
            {key[10:]: value for key, value in means.items() if key.startswith("attention/")},
            {key[11:]: value for key, value in means.items() if key.startswith("token_mass/")},
            means.get("guidance"),
            None,
        )


def _tensors(record: StepRecord) -> dict[str, Tensor]:
    found = {f"attention/{layer}": value for layer, value in record.attention.items()}
    found |= {f"token_mass/{layer}": value for layer, value in record.token_mass.items()}
    return found if record.guidance is None else found | {"guidance": record.guidance}


def to_dataset(
    tally: Tally,
    words: Sequence[Word],
    layers: Sequence[str],
    size: tuple[int, int],
    attrs: Mapping[str, str | float],
) -> xr.Dataset:
    """The records as a dataset with named axes; ``size`` is the latent's height and width.

    Maps of coarser layers are repeated to the latent's grid (each location's probability is kept, nothing is smoothed).
    With one picture there is no ``sample`` axis; without the step axis there is no ``step``.
    """
    records = tally.steps if tally.keep_steps else [tally.mean()]
    variables: dict[str, tuple[tuple[str, ...], NDArray[np.float32]]] = {}
    if any(record.attention for record in records):
        first = next(record for record in records if record.attention)
        samples = len(next(iter(first.attention.values())))
        empty = torch.full((samples, len(words), *size), torch.nan)
        no_mass = torch.full((samples, len(KINDS)), torch.nan)
        maps = [
            torch.stack([_grow(r.attention[layer], size) if layer in r.attention else empty for layer in layers], 2)
            for r in records
        ]
        variables["attention"] = (("sample", "word", "step", "layer", "y", "x"), _stack(maps, 2))
        mass = [torch.stack([r.token_mass.get(layer, no_mass) for layer in layers], 2) for r in records]
        variables["token_mass"] = (("sample", "token_kind", "step", "layer"), _stack(mass, 2))
    guidance = [record.guidance for record in records if record.guidance is not None]
    if guidance and len(guidance) == len(records):
        variables["guidance"] = (("sample", "step", "y", "x"), _stack(guidance, 1))
    x0 = [record.x0 for record in records if record.x0 is not None]
    if x0 and len(x0) == len(records):
        variables["x0"] = (("sample", "step", "channel", "y", "x"), _stack(x0, 1))
    coords: dict[str, tuple[str, Sequence[object] | NDArray[np.float64]]] = {}
    if tally.keep_steps:
        coords["step"] = ("step", list(range(len(records))))
        for column, name in enumerate(("timestep", "sigma", "logsnr")):
            coords[name] = ("step", np.array([level[column] for level in tally.levels]))
    if "attention" in variables:
        coords["word"] = ("word", [word.label for word in words])
        coords["word_tokens"] = ("word", ["·".join(word.tokens) for word in words])
        coords["layer"] = ("layer", list(layers))
        coords["token_kind"] = ("token_kind", list(KINDS))
    dataset = xr.Dataset(variables, coords, dict(attrs))
    drop = [name for name in ("sample", *(() if tally.keep_steps else ("step",))) if dataset.sizes.get(name) == 1]
    return dataset.squeeze(drop)


def _grow(maps: Tensor, size: tuple[int, int]) -> Tensor:
    # Levels halve, rounding up, so place i of the latent belongs to place i // 2^k of level k. Interpolation to an odd
    # size would shift places against each other.
    for axis, wanted in ((-2, size[0]), (-1, size[1])):
        times = 1 << (math.ceil(wanted / maps.shape[axis]) - 1).bit_length()
        maps = maps.repeat_interleave(times, axis).narrow(axis, 0, wanted)
    return maps


def _stack(values: Sequence[Tensor], axis: int) -> NDArray[np.float32]:
    stacked: NDArray[np.float32] = torch.stack(list(values), axis).numpy()
    return stacked
