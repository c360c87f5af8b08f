"""What a layer gives out, reduced to a few numbers a channel while the call is on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn import functional

from denoscope.observer.errors import ObserveError
from denoscope.pipelines.adapters import Branch


def select_layers(denoiser: nn.Module, wanted: Sequence[str]) -> dict[str, nn.Module]:
    """Modules of a denoiser by dotted names or globs, a glob standing for one part: ``up_blocks.*``, ``mid_block``.

    Raises :class:`ObserveError` for a name that matches none, with the first part's names.

    >>> list(select_layers(nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.ReLU()}), ["*"]))
    ['a', 'b']
    """
    modules = {name: module for name, module in denoiser.named_modules() if name}
    chosen: dict[str, nn.Module] = {}
    for pattern in wanted:
        parts = pattern.split(".")
        found = {
            name: module
            for name, module in modules.items()
            if len(name.split(".")) == len(parts)
            and all(fnmatchcase(own, asked) for own, asked in zip(name.split("."), parts, strict=True))
        }
        if not found:
            raise ObserveError(
                f"no layer of {type(denoiser).__name__} is called {pattern!r}; "
                f"its parts are {', '.join(name for name in modules if '.' not in name)}"
            )
        chosen |= found
    return chosen


_AXES: Final[Mapping[str, tuple[str, ...]]] = {
    "mean": ("channel",),
    "std": ("channel",),
    "grid": ("channel", "gy", "gx"),
    "weighted": ("weight", "channel"),
}


@dataclass(slots=True)
class Pooled:
    """One layer's output in one branch at one step: ``mean`` and ``std`` ``(S, C)``, ``grid`` ``(S, C, k, k)``.

    ``weighted`` is ``(S, weights, C)``. float16 on the CPU, from float32 sums. ``grid`` is ``None`` for outputs without
    places, ``weighted`` without weights.
    """

    mean: Tensor
    std: Tensor
    grid: Tensor | None
    weighted: Tensor | None


def pool(output: Tensor, size: tuple[int, int] | None, cells: int, weights: Tensor | None = None) -> Pooled:
    """Mean and standard deviation over places, and means over ``cells`` × ``cells`` parts of the map.

    ``output`` is a map ``(S, C, h, w)``, or rows ``(S, places, C)`` which ``size`` makes a map of (row by row); without
    ``size`` rows have no grid. One row a picture, ``(S, C)``, is its own mean. ``weights`` are maps ``(K, h, w)`` that
    sum to 1, for means weighted by each.

    >>> made = pool(torch.arange(16.0).reshape(1, 1, 4, 4), None, 2, torch.eye(4)[None] / 4)
    >>> float(made.mean), made.grid.flatten().tolist(), float(made.weighted)
    (7.5, [2.5, 4.5, 10.5, 12.5], 7.5)
    """
    held = output.detach().float()
    held = held[:, None] if held.dim() == 2 else held
    if held.dim() == 3:
        held = held.transpose(1, 2)
        held = held.reshape(*held.shape[:2], *size) if size is not None and size[0] * size[1] == held.shape[2] else held
    places = held.flatten(2)
    grid = functional.adaptive_avg_pool2d(held, cells) if held.dim() == 4 else None
    mean = places.mean(2)
    # torch.std is twenty times slower over a short last axis.
    std = torch.linalg.vector_norm(places - mean[..., None], dim=2) / places.shape[2] ** 0.5
    weighted = None if weights is None else torch.einsum("scp,kp->skc", places, weights.flatten(1))
    return Pooled(
        mean.half().cpu(),
        std.half().cpu(),
        None if grid is None else grid.half().cpu(),
        None if weighted is None else weighted.half().cpu(),
    )


@dataclass(slots=True)
class FeatureTally:
    """Pooled outputs of all steps by (step, branch, layer); the last call of a step counts."""

    weights: tuple[str, ...] = ()
    steps: list[dict[tuple[Branch, str], Pooled]] = field(default_factory=list)

    def datasets(self, levels: Sequence[tuple[float, float, float]]) -> dict[str, xr.Dataset]:
        """By layer: ``mean`` and ``std`` over ``(sample, branch, step, channel)``, ``grid`` with ``gy, gx`` besides.

        ``weighted`` is over ``(sample, branch, step, weight, channel)``.
        """
        layers = list(dict.fromkeys(layer for step in self.steps for _, layer in step))  # in calling order
        branches = sorted({branch for step in self.steps for branch, _ in step})
        found: dict[str, xr.Dataset] = {}
        for layer in layers:
            variables: dict[str, tuple[tuple[str, ...], np.ndarray[tuple[int, ...], np.dtype[np.float16]]]] = {}
            for name, axes in _AXES.items():
                values = [[_value(step, branch, layer, name) for step in self.steps] for branch in branches]
                first = next((value for row in values for value in row if value is not None), None)
                if first is not None:
                    empty = torch.full_like(first, torch.nan)
                    rows = [torch.stack([empty if value is None else value for value in row], 1) for row in values]
                    variables[name] = (("sample", "branch", "step", *axes), torch.stack(rows, 1).numpy())
            found[layer] = xr.Dataset(
                variables,
                {
                    "branch": branches,
                    "step": list(range(len(self.steps))),
                    **({"weight": list(self.weights)} if "weighted" in variables else {}),
                    **_coordinates(levels),
                },
                {"layer": layer},
            )
        return found


def _value(step: Mapping[tuple[Branch, str], Pooled], branch: Branch, layer: str, name: str) -> Tensor | None:
    pooled = step.get((branch, layer))
    found: Tensor | None = None if pooled is None else getattr(pooled, name)
    return found


def _coordinates(levels: Sequence[tuple[float, float, float]]) -> dict[str, tuple[str, list[float]]]:
    names = ("timestep", "sigma", "logsnr")
    return {name: ("step", [level[column] for level in levels]) for column, name in enumerate(names)}
