"""How a small change grows: gain layer by layer, and drift along the way, over log-SNR."""

import math
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from denoscope.reports.errors import ReportError
from denoscope.reports.figures.axis import StepAxis, step_axis
from denoscope.reports.figures.canvas import Drawing, Item, Line, Text
from denoscope.reports.figures.strips import across, level_ticks, strip
from denoscope.reports.figures.style import WORD_COLOURS

_LEFT: Final = 170.0
_WIDTH: Final = 460.0
_ROW: Final = 16.0
_HEIGHT: Final = 120.0
_FAINTEST: Final = 1e-3


def robustness_figure(found: xr.Dataset) -> Drawing:
    """Above a row a layer, coloured by the logarithm of its gain, the denoiser's output last; below the drift.

    ``found`` has ``gain (draw, step, layer)``, ``output_gain`` and ``drift (draw, step)``, ``logsnr`` along ``step``.
    Geometric means over draws, of the drift too, which has a faint line a draw. Raises
    :class:`~denoscope.reports.ReportError` without a step.
    """
    if not found["output_gain"].size:
        raise ReportError("a figure of robustness needs at least one step and one draw")
    axis = step_axis(found)
    names = [*(str(name) for name in found["layer"].values), "output"]
    every = np.concatenate(
        [found["gain"].transpose("draw", "step", "layer"), found["output_gain"].values[..., None]], 2
    )
    logs = np.log10(np.maximum(every, _FAINTEST)).mean(0).T
    low, high = float(logs.min()), float(logs.max())
    top = 54.0
    title = (
        f"Gain of a small change of the {found.attrs.get('of', 'input')}, {found.attrs.get('direction', '')} direction"
    )
    items: list[Item] = [Text(_LEFT, 16, title, 13)]
    items.append(Text(_LEFT, 36, f"from {10**low:.2g} (dark) to {10**high:.2g} (light), by its logarithm", 11))
    items += strip((logs - low) / ((high - low) or 1.0), axis, _LEFT, top, _WIDTH, _ROW)
    items += [Text(_LEFT - 8, top + _ROW * (row + 0.5), name, 11, "end") for row, name in enumerate(names)]
    start = top + _ROW * len(names) + 40
    bottom = start + _HEIGHT
    items.append(Text(_LEFT, start - 14, "drift of the latents, as a multiple of the change (random directions)", 12))
    items += _drift(found["drift"].transpose("draw", "step").values, axis, start, bottom)
    items += level_ticks(axis, _LEFT, bottom, _WIDTH)
    return Drawing(int(_LEFT + _WIDTH + 30), int(bottom + 46), title, (*items,))


def _drift(values: NDArray[np.float64], axis: StepAxis, top: float, bottom: float) -> list[Item]:
    greatest = float(np.nanmax(values)) if np.isfinite(values).any() else 1.0
    items: list[Item] = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - top)
        items += [
            Line(((_LEFT, y), (_LEFT + _WIDTH, y))),
            Text(_LEFT - 6, y, f"{share * greatest:.2g}", 11, "end", "#777777"),
        ]

    def line(curve: NDArray[np.float64], colour: str, width: float) -> list[Item]:
        places = [
            (across(axis, float(at), _LEFT, _WIDTH), bottom - float(value) / (greatest or 1.0) * (bottom - top))
            for at, value in zip(axis.positions, curve, strict=True)
            if not math.isnan(value)
        ]
        return [Line(tuple(places), colour, width)] if len(places) > 1 else []

    for curve in values:
        items += line(curve, "#BBBBBB", 0.7)
    known = np.isfinite(values).all(0)
    means = np.full(values.shape[1], np.nan)
    means[known] = np.exp(np.log(np.maximum(values[:, known], _FAINTEST)).mean(0))
    return items + line(means, WORD_COLOURS[0], 2.0)
