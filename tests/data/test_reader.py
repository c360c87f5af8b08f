import io
import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from scipy import ndimage

from denoscope.data.worlds.shapes.captions import describe, parse
from denoscope.data.worlds.shapes.judging import Judgement, Rate, judge, judge_many, rates, wilson
from denoscope.data.worlds.shapes.reader import Reading, ReadThing, read, relation
from denoscope.data.worlds.shapes.rendering import coverage, render
from denoscope.data.worlds.shapes.scenes import (
    ATTRIBUTES,
    BACKGROUNDS,
    COLOURS,
    SHAPES,
    SIZES,
    Scene,
    Thing,
    sample_scene,
)

Picture = NDArray[np.uint8]
Damage = Callable[[Picture], Picture]


def rounded(picture: NDArray[np.float64]) -> Picture:
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def blurred(picture: Picture, radius: float) -> Picture:
    return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)))


def noisy(picture: Picture, deviation: float = 6, radius: float = 0.5) -> Picture:
    rng = np.random.default_rng(int(picture.sum()))
    return rounded(blurred(picture, radius) + rng.normal(0, deviation, picture.shape))


def compressed(picture: Picture, quality: int = 80) -> Picture:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def tinted(picture: Picture) -> Picture:
    return rounded(picture * np.array([0.95, 1.0, 1.05]) + np.array([6.0, -5.0, 4.0]))


def drawn(alpha: NDArray[np.float64], tone: NDArray[np.float64], background: int = 92) -> Picture:
    """A picture with one object of any coverage (24, 24) and colour, its centre at (20, 28)."""
    canvas = np.full((64, 64, 3), float(background))
    share = alpha[:, :, None]
    canvas[16:40, 8:32] = canvas[16:40, 8:32] * (1 - share) + tone * share
    return rounded(canvas)


def shows(reading: Reading, scene: Scene, shift: tuple[float, float] = (0, 0), within: float = 1.5) -> bool:
    """Whether a reading is that of a scene, in every attribute."""
    if reading.problem is not None or len(reading.things) != len(scene.things):
        return False
    return reading.background == scene.background and all(
        all(seen.value(name) == true.value(name) for name in ATTRIBUTES)
        and math.hypot(seen.x - true.x - shift[0], seen.y - true.y - shift[1]) <= within
        for seen, true in zip(reading.things, scene.things, strict=True)
    )


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    rng = np.random.default_rng(0)
    return [sample_scene(rng) for _ in range(500)]


def test_clean_pictures_are_read_in_every_attribute(scenes: list[Scene]) -> None:
    wrong = [scene for scene in scenes if not shows(read(render(scene)), scene, within=0.5)]
    assert wrong == []


def test_two_large_triangles_that_touch_are_two() -> None:
    for (left, right), background in product(product(COLOURS, COLOURS), BACKGROUNDS):
        first = Thing(left, "triangle", "large", "plain", 20, 28)
        scene = Scene("horizontal", (first, Thing(right, "triangle", "large", "striped", 44, 28)), background)
        assert shows(read(render(scene)), scene, within=0.5)


@pytest.mark.parametrize(
    ("damage", "least"),
    [
        (noisy, 0.99),
        (lambda picture: noisy(picture, 12), 0.98),
        (lambda picture: blurred(picture, 1), 0.95),
        (compressed, 0.98),
        (tinted, 0.99),
    ],
    ids=["noise 6 blur .5", "noise 12 blur .5", "blur 1", "jpeg 80", "tint"],
)
def test_damaged_pictures_are_still_read_and_hardly_ever_misread(
    scenes: list[Scene], damage: Damage, least: float
) -> None:
    readings = [read(damage(render(scene))) for scene in scenes]
    assert np.mean([shows(reading, scene) for reading, scene in zip(readings, scenes, strict=True)]) >= least
    misread = sum(
        seen.value(name) not in (None, true.value(name))
        for reading, scene in zip(readings, scenes, strict=True)
        for seen, true in zip(reading.things, scene.things, strict=False)
        for name in ATTRIBUTES
    )
    assert misread <= 1


@pytest.mark.parametrize("shift", [(3, 0), (-2, 1), (1, -3)])
def test_objects_need_not_stand_on_the_grid(scenes: list[Scene], shift: tuple[int, int]) -> None:
    for scene in scenes[:150]:
        if all(16 <= item.x <= 48 and 16 <= item.y <= 48 for item in scene.things):
            moved = np.roll(render(scene), shift, axis=(1, 0))
            assert shows(read(moved), scene, shift, within=0.5)


def test_half_a_pixel_is_seen() -> None:
    picture = render(Scene("one", (Thing("red", "square", "large", "plain", 20, 28),), 92)).astype(float)
    seen = read(rounded((picture + np.roll(picture, 1, axis=1)) / 2)).things[0]
    assert (seen.colour, seen.shape, seen.x, seen.y) == ("red", "square", 20.5, 28)


