"""The attention grid and the curve of areas: what stands where, in which colour, and whose text is whose."""

import base64
import io
import itertools
import math
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray
from PIL import Image

from denoscope.reports import ReportError
from denoscope.reports.figures.attention_grid import area_curves, attention_grid, colours, over
from denoscope.reports.figures.canvas import SCALE, Dot, Drawing, Line, Picture, Text, dashed, to_image, to_svg
from denoscope.reports.figures.style import MAP_COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def maps_of(values: NDArray[np.float64], words: list[str]) -> xr.DataArray:
    steps = values.shape[1]
    return xr.DataArray(
        values,
        dims=("word", "step", "y", "x"),
        coords={"word": words, "step": range(steps), "logsnr": ("step", np.linspace(-9, 9, steps))},
    )


@pytest.fixture
def picture() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)


def rgb(code: str) -> list[int]:
    return [int(code[i : i + 2], 16) for i in (1, 3, 5)]


def pictures_of(svg: str) -> list[NDArray[np.uint8]]:
    found = [image.attrib["href"] for image in ElementTree.fromstring(svg).iter(f"{SVG}image")]
    assert all(address.startswith("data:image/png;base64,") for address in found)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))) for address in found]


def test_the_colour_scale_is_the_maps_own() -> None:
    assert [list(each) for each in colours(np.linspace(0, 1, 10))] == [rgb(code) for code in MAP_COLOURS]
    half = [(a + b) / 2 for a, b in zip(rgb(MAP_COLOURS[0]), rgb(MAP_COLOURS[1]), strict=True)]
    assert colours(np.array([1 / 18]))[0].tolist() == pytest.approx(half)


def test_a_map_lies_over_the_picture_place_by_place() -> None:
    values = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, np.nan]])
    drawn = over(values, np.full((8, 12, 1), 100.0), 0.0, 1.0).astype(int)
    # Four pixels for each place of the map in both directions.
    assert (drawn[:4, 4:8] == drawn[0, 4]).all()
    assert drawn[0, 4, 0] > drawn[0, 0, 0] + 90  # yellow against violet
    assert (drawn[:, :4] == drawn[0, 0]).all()
    assert (drawn[4:, 8:] == 100).all()  # unknown: the picture alone
    brighter = over(values, np.full((8, 12, 1), 200.0), 0.0, 1.0).astype(int)
    assert (brighter > drawn).all()


def test_each_word_has_one_colour_scale_over_the_steps_shown(picture: NDArray[np.uint8]) -> None:
    values = np.zeros((2, 3, 4, 4))
    values[0, 0], values[0, 1], values[0, 2] = 0.1, 0.3, 99.0  # the last step is not shown
    values[1, 0], values[1, 1] = 0.001, 0.003
    drawing = attention_grid(maps_of(values, ["red", "cube"]), picture, [0, 1])
    pixels = pictures_of(to_svg(drawing))
    assert len(pixels) == 2 * (1 + 2 + 1)  # per row: the picture, two maps, the bar
    for row in (pixels[1:3], pixels[5:7]):
        low, high = over(np.zeros((1, 1)), np.zeros((1, 1, 1)), 0, 1), over(np.ones((1, 1)), np.zeros((1, 1, 1)), 0, 1)
        # The least of the row is violet and the greatest yellow, whatever the values are: what grey adds is the same
        # for all three channels.
        assert np.ptp(row[0].astype(int)[0, 0] - low[0, 0].astype(int)) <= 2
        assert np.ptp(row[1].astype(int)[0, 0] - high[0, 0].astype(int)) <= 2
    assert [item.text for item in drawing.items if isinstance(item, Text)] == [
        "picture", "step 0", "log-SNR −9.0", "step 1", "log-SNR 0.0", "red", "0.3", "0.1", "cube", "0.003", "0.001",
    ]  # fmt: skip


def test_picture_and_svg_show_the_same_cells(picture: NDArray[np.uint8]) -> None:
    values = np.random.default_rng(1).random((2, 5, 8, 8))
    drawing = attention_grid(maps_of(values, ["red", "cube"]), picture[:32], [4, 1])
    image = np.asarray(to_image(drawing))
    assert image.shape == (drawing.height * SCALE, drawing.width * SCALE, 3)
    assert (image[-1] == 255).all()
    assert (image[:, -1] == 255).all()
    root = ElementTree.fromstring(to_svg(drawing))
    assert (root.attrib["width"], root.attrib["height"]) == (str(drawing.width), str(drawing.height))
    places = [item for item in drawing.items if isinstance(item, Picture)]
    in_svg = [tuple(float(e.attrib[n]) for n in ("x", "y", "width", "height")) for e in root.iter(f"{SVG}image")]
    assert in_svg == [(item.x, item.y, item.width, item.height) for item in places]
    for item, pixels in zip(places, pictures_of(to_svg(drawing)), strict=True):
        assert (item.pixels == pixels).all()
        middle = (round((item.y + item.height / 2) * SCALE), round((item.x + item.width / 2) * SCALE))
        inside = item.pixels[item.pixels.shape[0] // 2, item.pixels.shape[1] // 2]
        assert abs(image[middle].astype(int) - inside.astype(int)).max() <= 4
        assert item.x + item.width <= drawing.width
        assert item.y + item.height <= drawing.height
    # The chosen steps stand in the order asked for, under their own log-SNR.
    texts = [item.text for item in drawing.items if isinstance(item, Text)]
    assert texts[1:5] == ["step 4", "log-SNR 9.0", "step 1", "log-SNR −4.5"]


def test_hostile_words_are_text(picture: NDArray[np.uint8]) -> None:
    word = '</text><script>"&\x07\ud800'
    maps = maps_of(np.ones((1, 2, 2, 2)), [word])
    curve = xr.Dataset({"effective_area": maps.mean(("y", "x"))})
    for drawing in (attention_grid(maps, picture, [0, 1]), area_curves(curve)):
        svg = to_svg(drawing)
        svg.encode("utf-8")
        root = ElementTree.fromstring(svg)
        assert "<script" not in svg
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
            "svg", "title", "rect", "text", "image", "polyline", "circle"
        }  # fmt: skip
        assert any("</text><scr" in (element.text or "") for element in root.iter(f"{SVG}text"))
        to_image(drawing)


