"""The grid of heads: one map a head, a row a layer."""

import numpy as np
import pytest
import xarray as xr

from denoscope.reports import ReportError
from denoscope.reports.figures.attention_grid import over
from denoscope.reports.figures.canvas import Picture, Text, to_image, to_svg
from denoscope.reports.figures.head_grid import head_grid


def maps() -> xr.DataArray:
    values = np.random.default_rng(0).random((2, 3, 4, 4))
    values[1, 2] = np.nan  # that layer has two heads
    names = ["mid_block.attentions.0.transformer_blocks.0.attn2", "<b>.attn"]
    return xr.DataArray(values, {"layer": names}, ("layer", "head", "y", "x"))


def test_every_head_has_its_own_scale_and_a_missing_one_no_map() -> None:
    picture = np.full((32, 32, 3), 100, np.uint8)
    drawing = head_grid(maps(), picture)
    shown = [item for item in drawing.items if isinstance(item, Picture)]
    assert len(shown) == 5
    values = maps().values[0, 1]
    grey = np.full((72, 72, 1), 80.0)
    np.testing.assert_array_equal(shown[1].pixels, over(values, grey, values.min(), values.max()))
    assert [item.text for item in drawing.items if isinstance(item, Text)][3:] == ["mid_block.0.0", "<b>"]
    assert "<b>" not in to_svg(drawing)
    assert to_image(drawing).size[0] >= drawing.width


def test_a_grid_of_nothing_is_refused() -> None:
    with pytest.raises(ReportError, match="at least one layer and one head"):
        head_grid(maps().isel(layer=slice(0, 0)), np.zeros((8, 8, 3), np.uint8))
