"""What was seen of one prompt's pictures, as a file: an experiment is a folder of such parts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from denoscope.information.errors import InformationError

_FEATURES: Final = "features/"
_BYTES_AT_ONCE: Final = 1 << 27


@dataclass(frozen=True, slots=True)
class Part:
    """The pictures of one prompt, one for each seed.

    ``features[layer]`` is ``(branches, steps, S, numbers)`` float16: mean and standard deviation of each channel over
    the places, then the means of the cells of a grid; ``channels[layer]`` is how many channels. ``levels`` is
    ``(steps, 3)`` float64: timestep, sigma and logsnr.
    ``latents`` ``(S, …)`` are the final ones.
    """

    prompt: str
    branches: tuple[str, ...]
    features: dict[str, Tensor]
    channels: dict[str, int]
    levels: Tensor
    latents: Tensor


def part_path(folder: Path, number: int) -> Path:
    """Where the part of a prompt lies."""
    return folder / f"{number:05d}.safetensors"


def write_part(folder: Path, number: int, part: Part) -> None:
    """Write a part, all or nothing: a kill leaves no half of it under its name."""
    path = part_path(folder, number)
    beside = path.with_suffix(".partial")
    held = {f"{_FEATURES}{layer}": tensor.contiguous() for layer, tensor in part.features.items()}
    held |= {"levels": part.levels, "latents": part.latents.contiguous()}
    told = {"prompt": part.prompt, "branches": list(part.branches), "channels": part.channels}
    save_file(held, beside, {"part": json.dumps(told)})
    beside.replace(path)


def is_written(folder: Path, number: int, prompt: str) -> bool:
    """Whether the part is there. Raises :class:`InformationError` when it is another prompt's, or damaged."""
    path = part_path(folder, number)
    if not path.is_file():
        return False
    if _told(path)["prompt"] != prompt:
        raise InformationError(f"{path} is of another experiment: give another folder")
    return True


def _told(path: Path) -> dict[str, object]:
    try:
        with safe_open(path, "pt") as file:
            told: dict[str, object] = json.loads((file.metadata() or {})["part"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise InformationError(f"{path} is damaged: delete it, and resume the run") from error
    return told


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a finished experiment, read a layer at a time."""

    folder: Path
    count: int
    branches: tuple[str, ...]
    channels: Mapping[str, int]
    levels: NDArray[np.float64]

    @classmethod
    def open(cls, folder: Path, count: int) -> "Parts":
        """Raises :class:`InformationError` when one of the ``count`` parts is missing or damaged."""
        for number in range(count):
            if not part_path(folder, number).is_file():
                raise InformationError(f"{part_path(folder, number)} is missing: resume the run to draw it")
        told = _told(part_path(folder, 0))
        with safe_open(part_path(folder, 0), "pt") as file:
            levels = file.get_tensor("levels").numpy()
        branches, channels = cast("list[str]", told["branches"]), cast("dict[str, int]", told["channels"])
        return cls(folder, count, tuple(branches), channels, levels)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in calling order."""
        return tuple(self.channels)

    def features(self, layer: str, branch: str, numbers: Sequence[int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Step by step, one layer's features in the pictures of some prompts: ``(prompts · seeds, numbers)`` float32.

        Rows go prompt by prompt, seed by seed. As many steps are read at a time as 128 MiB hold, or one.
        """
        at, steps = self.branches.index(branch), len(self.levels)
        with safe_open(part_path(self.folder, numbers[0]), "pt") as file:
            shape = file.get_slice(f"{_FEATURES}{layer}").get_shape()
        at_once = max(1, _BYTES_AT_ONCE // (2 * len(numbers) * shape[2] * shape[3]))
        for start in range(0, steps, at_once):
            rows = []
            for number in numbers:
                with safe_open(part_path(self.folder, number), "pt") as file:
                    rows.append(file.get_slice(f"{_FEATURES}{layer}")[at, start : start + at_once])
            held = torch.cat(rows, 1)
            for offset in range(len(held)):
                yield start + offset, held[offset].float().numpy()

    def latents(self, number: int) -> Tensor:
        """The final latents of a prompt's pictures, ``(S, …)``."""
        with safe_open(part_path(self.folder, number), "pt") as file:
            found: Tensor = file.get_tensor("latents")
        return found