def test_noise_and_emptiness_are_refused() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert "not plain" in str(read(rng.integers(0, 256, (64, 64, 3)).astype(np.uint8)).problem)
        assert read(rounded(128 + 30 * rng.standard_normal((64, 64, 3)))).problem is not None
    for level in (0, 92, 172, 255):
        assert read(np.full((64, 64, 3), level, dtype=np.uint8)).problem == "no object stands out from the background"
    assert "not grey" in str(read(rounded(np.full((64, 64, 3), [40.0, 90.0, 160.0]))).problem)


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_a_colour_between_red_and_blue_is_refused(background: int) -> None:
    between = (np.array(COLOURS["red"], dtype=float) + COLOURS["blue"]) / 2
    for shape, size in product(SHAPES, SIZES):
        reading = read(drawn(coverage(shape, size), between, background))
        assert [(item.colour, item.shape, item.size) for item in reading.things] == [(None, shape, size)]
        assert reading.things[0].reasons[0].startswith("colour: its colour is ")
        assert not reading.complete


def test_no_colour_between_two_is_taken_for_one_of_them() -> None:
    for one, other in combinations(COLOURS, 2):
        between = (np.array(COLOURS[one], dtype=float) + COLOURS[other]) / 2
        colour = read(drawn(coverage("circle", "large"), between)).things[0].colour
        assert colour == ("orange" if {one, other} == {"red", "yellow"} else None), (one, other)


def test_a_red_and_blue_object_is_refused() -> None:
    picture = render(Scene("one", (Thing("red", "square", "large", "plain", 20, 28),), 92))
    other = render(Scene("one", (Thing("blue", "square", "large", "plain", 20, 28),), 92))
    picture[:, 20:] = other[:, 20:]
    thing = read(picture).things[0]
    assert thing.colour is None
    assert thing.texture is None
    assert any("varies" in reason for reason in thing.reasons)


def test_a_half_faded_object_has_no_colour() -> None:
    for colour, shape, texture, background in product(COLOURS, SHAPES, ("plain", "striped"), BACKGROUNDS):
        picture = render(Scene("one", (Thing(colour, shape, "large", texture, 20, 28),), background))
        reading = read(rounded((picture.astype(float) + background) / 2))
        assert reading.problem is not None or reading.things[0].colour is None


def test_three_objects_are_refused() -> None:
    picture = render(sample_scene(np.random.default_rng(2), "vertical")).copy()
    picture[28:40, 2:14] = COLOURS["green"]
    assert read(picture).problem == "3 objects are seen where one or two were expected"


def test_one_thing_over_half_the_picture_is_refused() -> None:
    picture = np.full((64, 64, 3), 92, dtype=np.uint8)
    picture[8:56, 8:56] = COLOURS["red"]
    assert read(picture).problem == "one mark is 50 by 50 pixels, too large for an object"


def _height(shape: str, size: str) -> NDArray[np.float64]:
    """Distance to the outline in eighths of a pixel, positive inside: (192, 192)."""
    inside = ndimage.zoom(coverage(shape, size), 8, order=1, mode="nearest", grid_mode=True) > 0.5
    inner, outer = (np.asarray(ndimage.distance_transform_edt(mask), dtype=np.float64) for mask in (inside, ~inside))
    return inner - outer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("one", "other"), list(combinations(SHAPES, 2)))
def test_a_shape_between_two_is_refused(one: str, other: str, size: str) -> None:
    for colour, background in product(("red", "pink"), BACKGROUNDS):
        tone = np.array(COLOURS[colour], dtype=float)
        blend = (coverage(one, size) + coverage(other, size)) / 2
        morph = (_height(one, size) + _height(other, size) > 0).reshape(24, 8, 24, 8).mean((1, 3))
        for alpha in (blend, morph):
            reading = read(drawn(alpha, tone, background))
            assert reading.things[0].colour == colour or alpha is blend
            assert reading.things[0].shape is None
            assert any(reason.startswith("shape: it ") for reason in reading.things[0].reasons)


def test_a_size_between_two_and_stripes_of_another_period_are_refused() -> None:
    half = 13.3 / 2
    axis = abs(np.arange(24 * 8) / 8 - 12 + 1 / 16)
    middle = ((axis[:, None] <= half) & (axis <= half)).astype(float).reshape(24, 8, 24, 8).mean((1, 3))
    thing = read(drawn(middle, np.array(COLOURS["red"], dtype=float))).things[0]
    assert thing.size is None
    assert "neither small nor large" in str(thing.reasons)
    picture = drawn(coverage("square", "large"), np.array(COLOURS["red"], dtype=float))
    picture[20:28, 12:28] = picture[20:28, 12:28] * 0.45
    assert read(picture).things[0].texture is None


def test_specks_are_not_objects() -> None:
    scene = sample_scene(np.random.default_rng(3), "vertical")
    picture = render(scene).copy()
    picture[30:33, 1:4] = 255
    assert shows(read(picture), scene)


def test_another_grey_is_read_but_not_named() -> None:
    reading = read(drawn(coverage("cross", "large"), np.array(COLOURS["yellow"], dtype=float), 132))
    assert reading.background is None
    assert reading.problem is None
    assert reading.things[0].shape == "cross"
    assert not reading.complete


