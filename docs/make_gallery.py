"""Draws the gallery of families: a map of one word by each, of tiny models with random weights, and of ``shapes``.

python -m docs.make_gallery
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from PIL import Image

import denoscope
from denoscope.observer import word_maps
from denoscope.reports.figures.attention_grid import over
from denoscope.reports.figures.canvas import Drawing, Picture, Text, to_image

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "observer"))

from family_calls import TEXT, call
from tiny_families import loaded, saved

IMAGES = Path(__file__).parent / "images"
CELL, COLUMNS = 84, 4
WORD = "circle"


def framed(picture: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The middle square of a picture ``(h, w, 3)`` in [0, 1]."""
    side = min(picture.shape[:2])
    top, left = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
    return np.rint(np.nan_to_num(picture[top : top + side, left : left + side]) * 255).astype(np.uint8)


def mapped(trace_map: NDArray[np.float64], picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A map over its picture in grey, from the map's least to its greatest value."""
    side = min(trace_map.shape)
    top, left = (trace_map.shape[0] - side) // 2, (trace_map.shape[1] - side) // 2
    square = trace_map[top : top + side, left : left + side]
    zoom = max(1, -(-CELL // picture.shape[0]))
    large = picture.repeat(zoom, 0).repeat(zoom, 1)
    grey = large.mean(-1, keepdims=True).astype(np.float64)
    return over(square, grey, float(square.min()), float(square.max()))


def main() -> None:
    """One cell each: the picture, and where it looks at "circle", mean over layers, in the last step."""
    cells: list[tuple[str, NDArray[np.uint8], NDArray[np.uint8]]] = []
    pipe = denoscope.load("shapes", "cpu")
    pipe.set_progress_bar_config(disable=True)
    with denoscope.observe(pipe, words=[WORD], x0=False) as watch:
        drawn = pipe(
            "a red circle above a blue square", num_inference_steps=25, guidance_scale=1.5, output_type="np",
            generator=torch.Generator().manual_seed(0),
        ).images[0]  # fmt: skip
    cells.append(("shapes", framed(drawn), mapped(last(watch.trace), framed(drawn))))
    for name in TEXT:
        if name in ("kandinsky-prior", "kandinsky-decoder"):
            continue  # no map, no words
        with tempfile.TemporaryDirectory() as folder:
            tiny = loaded(name, saved(name, Path(folder)))
            with denoscope.observe(tiny, words=[WORD], x0=False, guidance=False) as watch:
                pixels = call(name, tiny, size=(16, 16))[0]
            cells.append((name, framed(pixels), mapped(last(watch.trace), framed(pixels))))
    items: list[Text | Picture] = []
    for index, (name, picture, heat) in enumerate(cells):
        x, y = (index % COLUMNS) * (2 * CELL + 24), (index // COLUMNS) * (CELL + 28)
        items.append(Text(x, y + 10, f"{name} (trained)" if name == "shapes" else name))
        items.append(Picture(x, y + 22, CELL, CELL, picture))
        items.append(Picture(x + CELL + 4, y + 22, CELL, CELL, heat))
    rows = -(-len(cells) // COLUMNS)
    sheet = Drawing(COLUMNS * (2 * CELL + 24), rows * (CELL + 28) + 4, "Maps of a word by family", tuple(items))
    image: Image.Image = to_image(sheet)
    image.save(IMAGES / "gallery.png", optimize=True)


def last(trace: xr.Dataset) -> NDArray[np.float64]:
    """The word's map in the last step, mean over layers."""
    maps = word_maps(trace).isel(word=0)
    values: NDArray[np.float64] = np.asarray(maps.isel(step=-1), dtype=np.float64)
    return values


if __name__ == "__main__":
    main()
