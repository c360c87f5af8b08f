"""The pictures of a report, small enough to embed."""

import base64
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from PIL import Image

from denoscope.reports.errors import ReportError

SIDES = (512, 384, 256, 192, 128)
"""Longest sides, in pixels, at which large pictures are tried."""


@dataclass(frozen=True, slots=True)
class ReportImages:
    """Picture files: the final one, and those of the predicted clean latent by step. All may be missing."""

    final: Path | None = None
    x0: Mapping[int, Path] = field(default_factory=dict)

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """The pictures of a run folder: ``images/final.png`` and ``images/x0_000.png`` onwards."""
        final = folder / "images/final.png"
        found = {
            int(match[1]): path
            for path in (folder / "images").glob("x0_*.png")
            if (match := re.fullmatch(r"x0_(\d+)", path.stem))
        }
        return cls(final if final.is_file() else None, dict(sorted(found.items())))


@dataclass(frozen=True, slots=True)
class EmbeddedPictures:
    """Pictures as ``data:`` addresses; ``steps[i]`` is the step of ``sources[i]``, in rising order."""

    sources: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


def embed_steps(pictures: Mapping[int, Path], budget: int) -> EmbeddedPictures:
    """Embed the pictures of the steps in about ``budget`` bytes.

    Small pictures stay exact (PNG). Large ones become WebP, as large as the budget allows; when even the
    smallest size is too much, evenly spaced steps are left out.

    Raises :class:`ReportError` when a file is no picture.
    """
    steps = sorted(pictures)
    if not steps:
        return EmbeddedPictures()
    exact = [_read(pictures[step]) for step in steps]
    largest = max(max(picture.size) for picture in exact)
    encoded: list[bytes] = []
    for side in [0, *(side for side in SIDES if side < 2 * largest)] if largest <= 256 else SIDES:
        encoded = [_png(picture) if side == 0 else _webp(picture, side) for picture in exact]
        if sum(map(len, encoded)) <= budget:
            break
    keep = list(range(len(steps)))
    while sum(len(encoded[index]) for index in keep) > budget and len(keep) > 2:
        keep = [*keep[:-1:2], keep[-1]]
    return EmbeddedPictures(tuple(_address(encoded[i]) for i in keep), tuple(steps[i] for i in keep))


def embed_one(path: Path, side: int = 768) -> str:
    """Embed one picture, exact when small. Raises :class:`ReportError` when the file is no picture."""
    picture = _read(path)
    return _address(_png(picture) if max(picture.size) <= 256 else _webp(picture, side))


def _read(path: Path) -> Image.Image:
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ReportError(f"{path} can't be read as a picture: {error}.") from error


def _png(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _webp(picture: Image.Image, side: int) -> bytes:
    copy = picture.copy()
    copy.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    copy.save(stream, "WEBP", quality=84, method=4)
    return stream.getvalue()


def _address(data: bytes) -> str:
    kind = "png" if data.startswith(b"\x89PNG") else "webp"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
