"""Where each word looks at chosen steps, over the final picture; and how wide it looks, over log-SNR."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from PIL import Image

from denoscope.reports.errors import ReportError
from denoscope.reports.figures.axis import nice_ticks, step_axis
from denoscope.reports.figures.canvas import Dot, Drawing, Line, Picture, Text
from denoscope.reports.figures.style import MAP_COLOURS, word_line

_CELL: Final = 112
_GAP: Final = 6
_MARGIN: Final = 96
"""Room for the words, left of the maps."""
_BAR: Final = 68
"""Room for a row's colour bar and its two numbers, right of the maps."""
_HEAD: Final = 46
_HEAT: Final = 0.6
"""How much of a place's colour is the map's; the rest is the picture in grey."""
_LONGEST: Final = 13
_HEADING: Final = 26


def attention_grid(maps: xr.DataArray, picture: NDArray[np.uint8], steps: Sequence[int], heading: str = "") -> Drawing:
    """A row of maps for each word, a column for each chosen step, over the final picture dimmed to grey.

    ``maps`` is ``(word, step, y, x)`` with coordinates ``word``, ``step`` and, where known, ``logsnr``; ``picture`` is
    ``(H, W, 3)`` uint8; ``steps`` are values of the ``step`` coordinate. Each row has one colour scale, from the least
    to the greatest value of the maps shown in it, written at its bar: rows can't be compared by colour. Maps are not
    smoothed. The first column is the picture itself. A ``heading`` stands above it all, and names the drawing.

    Raises :class:`~denoscope.reports.ReportError` for a step that the maps don't have, no step, no word, or a picture
    of another form.

    >>> maps = xr.DataArray(np.ones((1, 2, 4, 4)), dims=("word", "step", "y", "x"),
    ...                     coords={"word": ["cat"], "step": [0, 1], "logsnr": ("step", [-9.0, 9.0])})
    >>> drawing = attention_grid(maps, np.zeros((64, 64, 3), dtype=np.uint8), [0, 1])
    >>> [item.text for item in drawing.items if isinstance(item, Text)][:4]
    ['picture', 'step 0', 'log-SNR −9.0', 'step 1']
    """
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise ReportError(f"the picture of an attention grid is (H, W, 3) uint8, not {picture.shape} {picture.dtype}")
    words = [str(word) for word in maps["word"].values]
    known = [int(step) for step in maps["step"].values]
    if not words or not steps:
        raise ReportError("an attention grid needs at least one word and one step")
    for step in steps:
        if step not in known:
            raise ReportError(f"there is no step {step} in these maps: they have {known[0]} to {known[-1]}")
    shown = maps.isel(step=[known.index(step) for step in steps]).transpose("word", "step", "y", "x")

    cell = (_CELL, max(8, round(_CELL * picture.shape[0] / picture.shape[1])))
    small = Image.fromarray(picture).resize((cell[0] * 2, cell[1] * 2), _way_of(picture, cell))
    grey = np.asarray(small.convert("L"), dtype=np.float64)[:, :, None] * 0.8
    columns = [_MARGIN + number * (_CELL + _GAP) for number in range(len(steps) + 1)]
    above = _HEADING if heading else 0
    items: list[Text | Picture | Line | Dot] = [Text(6, 14, heading, 14)] if heading else []
    items.append(Text(columns[0] + _CELL / 2, above + 17, "picture", anchor="middle"))
    for x, step, title in zip(columns[1:], steps, _levels(shown), strict=True):
        items.append(Text(x + _CELL / 2, above + 13, f"step {step}", anchor="middle"))
        items.append(Text(x + _CELL / 2, above + 31, title, 11, "middle", "#777777"))
    for row, word in enumerate(words):
        top = above + _HEAD + row * (cell[1] + _GAP)
        middle = top + cell[1] / 2
        items.append(Text(_MARGIN - 10, middle, shorten(word), 14, "end"))
        items.append(Picture(columns[0], top, *cell, np.asarray(small)))
        values = np.asarray(shown.isel(word=row).values, dtype=np.float64)
        low, high = _ends(values)
        for x, value in zip(columns[1:], values, strict=True):
            items.append(Picture(x, top, *cell, over(value, grey, low, high)))
        items += _bar(columns[-1] + _CELL + 10, top, cell[1], low, high)
    width = columns[-1] + _CELL + 10 + _BAR
    height = above + _HEAD + len(words) * (cell[1] + _GAP) + 4
    name = heading or f"Attention of {', '.join(words)} at the steps {', '.join(map(str, steps))}"
    return Drawing(width, height, name, (*items,))


def over(values: NDArray[np.float64], grey: NDArray[np.float64], low: float, high: float) -> NDArray[np.uint8]:
    """A map ``(y, x)`` in colours over a grey picture ``(h, w, 1)`` of levels 0…255; places unknown stay grey.

    >>> over(np.array([[0.0, 1.0]]), np.zeros((2, 2, 1)), 0.0, 1.0)[0].tolist()
    [[41, 1, 50], [152, 139, 22]]
    """
    height, width = grey.shape[:2]
    # Places of the map by the middle of each pixel: exact for any pair of sizes.
    rows = ((np.arange(height) + 0.5) * values.shape[0] / height).astype(int)
    columns = ((np.arange(width) + 0.5) * values.shape[1] / width).astype(int)
    fine = values[rows][:, columns]
    known = np.isfinite(fine)[:, :, None]
    heat = colours((np.nan_to_num(fine) - low) / ((high - low) or 1.0))
    blended = np.where(known, _HEAT * heat + (1 - _HEAT) * grey, np.broadcast_to(grey, heat.shape))
    return np.rint(blended).clip(0, 255).astype(np.uint8)


