"""The figure of a population experiment."""

from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr

from denoscope.reports.errors import ReportError
from denoscope.reports.figures.canvas import Line, Picture, Text, to_image, to_svg
from denoscope.reports.figures.dynamics import best_layer, dynamics_figure


def results(slots: list[str]) -> xr.Dataset:
    logsnr = np.linspace(-8, 6, 9)
    share = 1 / (1 + np.exp(-logsnr))
    known = np.stack([np.stack([share * scale for scale in (0.5, 1.0)])] * 2)[None].repeat(len(slots), 0)
    axes = ("slot", "branch", "layer", "step")
    return xr.Dataset(
        {
            "fraction_known": (axes, known),
            "fraction_known_low": (axes, known - 0.1),
            "fraction_known_high": (axes, known + 0.1),
            "t50": (axes[:-1], np.zeros((len(slots), 2, 2))),
        },
        {
            "slot": slots,
            "branch": ["cond", "uncond"],
            "layer": ["mid", "up"],
            "step": range(9),
            "logsnr": ("step", logsnr),
        },
    )


def test_every_slot_has_its_curve_its_time_and_its_layers() -> None:
    figure = dynamics_figure(results(["colour", "shape"]))
    pictures = [item for item in figure.items if isinstance(item, Picture)]
    assert len(pictures) == 2 * 2 * 9
    assert all(item.pixels.shape == (2, 1, 3) for item in pictures)
    texts = [item.text for item in figure.items if isinstance(item, Text)]
    assert "injected: with the prompt" in texts
    assert "written: without the prompt" in texts
    upright = [item for item in figure.items if isinstance(item, Line) and item.dash == "dot"]
    assert len([item for item in upright if item.points[0][0] == item.points[1][0]]) == 4
    assert to_image(figure).size == (2 * figure.width, 2 * figure.height)


def test_names_are_escaped() -> None:
    ElementTree.fromstring(to_svg(dynamics_figure(results(["<script>"]))))


def test_the_layer_that_knows_most_is_shown() -> None:
    assert best_layer(results(["colour"]).isel(slot=0, branch=0)) == 1


def test_results_without_anything_are_said() -> None:
    with pytest.raises(ReportError, match="at least one slot"):
        dynamics_figure(results(["colour"]).isel(slot=[]))
