"""Rows of colours over noise levels: what a layer does at a step, as wide as the step's stretch of the axis."""

import numpy as np
from numpy.typing import NDArray

from denoscope.reports.figures.attention_grid import colours
from denoscope.reports.figures.axis import StepAxis
from denoscope.reports.figures.canvas import Item, Line, Picture, Text


def across(axis: StepAxis, at: float, left: float, width: float) -> float:
    """Where a place on the axis is drawn."""
    start, end = axis.range
    return left + (at - start) / (end - start) * width


def level_ticks(axis: StepAxis, left: float, bottom: float, width: float) -> list[Item]:
    """The axis's ticks, labels and title below ``bottom``."""
    items: list[Item] = []
    for at, label in axis.ticks:
        x = across(axis, at, left, width)
        items += [Line(((x, bottom), (x, bottom + 4)), "#999999"), Text(x, bottom + 14, label, 11, "middle", "#777777")]
    items.append(Text(left + width / 2, bottom + 32, axis.title, 12, "middle"))
    return items


def strip(values: NDArray[np.float64], axis: StepAxis, left: float, top: float, width: float, row: float) -> list[Item]:
    """A row a layer, a cell a step; ``values`` is ``(layer, step)`` in [0, 1]."""
    start, end = axis.range
    edges = np.concatenate([[start], (axis.positions[1:] + axis.positions[:-1]) / 2, [end]])
    items: list[Item] = []
    for step in range(values.shape[1]):
        x, to = (across(axis, float(edge), left, width) for edge in edges[step : step + 2])
        shades = colours(values[:, step])[:, None]
        items.append(Picture(x, top, to - x + 0.5, row * len(values), np.rint(shades).astype(np.uint8)))
    return items