def colours(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Levels 0…255 ``(…, 3)`` of the maps' colour scale for values in [0, 1], straight between its ten colours."""
    table = np.array([[int(code[i : i + 2], 16) for i in (1, 3, 5)] for code in MAP_COLOURS], dtype=np.float64)
    places = np.linspace(0, 1, len(table))
    return np.stack([np.interp(values, places, table[:, channel]) for channel in range(3)], axis=-1)


def area_curves(curve: xr.Dataset) -> Drawing:
    """The effective area of each word's map over log-SNR, noise left and picture right.

    ``curve`` has ``effective_area`` ``(word, step)`` and ``logsnr`` along ``step``, as
    :func:`denoscope.observer.sharpening` makes it. The vertical axis begins where the values do, not at 0: wide maps
    differ by little. Raises :class:`~denoscope.reports.ReportError` without words or steps.

    >>> area = xr.DataArray([[1.0, 0.5]], dims=("word", "step"), coords={"word": ["cat"], "step": [0, 1]})
    >>> curve = xr.Dataset({"effective_area": area.assign_coords(logsnr=("step", [-9.0, 9.0]))})
    >>> [item.text for item in area_curves(curve).items if isinstance(item, Text)][-2:]
    ['cat', 'effective area of a word’s map (1: the whole picture)']
    """
    area = curve["effective_area"].transpose("word", "step")
    if not area.sizes["word"] or not area.sizes["step"]:
        raise ReportError("a curve of effective areas needs at least one word and one step")
    left, right, top, bottom = 56.0, 470.0, 34.0, 250.0
    axis = step_axis(curve)
    low, high = _room(np.asarray(area.values, dtype=np.float64))

    def across(at: float) -> float:
        start, end = axis.range
        return left + (at - start) / (end - start) * (right - left)

    def down(value: float) -> float:
        return bottom - (value - low) / (high - low) * (bottom - top)

    items: list[Text | Picture | Line | Dot] = []
    for tick in nice_ticks(low, high):
        items.append(Line(((left, down(tick)), (right, down(tick)))))
        items.append(Text(left - 8, down(tick), f"{tick:g}", 11, "end", "#777777"))
    for at, label in axis.ticks:
        items.append(Line(((across(at), bottom), (across(at), bottom + 4)), "#999999"))
        items.append(Text(across(at), bottom + 15, label, 11, "middle", "#777777"))
    items.append(Text((left + right) / 2, bottom + 34, axis.title, 12, "middle"))
    for index, word in enumerate(area["word"].values):
        colour, dash = word_line(index)
        values = [float(value) for value in area.isel(word=index).values]
        places = [(across(float(at)), down(value)) for at, value in zip(axis.positions, values, strict=True)]
        for run in _known_runs(places):
            items += [Line(run, colour, 2.0, dash)] if len(run) > 1 else []
            items += [Dot(*place, 2.4, colour) for place in run]
        y = top + 8 + 19 * index
        items.append(Line(((right + 18, y), (right + 42, y)), colour, 2.0, dash))
        items.append(Text(right + 49, y, shorten(str(word))))
    items.append(Text(left, 15, "effective area of a word’s map (1: the whole picture)"))
    height = max(int(bottom) + 46, int(top) + 19 * area.sizes["word"] + 10)
    return Drawing(int(right) + 170, height, "Effective area of each word's map over log-SNR", (*items,))


def shorten(word: str) -> str:
    """A word as long as there is room for.

    >>> shorten("cat"), shorten("extraordinarily")
    ('cat', 'extraordinar…')
    """
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…"


def _way_of(picture: NDArray[np.uint8], cell: tuple[int, int]) -> Image.Resampling:
    # A small picture's pixels are what there is to see; a large one would alias.
    return Image.Resampling.NEAREST if picture.shape[1] <= cell[0] * 2 else Image.Resampling.LANCZOS


def _levels(maps: xr.DataArray) -> list[str]:
    if "logsnr" not in maps.coords:
        return [""] * maps.sizes["step"]
    return [f"log-SNR {_number(float(level))}" for level in maps["logsnr"].values]


def _number(value: float) -> str:
    if math.isinf(value):
        return "+∞" if value > 0 else "−∞"
    return f"{value:.1f}".replace("-", "−")


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


def _bar(x: float, top: float, height: float, low: float, high: float) -> list[Text | Picture | Line | Dot]:
    shades = colours(np.linspace(1, 0, 64))[:, None]
    bar = Picture(x, top, 8, height, np.rint(_HEAT * shades + (1 - _HEAT) * 90).astype(np.uint8))
    numbers = [Text(x + 13, y, f"{value:.2g}", 11) for y, value in ((top + 7, high), (top + height - 7, low))]
    return [bar, *numbers]


def _room(values: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of the vertical axis: a little around the values, inside [0, 1]."""
    low, high = _ends(values)
    pad = 0.08 * (high - low) or 0.05
    return max(0.0, low - pad), min(1.0 + 0.02 * (high - low + pad), high + pad)


def _known_runs(places: list[tuple[float, float]]) -> list[tuple[tuple[float, float], ...]]:
    """Neighbours that are known, in pieces: a line must not run over a step that was not seen."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place in places:
        if math.isnan(place[1]):
            runs.append([])
        else:
            runs[-1].append(place)
    return [tuple(run) for run in runs if run]
