"""How much of each word is known over log-SNR, and where in the network."""

import math
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from denoscope.reports.errors import ReportError
from denoscope.reports.figures.attention_grid import shorten
from denoscope.reports.figures.axis import StepAxis, step_axis
from denoscope.reports.figures.canvas import Dot, Drawing, Item, Line, Text
from denoscope.reports.figures.strips import across, level_ticks, strip
from denoscope.reports.figures.style import word_line

_LEFT: Final = 150.0
_WIDTH: Final = 360.0
_HEIGHT: Final = 150.0
_ROW: Final = 13.0
_BRANCHES: Final = {"uncond": "written: without the prompt", "cond": "injected: with the prompt"}


def dynamics_figure(results: xr.Dataset) -> Drawing:
    """Above, each word's share known in the layer that knows most; below, a row a layer in colours for each word.

    ``results`` has ``fraction_known`` with ``_low`` and ``_high`` over ``(slot, branch, layer, step)``, ``t50`` over
    ``(slot, branch, layer)``, and ``logsnr`` along ``step``. One column a branch. The band is the interval; the upright
    line is the decision time t50; shares below 0 are drawn at 0.

    Raises :class:`~denoscope.reports.ReportError` for results without a slot or a step.
    """
    known = results["fraction_known"].transpose("slot", "branch", "layer", "step")
    if not known.size:
        raise ReportError("a figure of dynamics needs at least one slot, branch, layer and step")
    axis = step_axis(results)
    branches, layers = [str(name) for name in known["branch"].values], [str(name) for name in known["layer"].values]
    items: list[Item] = []
    top = 56.0
    bottom = top + _HEIGHT
    for number, branch in enumerate(branches):
        left = _LEFT + number * (_WIDTH + 40)
        items.append(Text(left, 16, _BRANCHES.get(branch, branch), 13))
        items += _frame(axis, left, top, bottom)
        for index, slot in enumerate(known["slot"].values):
            cell = {"slot": index, "branch": number}
            best = best_layer(results.isel(cell))
            items += _curve(results.isel(cell | {"layer": best}), axis, left, top, bottom, index)
            if number == 0:
                colour, dash = word_line(index)
                y = top + 8 + 18 * index
                items.append(Line(((12, y), (36, y)), colour, 2.0, dash))
                items.append(Text(42, y, shorten(str(slot))))
        for index, slot in enumerate(known["slot"].values):
            start = bottom + 62 + index * (_ROW * len(layers) + 26)
            shares = np.clip(np.nan_to_num(known.isel(slot=index, branch=number).values), 0, 1)
            items += strip(shares, axis, left, start, _WIDTH, _ROW)
            if number == 0:
                items.append(Text(_LEFT, start - 9, f"{slot}: share known, layer by layer", 12))
                items += [
                    Text(_LEFT - 8, start + _ROW * (row + 0.5), name, 10, "end") for row, name in enumerate(layers)
                ]
    height = int(bottom + 62 + known.sizes["slot"] * (_ROW * len(layers) + 26) + 8)
    width = int(_LEFT + len(branches) * (_WIDTH + 40) + 10)
    return Drawing(width, height, "Share of each word that is known, over log-SNR", (*items,))


def best_layer(cell: xr.Dataset) -> int:
    """The layer whose share known, averaged over steps, is greatest. ``cell`` is over ``(layer, step)``."""
    means = np.nan_to_num(cell["fraction_known"].transpose("layer", "step").mean("step").values, nan=-math.inf)
    return int(means.argmax())


def _frame(axis: StepAxis, left: float, top: float, bottom: float) -> list[Item]:
    items: list[Item] = []
    for tick in (0.0, 0.5, 1.0):
        y = bottom - tick * (bottom - top)
        items += [Line(((left, y), (left + _WIDTH, y))), Text(left - 6, y, f"{tick:g}", 11, "end", "#777777")]
    items += level_ticks(axis, left, bottom, _WIDTH)
    items.append(Text(left, top - 14, "share of the word known, in the layer that knows most", 11, colour="#777777"))
    return items


def _curve(cell: xr.Dataset, axis: StepAxis, left: float, top: float, bottom: float, index: int) -> list[Item]:
    colour, dash = word_line(index)

    def places(values: NDArray[np.float64]) -> tuple[tuple[float, float], ...]:
        held = np.clip(values, 0, 1)
        return tuple(
            (across(axis, float(at), left, _WIDTH), bottom - float(value) * (bottom - top))
            for at, value in zip(axis.positions, held, strict=True)
            if not math.isnan(value)
        )

    middle, low, high = (places(cell[name].values) for name in _NAMES)
    items: list[Item] = [Line(line, colour, 0.6) for line in (low, high) if len(line) > 1]
    items += [Line(middle, colour, 2.0, dash)] if len(middle) > 1 else [Dot(*place, 2.4, colour) for place in middle]
    at = float(cell["t50"])
    if math.isfinite(at) and axis.range[0] <= at <= axis.range[1]:
        x = across(axis, at, left, _WIDTH)
        items.append(Line(((x, bottom), (x, top)), colour, 0.8, "dot"))
    return items


_NAMES: Final = ("fraction_known", "fraction_known_low", "fraction_known_high")