@pytest.mark.parametrize(
    "wrong", [np.zeros((64, 64), np.uint8), np.zeros((32, 64, 3), np.uint8), np.zeros((64, 64, 3))]
)
def test_what_is_no_picture_is_an_error(wrong: Picture) -> None:
    with pytest.raises(ValueError, match=r"a picture is \(64, 64, 3\) uint8"):
        read(wrong)


def at(x: float, y: float, colour: str | None = "red", shape: str | None = "circle") -> ReadThing:
    return ReadThing(colour, shape, "small", "plain", x, y)


@pytest.mark.parametrize(
    ("second", "stand"),
    [
        ((30, 44), ("vertical", False)),
        ((30, 18), ("vertical", True)),
        ((41.9, 30), None),
        ((42, 30), ("horizontal", False)),
        ((10, 48), ("horizontal", True)),
        ((46, 46), None),
    ],
)
def test_relation_needs_distance_and_an_axis(second: tuple[float, float], stand: tuple[str, bool] | None) -> None:
    assert relation(at(30, 30), at(*second)) == stand


def test_a_true_caption_is_judged_right(scenes: list[Scene]) -> None:
    rng = np.random.default_rng(4)
    for scene in scenes[:200]:
        text, meaning = describe(scene, rng)
        judgement = judge(render(scene), meaning)
        assert judgement.whole, text
        named = {name: any(mention.value(name) for mention in meaning.mentions) for name in ATTRIBUTES}
        assert {name: getattr(judgement, name) for name in ATTRIBUTES} == {
            name: True if said else None for name, said in named.items()
        }
        assert judgement.relation == (None if scene.layout == "one" else True)
        assert judgement.place == (None if meaning.place is None else True)


ABOVE = Thing("red", "circle", "small", "plain", 28, 12)
TWO = render(Scene("vertical", (ABOVE, Thing("blue", "square", "large", "plain", 36, 52)), 92))
ONE = render(Scene("one", (Thing("red", "circle", "small", "plain", 12, 44),), 92))


@pytest.mark.parametrize(
    ("picture", "caption", "wrong"),
    [
        (TWO, "a red circle above a blue square", set()),
        (TWO, "a blue square below a small shape", set()),
        (TWO, "a red circle above a green square", {"colour"}),
        (TWO, "a striped red circle above a blue triangle", {"texture", "shape"}),
        (TWO, "a red circle below a blue square", {"colour", "shape", "relation"}),
        (TWO, "a red square above a blue circle", {"shape"}),
        (TWO, "a red circle to the left of a blue square", {"relation"}),
        (TWO, "a red circle on the left", {"colour", "shape", "place"}),
        (ONE, "a red circle on the left", set()),
        (ONE, "a large red circle at the top", {"size", "place"}),
        (ONE, "a red circle above a shape", {"colour", "shape", "relation"}),
        (np.full((64, 64, 3), 92, dtype=np.uint8), "a red shape", {"colour"}),
    ],
)
def test_judgements_name_what_is_wrong(picture: Picture, caption: str, wrong: set[str]) -> None:
    judgement = judge(picture, parse(caption))
    names = (*ATTRIBUTES, "relation", "place")
    assert {name for name in names if getattr(judgement, name) is False} == wrong
    assert judgement.whole == (not wrong)


def test_a_wrong_number_of_objects_is_wrong_as_a_whole() -> None:
    assert judge(TWO, parse("a shape")) == Judgement(None, None, None, None, None, None, whole=False)


def test_the_empty_caption_asks_only_for_a_readable_picture() -> None:
    assert judge(ONE, parse("")).whole
    assert not judge(np.full((64, 64, 3), 92, dtype=np.uint8), parse("")).whole


def test_what_cannot_be_read_is_not_right() -> None:
    reading = Reading((at(12, 12, colour=None),), 92)
    assert judge(reading, parse("a red circle")).colour is False
    assert judge(reading, parse("a circle")).whole


def test_rates_count_only_what_is_named() -> None:
    judged = judge_many([ONE, ONE, TWO], [parse("a red shape"), parse("a blue circle"), parse("a shape above a shape")])
    found = rates(judged)
    assert (found["colour"].value, found["colour"].n) == (0.5, 2)
    assert (found["shape"].value, found["shape"].n) == (1, 1)
    assert (found["relation"].value, found["relation"].n) == (1, 1)
    assert found["whole"].n == 3
    assert found["size"].n == 0
    assert math.isnan(found["size"].value)
    with pytest.raises(ValueError, match="zip"):
        judge_many([ONE], [])


def test_wilson_intervals_are_those_of_the_textbook() -> None:
    rate = wilson(10, 10)
    assert rate.low == pytest.approx(0.7225, abs=1e-4)
    assert rate.high == 1
    rate = wilson(20, 100)
    assert [rate.low, rate.high] == pytest.approx([0.1334, 0.2888], abs=1e-4)
    assert wilson(0, 5).low == 0
    with pytest.raises(ValueError, match="6 successes in 5 trials"):
        wilson(6, 5)
    nothing: Rate = rates([])["colour"]
    assert (nothing.low, nothing.high, nothing.n) == (0, 1, 0)
