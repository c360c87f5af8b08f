"""Folders of one's own pictures: any mode, any size; bad files are told."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from denoscope.data.errors import DataError
from denoscope.data.folders import classes_of, read_files
from denoscope.data.pictures.pictures import PictureSet

SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})


def load_folder(
    folder: Path,
    size: int | tuple[int, int],
    channels: Literal[1, 3] = 3,
    *,
    bad_files: Literal["skip", "fail"] = "skip",
    captions: Path | None = None,
    background: tuple[int, int, int] = (255, 255, 255),
    progress: Callable[[int, int], None] | None = None,
) -> PictureSet:
    """Read every picture under ``folder``, in the order of their names, as ``(N, channels, H, W)``.

    Grey, palette, transparent and 16-bit files are turned into ``channels`` channels; what is transparent shows
    ``background``. A picture is turned as its EXIF says, shrunk or enlarged until it covers ``size`` (one number, or
    height and width; Lanczos), and cut to it around its middle. The first frame of an animation counts.

    Subfolders are classes, if all pictures lie in subfolders. ``captions`` is a CSV with the columns ``file_name`` and
    ``text``, or a JSON-lines file with these keys; pictures without a line in it are skipped.

    Raises :class:`DataError` when there is no such folder, fewer than two pictures can be read, or, with
    ``bad_files="fail"``, at the first file that can't.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise DataError(f"the size must be positive, not {height}×{width}")
    told = None if captions is None else read_captions(captions)
    found = read_files(
        folder,
        SUFFIXES,
        lambda path: read_picture(path, height, width, channels, background),
        (OSError, ValueError, SyntaxError, Image.DecompressionBombError),
        kind="pictures",
        bad_files=bad_files,
        only=told,
        progress=progress,
    )
    names = tuple(path.as_posix() for path in found.paths)
    classes, labels = classes_of(found.paths)
    texts = None if told is None else tuple(told[name] for name in names)
    pixels = torch.from_numpy(np.stack(found.items)).permute(0, 3, 1, 2).contiguous()
    return PictureSet(pixels, names, labels, classes, texts, tuple(found.skipped))


def read_picture(
    path: Path, height: int, width: int, channels: Literal[1, 3], background: tuple[int, int, int] = (255, 255, 255)
) -> NDArray[np.uint8]:
    """One picture as ``(height, width, channels)``; see :func:`load_folder`.

    Raises what Pillow raises for a file that it can't read.
    """
    with Image.open(path) as opened:
        image = ImageOps.fit(plain(opened, channels, background), (width, height), Image.Resampling.LANCZOS)
    array = np.asarray(image, np.uint8)
    return array[..., None] if channels == 1 else array


def plain(
    opened: Image.Image, channels: Literal[1, 3] = 3, background: tuple[int, int, int] = (255, 255, 255)
) -> Image.Image:
    """A picture of any mode as Pillow's ``L`` or ``RGB`` at its own size: upright, over ``background``, of 8 bits.

    Raises what Pillow raises for data that it can't read.

    >>> plain(Image.new("RGBA", (2, 1), (0, 0, 0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    image = ImageOps.exif_transpose(opened)
    if image.mode.startswith(("I", "F")):  # 16 bits and more: Pillow would cut off above 255
        deep = np.asarray(image, np.float64)
        scale = 65535 if image.mode.startswith("I") else max(float(deep.max()), 1e-12)
        image = Image.fromarray(np.rint((deep / scale).clip(0, 1) * 255).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (*background, 255)), image)
    return image.convert("L" if channels == 1 else "RGB")


def read_captions(path: Path) -> dict[str, str]:
    """Captions by file name, from ``.csv`` or JSON lines with ``file_name`` and ``text``.

    Raises :class:`DataError` naming the file and the line that is wrong.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read ({error})") from error
    found: dict[str, str] = {}
    for number, row in _rows(path, text):
        name, caption = row.get("file_name"), row.get("text")
        if not isinstance(name, str) or not isinstance(caption, str):
            raise DataError(f"{path}, line {number}: file_name and text are needed, both of them text")
        found[Path(name).as_posix()] = caption
    return found


def _rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    if path.suffix.lower() == ".csv":
        for number, row in enumerate(csv.DictReader(text.splitlines()), start=2):
            yield number, row
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: no JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: a JSON object is needed")
        yield number, row
