"""Where each head of each layer looks for one word, over the final picture."""

from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from PIL import Image

from denoscope.reports.errors import ReportError
from denoscope.reports.figures.attention_grid import over
from denoscope.reports.figures.canvas import Dot, Drawing, Line, Picture, Text

_CELL: Final = 72
_GAP: Final = 4
_HEAD: Final = 30
_LETTER: Final = 7.5
"""About how wide a letter is, to leave room for the longest name."""
_SAID_OFTEN: Final = ("attentions", "transformer_blocks", "attn", "attn1", "attn2")


def layer_label(name: str) -> str:
    """A layer's dotted name without the parts that all have.

    >>> layer_label("down_blocks.0.attentions.1.transformer_blocks.0.attn2"), layer_label("transformer_blocks.3.attn")
    ('down_blocks.0.1.0', 'transformer_blocks.3')
    """
    first, *rest = name.split(".")
    return ".".join([first, *(part for part in rest if part not in _SAID_OFTEN)])


def head_grid(maps: xr.DataArray, picture: NDArray[np.uint8]) -> Drawing:
    """A row for each layer and a column for each head, over the picture dimmed to grey.

    ``maps`` is ``(layer, head, y, x)``, NaN where a layer has no such head; ``picture`` is ``(H, W, 3)`` uint8. Every
    map has its own colour scale, from its least to its greatest value: heads differ by form here, not by amount. Maps
    are not smoothed. Raises :class:`~denoscope.reports.ReportError` without layers or heads.

    >>> maps = xr.DataArray(np.ones((1, 2, 4, 4)), dims=("layer", "head", "y", "x"), coords={"layer": ["mid.attn2"]})
    >>> drawing = head_grid(maps, np.zeros((64, 64, 3), dtype=np.uint8))
    >>> [item.text for item in drawing.items if isinstance(item, Text)]
    ['head 0', 'head 1', 'mid']
    """
    maps = maps.transpose("layer", "head", "y", "x")
    layers, heads = [layer_label(str(name)) for name in maps["layer"].values], maps.sizes["head"]
    if not layers or not heads:
        raise ReportError("a grid of heads needs at least one layer and one head")
    cell = (_CELL, max(8, round(_CELL * picture.shape[0] / picture.shape[1])))
    small = Image.fromarray(picture).convert("L").resize(cell)
    grey = np.asarray(small, dtype=np.float64)[:, :, None] * 0.8
    margin = 20 + _LETTER * max(len(label) for label in layers)
    columns = [margin + number * (_CELL + _GAP) for number in range(heads)]
    items: list[Text | Picture | Line | Dot] = [
        Text(x + _CELL / 2, 15, f"head {number}", 11, "middle") for number, x in enumerate(columns)
    ]
    for row, label in enumerate(layers):
        top = _HEAD + row * (cell[1] + _GAP)
        items.append(Text(margin - 10, top + cell[1] / 2, label, 12, "end"))
        for x, value in zip(columns, np.asarray(maps.isel(layer=row).values, dtype=np.float64), strict=True):
            if np.isfinite(value).any():
                items.append(
                    Picture(x, top, *cell, over(value, grey, float(np.nanmin(value)), float(np.nanmax(value))))
                )
    height = _HEAD + len(layers) * (cell[1] + _GAP) + 4
    return Drawing(
        int(columns[-1]) + _CELL + 10, height, f"Attention of {heads} heads in {len(layers)} layers", (*items,)
    )
