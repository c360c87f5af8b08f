"""Whole outputs of layers, written to disk step by step and read back without being loaded."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from denoscope.observer.errors import ObserveError
from denoscope.pipelines.adapters import Branch

RawType = Literal["float16", "float32"]
_INDEX: Final = "index.json"
_LEVELS: Final = ("timestep", "sigma", "logsnr")


@dataclass(slots=True)
class _LayerFile:
    """A ``.npy`` file in the making, ``(step, branch, *shape)``; ``start`` is where its numbers begin."""

    path: Path
    branches: list[Branch]
    shape: tuple[int, ...]
    dtype: RawType
    steps: int = 0
    start: int = 0

    def seal(self) -> None:
        """Write how many steps there are. numpy leaves room for that number, so nothing moves."""
        whole = (self.steps, len(self.branches), *self.shape)
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(self.dtype)), "fortran_order": False, "shape": whole}
        with self.path.open("r+b" if self.start else "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            if self.start and file.tell() != self.start:
                raise ObserveError(f"{self.path.name} can't be finished: this numpy leaves no room for {self.steps}")
            self.start = file.tell()

    def append(self, found: Mapping[Branch, Tensor]) -> None:
        """One more step; NaN where a branch was not seen."""
        step = np.full((len(self.branches), *self.shape), np.nan, self.dtype)
        for branch, value in found.items():
            step[self.branches.index(branch)] = value.numpy()
        with self.path.open("ab") as file:
            file.write(step.data)
        self.steps += 1

    def widen(self, branches: Sequence[Branch]) -> None:
        """Make room for further branches in all steps."""
        self.seal()
        before: NDArray[np.float32] = np.load(self.path, mmap_mode="r")
        wider = _LayerFile(self.path.with_suffix(".wider"), [*self.branches, *branches], self.shape, self.dtype)
        wider.seal()
        for step in before:
            values = [torch.from_numpy(np.array(value)) for value in step]
            wider.append(dict(zip(self.branches, values, strict=True)))
        del before
        wider.path.replace(self.path)
        self.branches, self.start = wider.branches, wider.start


class RawWriter:
    """Writes into a hidden folder beside ``folder``, which takes its place when all is well.

    Raises :class:`ObserveError` when ``folder`` is a file or holds something.
    """

    def __init__(self, folder: Path | str, dtype: RawType) -> None:
        if dtype not in ("float16", "float32"):
            raise ObserveError(f"raw_dtype {dtype!r} is none: give 'float16' or 'float32'")
        self.folder = Path(folder).absolute()
        self._partial = self.folder.with_name(f".{self.folder.name}.partial")
        self._dtype: RawType = dtype
        self._files: dict[str, _LayerFile] = {}
        self._step: dict[str, dict[Branch, Tensor]] = {}
        self._steps = 0
        self._check()

    def _check(self) -> None:
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ObserveError(f"raw_features={str(self.folder)!r} exists and is not empty: choose another folder")

    def open(self) -> None:
        """Make the hidden folder. Raises :class:`ObserveError` when it can't be made."""
        self._check()
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self._partial.mkdir()
        except FileExistsError:
            raise ObserveError(
                f"something else is writing to {self.folder}; choose another folder, or delete {self._partial} if what "
                "wrote it was killed"
            ) from None
        except OSError as error:
            raise ObserveError(f"{self.folder} can't be made: {error.strerror}; choose another folder") from error

    def take(self, layer: str, branch: Branch, output: Tensor) -> None:
        """One layer's output ``(S, …)`` in the step that is on; the last of a step counts.

        Raises :class:`ObserveError` for numbers beyond float16.
        """
        kept = output.detach().to("cpu", getattr(torch, self._dtype), copy=True)
        if self._dtype == "float16" and bool((kept.isinf() & output.detach().cpu().isfinite()).any()):
            raise ObserveError(f"{layer} gives numbers beyond float16; observe with raw_dtype='float32'")
        self._step.setdefault(layer, {})[branch] = kept

    def end_step(self) -> None:
        """Write what was taken.

        Numbers are appended, not put into a mapped file: a full disk is then an error that can be told, where a mapped
        file would end the process; and the number of steps need not be known.
        """
        for layer, found in self._step.items():
            shape = tuple(next(iter(found.values())).shape)
            if layer not in self._files:
                self._files[layer] = _LayerFile(self._partial / f"{layer}.npy", sorted(found), shape, self._dtype)
                self._files[layer].seal()
            held = self._files[layer]
            if any(tuple(value.shape) != held.shape for value in found.values()):
                raise ObserveError(f"{layer} gives {shape} after {held.shape}, which can't stand in one array")
            new = [branch for branch in found if branch not in held.branches]
            if new:
                held.widen(new)
            while held.steps < self._steps:
                held.append({})
            held.append(found)
        self._step = {}
        self._steps += 1

    def finish(self, levels: Sequence[tuple[float, float, float]]) -> None:
        """Put the folder in its place. Raises :class:`ObserveError` when that can't be done."""
        for held in self._files.values():
            while held.steps < self._steps:
                held.append({})
            held.seal()
        index = {
            "layers": {layer: held.branches for layer, held in self._files.items()},
            **{name: [str(level[column]) for level in levels] for column, name in enumerate(_LEVELS)},
        }
        (self._partial / _INDEX).write_text(json.dumps(index, indent=1) + "\n", "utf-8", newline="\n")
        try:
            if self.folder.is_dir():
                self.folder.rmdir()  # fails when something was put there meanwhile
            self._partial.rename(self.folder)
        except OSError as error:
            raise ObserveError(f"{self.folder} can't be put in its place: {error.strerror}") from error

    def discard(self) -> None:
        """Leave nothing behind; a finished folder stays."""
        shutil.rmtree(self._partial, ignore_errors=True)
        self._step = {}


def read_raw(folder: Path | str) -> dict[str, xr.DataArray]:
    """The layers of a folder that ``observe(…, raw_features=folder)`` wrote, by dotted name; read-only, not loaded.

    ``(step, branch, sample, channel, y, x)``, or ``(step, branch, sample, place, channel)`` of layers that give rows,
    and without ``place`` of those that give one row a picture; with ``timestep``, ``sigma`` and ``logsnr`` along
    ``step``. NaN where a layer or a branch was not called. Raises :class:`ObserveError` when it is no such folder.
    """
    path = Path(folder) / _INDEX
    try:
        index = json.loads(path.read_text("utf-8"))
        arrays = {layer: np.load(Path(folder) / f"{layer}.npy", mmap_mode="r") for layer in index["layers"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ObserveError(f"{folder} holds no raw features that can be read: {error}") from error
    found: dict[str, xr.DataArray] = {}
    for layer, branches in index["layers"].items():
        rest = {3: ("channel", "y", "x"), 2: ("place", "channel"), 1: ("channel",)}[arrays[layer].ndim - 3]
        levels = {name: ("step", np.array([float(number) for number in index[name]])) for name in _LEVELS}
        coords = {"step": np.arange(len(arrays[layer])), "branch": branches, **levels}
        found[layer] = xr.DataArray(arrays[layer], coords, ("step", "branch", "sample", *rest), layer)
    return found
