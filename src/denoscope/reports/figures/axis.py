"""The common axis of curves: log-SNR below, step above."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from plotly import graph_objects as go

from denoscope.reports.figures.style import GRID


@dataclass(frozen=True, slots=True)
class StepAxis:
    """Where each step stands on the axis.

    ``positions`` (N,) are finite and in the unit of ``title``; ``ticks`` are (position, label) pairs of the
    lower axis, ``step_ticks`` those of the upper one.
    """

    positions: NDArray[np.float64]
    title: str
    ticks: tuple[tuple[float, str], ...]
    step_ticks: tuple[tuple[float, str], ...]

    @property
    def range(self) -> tuple[float, float]:
        """Ends of the axis, a little wider than the steps."""
        low, high = float(self.positions.min()), float(self.positions.max())
        pad = 0.03 * (high - low) or 0.5
        return low - pad, high + pad


def step_axis(trace: xr.Dataset) -> StepAxis:
    """Place the steps of a trace on its log-SNR.

    A step of infinite log-SNR (zero terminal SNR, or the clean end) stands one spacing beyond the finite ones
    and is labelled so. Where no two steps have different finite log-SNR, the axis is the step.

    >>> trace = xr.Dataset(coords={"step": [0, 1, 2], "logsnr": ("step", [-np.inf, -2.0, 2.0])})
    >>> axis = step_axis(trace)
    >>> axis.positions.tolist(), axis.ticks[0]
    ([-6.0, -2.0, 2.0], (-6.0, '−∞'))
    """
    steps = np.asarray(trace["step"].values)
    logsnr = np.asarray(trace["logsnr"].values if "logsnr" in trace else np.full(len(steps), np.nan), np.float64)
    finite = np.isfinite(logsnr)
    if np.isnan(logsnr).any() or len(set(logsnr[finite].tolist())) < 2:
        positions = np.arange(len(steps), dtype=np.float64)
        labels = tuple((float(at), str(int(steps[int(at)]))) for at in _even_subset(len(steps)))
        return StepAxis(positions, "step", labels, ())
    low, high = float(logsnr[finite].min()), float(logsnr[finite].max())
    gaps = np.diff(np.unique(logsnr[finite]))
    gap = float(np.clip(np.median(gaps), 0.06 * (high - low), high - low))
    positions = np.where(finite, logsnr, np.where(logsnr < 0, low - gap, high + gap))
    ticks = [(tick, _plain(tick)) for tick in nice_ticks(low, high)]
    if (logsnr == -np.inf).any():
        ticks = [(low - gap, "−∞"), *(tick for tick in ticks if tick[0] - (low - gap) > 0.5 * gap)]
    if (logsnr == np.inf).any():
        ticks = [*(tick for tick in ticks if (high + gap) - tick[0] > 0.5 * gap), (high + gap, "+∞")]
    return StepAxis(positions, "log-SNR", tuple(ticks), _spaced_steps(positions, steps.tolist()))


def nice_ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers between two ends, about as many as asked.

    >>> nice_ticks(-9.3, 11.2)
    [-5.0, 0.0, 5.0, 10.0]
    """
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    width = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [round(n * width, 10) for n in range(math.ceil(low / width), math.floor(high / width) + 1)]


def add_step_axis(figure: go.Figure, axis: StepAxis) -> None:
    """Give a figure the lower axis and, above, the step axis."""
    low, high = axis.range
    figure.update_xaxes(
        range=[low, high],
        tickvals=[at for at, _ in axis.ticks],
        ticktext=[label for _, label in axis.ticks],
    )
    _name_axis(figure, axis.title, 0, "top", -7)
    if not axis.step_ticks:
        return
    _name_axis(figure, "step", 1, "bottom", 7)
    # Plotly draws an axis only when a trace uses it, so an invisible one does.
    figure.add_scatter(x=[low], y=[None], xaxis="x2", hoverinfo="skip", showlegend=False, visible=True)
    figure.update_layout(
        xaxis2={
            "overlaying": "x",
            "side": "top",
            "range": [low, high],
            "tickvals": [at for at, _ in axis.step_ticks],
            "ticktext": [label for _, label in axis.step_ticks],
            "ticks": "outside",
            "ticklen": 4,
            "tickcolor": GRID,
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        }
    )


def _name_axis(figure: go.Figure, text: str, y: float, anchor: str, shift: int) -> None:
    # In the corner beside the first tick: an axis title under the ticks would meet the legend on a narrow screen.
    figure.add_annotation(
        text=text,
        xref="paper",
        x=0,
        xanchor="right",
        xshift=-6,
        yref="paper",
        y=y,
        yanchor=anchor,
        yshift=shift,
        showarrow=False,
    )


def hover_titles(trace: xr.Dataset) -> list[str]:
    """One line per step for tool tips: step, log-SNR and timestep."""
    titles = []
    for index, step in enumerate(trace["step"].values):
        parts = [f"step {int(step)}"]
        for name, label in (("logsnr", "log-SNR"), ("timestep", "timestep")):
            if name in trace:
                parts.append(f"{label} {_plain(float(trace[name].values[index]))}")
        titles.append(" · ".join(parts))
    return titles


def _plain(value: float) -> str:
    if math.isinf(value):
        return "+∞" if value > 0 else "−∞"
    return f"{value:.4g}".replace("-", "−")


def _even_subset(count: int, about: int = 8) -> list[int]:
    width = max(1, math.ceil((count - 1) / about))
    return list(range(0, count, width))


def _spaced_steps(positions: NDArray[np.float64], steps: Sequence[int]) -> tuple[tuple[float, str], ...]:
    """Labels for as many steps as have room, the first and the last always."""
    room = float(positions.max() - positions.min()) / 10
    last = len(steps) - 1
    chosen = [0]
    for index in range(1, last):
        clear = min(abs(positions[index] - positions[chosen[-1]]), abs(positions[last] - positions[index]))
        if clear >= room:
            chosen.append(index)
    return tuple((float(positions[index]), str(int(steps[index]))) for index in [*chosen, last])
