"""What the observer has seen, and how it becomes a labelled dataset."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from denoscope.pipelines.adapters import TokenKind, Word


@dataclass(slots=True)
class StepRecord:
    """One scheduler step. Maps are float32, of kept steps on the CPU; the leading axis ``S`` counts the pictures.

    ``attention[layer]`` is ``(S, words, h, w)`` or, heads apart, ``(S, words, heads, h, w)``, ``token_mass[layer]``
    ``(S, kinds)``, ``self_attention[layer]`` ``(S, h, w)``, ``guidance`` ``(S, y, x)``, ``x0`` ``(S, channels, y, x)``.
    """

    timestep: float
    sigma: float
    logsnr: float
    attention: dict[str, Tensor] = field(default_factory=dict)
    token_mass: dict[str, Tensor] = field(default_factory=dict)
    self_attention: dict[str, Tensor] = field(default_factory=dict)
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
            self._sum(name, value, 1)

    def put(self, kind: str, layer: str, values: Tensor, records: Sequence[StepRecord]) -> None:
        """What was read later of steps that were taken in: ``values[i]`` is ``records[i].kind[layer]``."""
        if not self.keep_steps:
            self._sum(f"{kind}/{layer}", values.sum(0), len(records))
            return
        for value, record in zip(values.cpu(), records, strict=True):
            getattr(record, kind)[layer] = value.clone()  # a part of all values would hold them all

    def _sum(self, name: str, value: Tensor, steps: int) -> None:
        total, count = self._summed.get(name, (torch.zeros_like(value), 0))
        self._summed[name] = (total + value, count + steps)

    def recorded(self) -> set[str]:
        """Layers whose attention was read at some step."""
        held = self.steps if self.keep_steps else [self.mean()]
        return {name for record in held for name in (*record.attention, *record.self_attention)}

    def mean(self) -> StepRecord:
        """The mean over steps, as one record; its noise levels mean nothing."""
        means = {name: total.cpu() / count for name, (total, count) in self._summed.items()}
        attention, token_mass, self_attention = (
            {name.removeprefix(f"{kind}/"): value for name, value in means.items() if name.startswith(f"{kind}/")}
            for kind in _BY_LAYER
        )
        return StepRecord(np.nan, np.nan, np.nan, attention, token_mass, self_attention, means.get("guidance"))


_BY_LAYER: Final = ("attention", "token_mass", "self_attention")


def _tensors(record: StepRecord) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name in _BY_LAYER:
        found |= {f"{name}/{layer}": value for layer, value in getattr(record, name).items()}
    return found if record.guidance is None else found | {"guidance": record.guidance}


def to_dataset(
    tally: Tally,
    words: Sequence[Word],
    kinds: Sequence[TokenKind],
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
        maps = [_by_layer(r.attention, layers, size) for r in records]
        apart = ("head",) if _first(maps).dim() == 6 else ()
        axes = ("sample", "word", "step", "layer", *apart, "y", "x")
        variables["attention"] = (axes, _stack(_filled(maps), 2))
        mass = [_by_layer(r.token_mass, layers, None) for r in records]
        variables["token_mass"] = (("sample", "token_kind", "step", "layer"), _stack(_filled(mass), 2))
    if any(record.self_attention for record in records):
        own = [_by_layer({k: v[:, None] for k, v in r.self_attention.items()}, layers, size) for r in records]
        variables["self_attention"] = (("sample", "step", "layer", "y", "x"), _stack(_filled(own), 2)[:, 0])
    guidance = [record.guidance for record in records if record.guidance is not None]
    if guidance and len(guidance) == len(records):
        variables["guidance"] = (("sample", "step", "y", "x"), _stack(guidance, 1))
    x0 = [record.x0 for record in records if record.x0 is not None]
    if x0 and len(x0) == len(records):
        variables["x0"] = (("sample", "step", "channel", "y", "x"), _stack(x0, 1))
    coords: dict[str, tuple[str, Sequence[object] | NDArray[np.float64] | NDArray[np.str_]]] = {}
    if tally.keep_steps:
        coords["step"] = ("step", list(range(len(records))))
        for column, name in enumerate(("timestep", "sigma", "logsnr")):
            coords[name] = ("step", np.array([level[column] for level in tally.levels]))
    if "attention" in variables:
        coords["word"] = ("word", np.array([word.label for word in words], dtype=np.str_))
        coords["word_tokens"] = ("word", np.array(["·".join(word.tokens) for word in words], dtype=np.str_))
        coords["token_kind"] = ("token_kind", list(kinds))
    if layers and ("attention" in variables or "self_attention" in variables):
        coords["layer"] = ("layer", list(layers))
    dataset = xr.Dataset(variables, coords, dict(attrs))
    drop = [name for name in ("sample", *(() if tally.keep_steps else ("step",))) if dataset.sizes.get(name) == 1]
    return dataset.squeeze(drop)


def _by_layer(found: Mapping[str, Tensor], layers: Sequence[str], size: tuple[int, int] | None) -> Tensor | None:
    """One record's layers along axis 2, those that were not called NaN; ``None`` when none was."""
    if not found:
        return None
    grown = {name: value if size is None else _grow(value, size) for name, value in found.items()}
    heads = max((value.shape[2] for value in grown.values() if value.dim() == 5), default=0)
    if heads:  # layers have more or fewer
        grown = {
            name: torch.cat([value, value.new_full((*value.shape[:2], heads - value.shape[2], *size), torch.nan)], 2)
            for name, value in grown.items()
            if size is not None
        }
    empty = torch.full_like(next(iter(grown.values())), torch.nan)
    return torch.stack([grown.get(layer, empty) for layer in layers], 2)


def _first(parts: Sequence[Tensor | None]) -> Tensor:
    """The first step at which something was read."""
    return next(part for part in parts if part is not None)


def _filled(parts: Sequence[Tensor | None]) -> list[Tensor]:
    """Steps at which nothing was read are NaN."""
    first = _first(parts)
    return [torch.full_like(first, torch.nan) if part is None else part for part in parts]


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
