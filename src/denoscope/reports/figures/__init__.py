"""Figures: functions from a trace to a plotly figure, for notebooks and for the report."""

from denoscope.reports.figures.axis import StepAxis, step_axis
from denoscope.reports.figures.curves import (
    gradient_curves,
    guidance_curve,
    information_curves,
    information_sums,
    mass_curves,
    spread_curves,
    token_areas,
)
from denoscope.reports.figures.heatmap import layer_heatmap

__all__ = [
    "StepAxis",
    "gradient_curves",
    "guidance_curve",
    "information_curves",
    "information_sums",
    "layer_heatmap",
    "mass_curves",
    "spread_curves",
    "step_axis",
    "token_areas",
]
