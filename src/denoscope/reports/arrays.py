"""Arrays inside an HTML page: maps as bytes, statistics as float32, all in one compressed block."""

import base64
import gzip
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PackedMaps:
    """Maps as bytes: ``levels`` (..., h, w) uint8 and ``scale`` (...) float32; value = level / 255 * scale.

    A map with a NaN was not observed; its scale is NaN. ``factor`` is by how much the maps were coarsened.
    """

    levels: NDArray[np.uint8]
    scale: Floats
    factor: int


def quantise(maps: Floats) -> PackedMaps:
    """Store non-negative maps (..., h, w) as bytes, each on its own scale: off by at most its peak / 510.

    >>> packed = quantise(np.float32([[[0.0, 0.5]], [[np.nan, 0.1]]]))
    >>> packed.levels.tolist(), packed.scale.tolist()
    ([[[0, 255]], [[0, 0]]], [0.5, nan])
    """
    scale = maps.max((-2, -1))
    safe = np.where(scale > 0, scale, 1.0)[..., None, None]
    observed = np.isfinite(scale)[..., None, None]
    levels = np.rint(np.where(observed, np.clip(maps, 0, None) / safe, 0.0) * 255)
    return PackedMaps(levels.astype(np.uint8), np.where(np.isfinite(scale), scale, np.nan).astype(np.float32), 1)


def coarsen(maps: Floats, factor: int) -> Floats:
    """Average maps (..., h, w) over blocks of ``factor`` x ``factor``; blocks at an edge may be smaller.

    >>> coarsen(np.float32([[1, 3, 5]]), 2).tolist()
    [[2.0, 5.0]]
    """
    height, width = maps.shape[-2:]
    rows, columns = np.arange(0, height, factor), np.arange(0, width, factor)
    sums = np.add.reduceat(np.add.reduceat(maps, rows, -2), columns, -1)
    row_sizes, column_sizes = np.diff([*rows, height]), np.diff([*columns, width])
    return np.asarray(sums / np.multiply.outer(row_sizes, column_sizes), np.float32)


def pack_maps(maps: Floats, budget: int) -> PackedMaps:
    """Store maps (..., h, w) as bytes, coarsened by powers of two until they compress to ``budget`` bytes."""
    factor = 1
    while True:
        height, width = maps.shape[-2:]
        smallest = max(height, width) <= factor
        # Maps hardly ever compress tenfold: skip the work where even that would not do.
        if smallest or maps.size / factor**2 <= 10 * budget:
            packed = quantise(coarsen(maps, factor) if factor > 1 else maps)
            if smallest or len(gzip.compress(packed.levels.tobytes(), 6, mtime=0)) <= budget:
                return PackedMaps(packed.levels, packed.scale, factor)
        factor *= 2


@dataclass(slots=True)
class ArrayBlock:
    """Collects named arrays into one block of bytes, and a directory of where each is in it."""

    parts: list[bytes] = field(default_factory=list)
    directory: dict[str, dict[str, str | int | list[int]]] = field(default_factory=dict)
    size: int = 0

    def add(self, name: str, array: NDArray[np.uint8] | Floats) -> None:
        """Add an array of bytes or of float32; little-endian and aligned, as typed arrays want it."""
        kind = "uint8" if array.dtype == np.uint8 else "float32"
        data = np.ascontiguousarray(array, np.uint8 if kind == "uint8" else "<f4").tobytes()
        self.directory[name] = {"kind": kind, "shape": list(array.shape), "offset": self.size}
        padding = -len(data) % 4
        self.parts.append(data + bytes(padding))
        self.size += len(data) + padding

    def encode(self) -> str:
        """The whole block, compressed, as base64 text."""
        return encode_bytes(b"".join(self.parts))


def encode_bytes(data: bytes) -> str:
    """Compress bytes (gzip, the same every time) and write them as base64 text."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")