def test_words_of_other_scripts_are_drawn_too(picture: NDArray[np.uint8]) -> None:
    drawing = attention_grid(maps_of(np.ones((3, 1, 2, 2)), ["café", "猫", "ж" * 40]), picture, [0])
    to_image(drawing)
    assert "猫" in to_svg(drawing)


def test_what_can_not_be_drawn_is_refused(picture: NDArray[np.uint8]) -> None:
    maps = maps_of(np.ones((1, 3, 2, 2)), ["cat"])
    with pytest.raises(ReportError, match="there is no step 3 in these maps: they have 0 to 2"):
        attention_grid(maps, picture, [0, 3])
    with pytest.raises(ReportError, match="at least one word and one step"):
        attention_grid(maps, picture, [])
    with pytest.raises(ReportError, match="at least one word and one step"):
        attention_grid(maps.isel(word=[]), picture, [0])
    with pytest.raises(ReportError, match=r"is \(H, W, 3\) uint8"):
        attention_grid(maps, picture[:, :, 0], [0])
    with pytest.raises(ReportError, match="at least one word"):
        area_curves(xr.Dataset({"effective_area": maps.mean(("y", "x")).isel(word=[])}))


def test_maps_without_any_value_are_grey(picture: NDArray[np.uint8]) -> None:
    drawing = attention_grid(maps_of(np.full((1, 1, 2, 2), np.nan), ["cat"]), picture, [0])
    drawn = pictures_of(to_svg(drawing))[1].astype(int)
    assert (np.ptp(drawn, axis=2) == 0).all()
    assert drawn.std() > 10


def test_curves_stand_where_their_values_are() -> None:
    values = np.array([[0.9, 0.7, 0.5], [0.8, np.nan, 0.6]])
    area = xr.DataArray(values, dims=("word", "step"), coords={"word": ["a", "b"], "step": [0, 1, 2]})
    curve = xr.Dataset({"effective_area": area.assign_coords(logsnr=("step", [-8.0, -4.0, 8.0]))})
    drawing = area_curves(curve)
    dots = [item for item in drawing.items if isinstance(item, Dot)]
    assert len(dots) == 5  # none where nothing was seen
    first, second, third, four, five = dots
    # Straight in log-SNR: 4 of 16 units lie between the first two steps.
    assert (second.x - first.x) / (third.x - first.x) == pytest.approx(0.25)
    # Straight in the area, greater is higher, one scale for both words.
    assert second.y - first.y == pytest.approx(third.y - second.y)
    assert second.y > first.y
    assert (four.y - first.y) / (third.y - first.y) == pytest.approx(0.25)
    assert (five.y - first.y) / (third.y - first.y) == pytest.approx(0.75)
    # No line over the gap, and every line of the grid at its own label.
    assert [len(item.points) for item in drawing.items if isinstance(item, Line) and item.colour == four.colour] == [2]
    labels = {float(i.text): i.y for i in drawing.items if isinstance(i, Text) and i.anchor == "end"}
    slope = (third.y - first.y) / (0.5 - 0.9)
    for value, y in labels.items():
        assert y == pytest.approx(first.y + (value - 0.9) * slope)


def test_an_infinite_log_snr_and_a_single_step_have_a_place() -> None:
    area = xr.DataArray([[1.0, 0.7, 0.5]], dims=("word", "step"), coords={"word": ["a"], "step": [0, 1, 2]})
    whole = xr.Dataset({"effective_area": area.assign_coords(logsnr=("step", [-np.inf, -4.0, 8.0]))})
    for curve in (whole, whole.isel(step=[1])):
        drawing = area_curves(curve)
        dots = [item for item in drawing.items if isinstance(item, Dot)]
        assert len(dots) == curve.sizes["step"]
        assert all(0 <= dot.x <= drawing.width and 0 <= dot.y <= drawing.height for dot in dots)
        ElementTree.fromstring(to_svg(drawing))
        to_image(drawing)
    assert "−∞" in [item.text for item in area_curves(whole).items if isinstance(item, Text)]


def test_dashes_go_around_corners() -> None:
    parts = list(dashed([(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)], (3.0, 2.0)))
    lengths = [sum(math.dist(a, b) for a, b in itertools.pairwise(part)) for part in parts]
    assert lengths == pytest.approx([3, 3, 3, 3])
    assert parts[2] == [(10.0, 0.0), (10.0, 3.0)]
    bent = list(dashed([(0.0, 0.0), (1.0, 0.0), (1.0, 4.0)], (3.0, 9.0)))
    assert bent == [[(0.0, 0.0), (1.0, 0.0), (1.0, 2.0)]]


def test_lines_and_dots_are_drawn_in_their_colour() -> None:
    drawing = Drawing(20, 20, "", (Line(((0, 10), (20, 10)), "#FF0000", 2.0), Dot(10, 4, 2, "#0000FF")))
    image = np.asarray(to_image(drawing))
    assert image[20, 5].tolist() == [255, 0, 0]
    assert image[8, 20].tolist() == [0, 0, 255]
    assert image[35, 5].tolist() == [255, 255, 255]
