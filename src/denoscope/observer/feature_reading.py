"""Reading what watched layers give out: pooled, and whole where that is asked for."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
import xarray as xr
from diffusers import DiffusionPipeline
from numpy.typing import ArrayLike
from torch import Tensor, nn

from denoscope.observer.errors import ObserveError
from denoscope.observer.features import FeatureTally, Pooled, pool
from denoscope.observer.raw import RawType, RawWriter
from denoscope.observer.weighting import by_area, checked_weights
from denoscope.pipelines.adapters import Adapter, Branch, DenoiserCall


class FeatureReader:
    """Pools the outputs of ``layers`` over ``cells`` × ``cells`` parts and by ``weights``; ``raw`` writes them whole.

    Raises :class:`ObserveError` for weights that are no maps, and for more than pooling without layers.
    """

    def __init__(
        self,
        pipe: DiffusionPipeline,
        adapter: Adapter,
        layers: Mapping[str, nn.Module],
        *,
        cells: int,
        weights: Mapping[str, ArrayLike] | None,
        raw: Path | str | None,
        raw_dtype: RawType,
    ) -> None:
        self.layers = layers
        self.raw = None if raw is None else RawWriter(raw, raw_dtype)
        self._pipe, self._adapter, self._cells = pipe, adapter, cells
        self._weights = checked_weights(weights)
        if not layers and (self.raw is not None or self._weights):
            raise ObserveError("no layers are named whose output could be kept or weighted: name some by features=[…]")
        self._call: DenoiserCall | None = None
        self._pooled: dict[tuple[Branch, str], Pooled] = {}
        self._tally = FeatureTally(tuple(self._weights))
        self._spread: dict[tuple[int, int], Tensor] = {}

    def begin_call(self, call: DenoiserCall) -> None:
        """A call of the denoiser begins."""
        self._call = call

    @torch.no_grad()
    def after_layer(self, name: str, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        """A watched layer has given something out.

        Raises :class:`ObserveError` when it has no places, which weights need.
        """
        if self._call is None:
            return
        if isinstance(output, tuple | list):
            # Joint blocks give (text, picture), others their map first.
            two = self._adapter.joint and len(output) == 2 and (output[0] is None or output[0].dim() == 3)
            output = output[1] if two else output[0]
        held = cast(Tensor, output)
        if not 2 <= held.dim() <= 4:
            raise ObserveError(f"{name} gives {tuple(held.shape)}, which is neither a map nor rows of channels")
        places = self._adapter.token_places(self._pipe, self._call, held.shape[1]) if held.dim() == 3 else None
        held = held if places is None else held[:, places[0]]
        size = None if places is None else places[1]
        size = (int(held.shape[2]), int(held.shape[3])) if held.dim() == 4 else size
        weights = self._weights_on(name, size, held.device) if self._weights else None
        for branch, rows in self._adapter.branches(self._pipe, self._call, len(held)).items():
            self._pooled[branch, name] = pool(held[rows], size, self._cells, weights)
            if self.raw is not None:
                self.raw.take(name, branch, held[rows])

    def _weights_on(self, name: str, size: tuple[int, int] | None, device: torch.device) -> Tensor:
        if size is None:
            raise ObserveError(
                f"{name} gives out no map, so feature_weights can't weight it; leave one or the other out"
            )
        if size not in self._spread:
            spread = np.stack([by_area(value, size) for value in self._weights.values()])
            self._spread[size] = torch.from_numpy(spread).to(device, torch.float32)
        return self._spread[size]

    def end_step(self) -> None:
        """The scheduler makes a step."""
        self._call = None
        if self.layers:
            self._tally.steps.append(self._pooled)
            self._pooled = {}
        if self.raw is not None:
            self.raw.end_step()

    def datasets(self, levels: list[tuple[float, float, float]]) -> dict[str, xr.Dataset]:
        """By layer: see :meth:`~denoscope.observer.features.FeatureTally.datasets`."""
        return self._tally.datasets(levels)
