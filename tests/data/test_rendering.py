import hashlib
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from denoscope.data.worlds.shapes.rendering import AREA, STRIPE_DARKNESS, coverage, render
from denoscope.data.worlds.shapes.scenes import (
    BACKGROUNDS,
    BOX,
    COLOURS,
    LAYOUTS,
    SHAPES,
    SIZES,
    Layout,
    Region,
    Scene,
    Thing,
    sample_scene,
    things,
)


def alone(item: Thing, background: int = 92) -> NDArray[np.uint8]:
    return render(Scene("one", (item,), background))


def extent(picture: NDArray[np.uint8], background: int) -> tuple[int, int, int, int]:
    """First and one past the last row and column that are not background."""
    drawn = (picture != background).any(2)
    rows, columns = np.flatnonzero(drawn.any(1)), np.flatnonzero(drawn.any(0))
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


@pytest.mark.parametrize("size", SIZES)
def test_shapes_of_one_size_have_equal_area(size: str) -> None:
    areas = {shape: float(coverage(shape, size).sum()) for shape in SHAPES}
    assert areas == pytest.approx(dict.fromkeys(SHAPES, AREA[size]), abs=1.6)  # supersampling rounds edges to 1/8 pixel
    assert max(areas.values()) - min(areas.values()) < 1.6


@pytest.mark.parametrize(("shape", "size"), list(product(SHAPES, SIZES)))
def test_shapes_are_whole_and_symmetric(shape: str, size: str) -> None:
    covered = coverage(shape, size)
    assert covered.shape == (BOX, BOX)
    assert covered.min() == 0
    assert covered.max() == 1
    np.testing.assert_array_equal(covered, covered[:, ::-1])
    if shape != "triangle":
        np.testing.assert_array_equal(covered, covered[::-1])
        np.testing.assert_array_equal(covered, covered.T)


def test_coverage_is_shared_and_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        coverage("circle", "small")[0, 0] = 1


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown shape 'star'"):
        coverage("star", "small")


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize(("colour", "shape"), list(product(COLOURS, SHAPES)))
def test_pixels_have_the_exact_colour(colour: str, shape: str, background: int) -> None:
    plain = alone(Thing(colour, shape, "large", "plain", 20, 28), background)
    striped = alone(Thing(colour, shape, "large", "striped", 20, 28), background)
    tone = COLOURS[colour]
    dark = [round(STRIPE_DARKNESS * level) for level in tone]
    assert (plain[26:30, 20] == tone).all()
    # The box starts at row 16, a multiple of the period: two bright rows, two dark ones.
    assert [row.tolist() for row in striped[24:30, 20]] == [list(tone)] * 2 + [dark] * 2 + [list(tone)] * 2
    assert (plain[:16] == background).all()
    assert (plain[:, 32:] == background).all()


def test_edges_are_mixed_by_coverage() -> None:
    covered = coverage("circle", "small")
    row, column = np.argwhere((covered > 0.3) & (covered < 0.7))[0]
    share = covered[row, column]
    expected = np.rint(172 * (1 - share) + np.array(COLOURS["blue"]) * share)
    picture = alone(Thing("blue", "circle", "small", "plain", 12, 12), 172)
    assert picture[row, column].tolist() == expected.tolist()


def test_colours_are_separable_from_each_other_and_from_the_backgrounds() -> None:
    palette = {name: np.array(tone, dtype=float) for name, tone in COLOURS.items()}
    for one, other in combinations(palette, 2):
        assert np.linalg.norm(palette[one] - palette[other]) > 80, (one, other)
    for (name, tone), background in product(palette.items(), BACKGROUNDS):
        assert np.linalg.norm(tone - background) > 80, (name, background)
        assert np.linalg.norm(STRIPE_DARKNESS * tone - background) > 36, (name, background)


@pytest.mark.parametrize("region", ["top", "bottom", "left", "right"])
def test_objects_stay_in_their_half(region: Region) -> None:
    for item in things(region):
        up, down, left, right = extent(alone(item), 92)
        assert {"top": down <= 32, "bottom": up >= 32, "left": right <= 32, "right": left >= 32}[region], item


@pytest.mark.parametrize("layout", ["vertical", "horizontal"])
def test_pairs_are_their_objects_side_by_side(layout: Layout) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        scene = sample_scene(rng, layout)
        first, second = (alone(item, scene.background) for item in scene.things)
        drawn = (second != scene.background).any(2, keepdims=True)
        np.testing.assert_array_equal(render(scene), np.where(drawn, second, first))


def test_no_picture_belongs_to_two_layouts() -> None:
    """One object spans at most its box; two span more than that along their layout's axis, and less across it."""
    boxes: dict[Region, list[tuple[int, int, int, int]]] = {}
    for regions in LAYOUTS.values():
        for region in regions:
            # No colour and no stripe equals a background (tested above), so neither changes what is drawn.
            drawn = (item for item in things(region) if (item.colour, item.texture) == ("red", "plain"))
            boxes[region] = [extent(alone(item), 92) for item in drawn]
    assert max(max(down - up, right - left) for up, down, left, right in boxes["whole"]) <= BOX
    for layout in ("vertical", "horizontal"):
        first, second = LAYOUTS[layout]
        for one, other in product(boxes[first], boxes[second]):
            tall = max(one[1], other[1]) - min(one[0], other[0])
            wide = max(one[3], other[3]) - min(one[2], other[2])
            along, across = (tall, wide) if layout == "vertical" else (wide, tall)
            assert along > BOX
            assert along > across


@pytest.mark.parametrize("region", ["whole", "top", "left"])
def test_every_object_has_its_own_picture(region: Region) -> None:
    pictures = [alone(item, background).tobytes() for item in things(region) for background in BACKGROUNDS]
    assert len(set(pictures)) == len(pictures)


def test_pictures_are_the_same_on_every_machine() -> None:
    items = list(things("whole"))[::97]
    digest = hashlib.sha256(b"".join(alone(item, background).tobytes() for item in items for background in BACKGROUNDS))
    assert digest.hexdigest()[:16] == "dd47710a4eb7d469"
