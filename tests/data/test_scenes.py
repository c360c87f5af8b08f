from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from denoscope.data.worlds.shapes.scenes import (
    ATTRIBUTES,
    BOX,
    LAYOUT_PRIOR,
    LAYOUTS,
    PICTURE_SIZE,
    POSITIONS,
    VALUES,
    Layout,
    Region,
    sample_scene,
    table,
    thing,
    things,
)

REGIONS: list[Region] = ["whole", "top", "bottom", "left", "right"]


@pytest.mark.parametrize(("region", "count"), [("whole", 4608), *((region, 512) for region in REGIONS[1:])])
def test_a_region_holds_every_object_once(region: Region, count: int) -> None:
    listed = list(things(region))
    assert len(listed) == len(set(listed)) == len(table(region)) == count
    assert {(item.x, item.y) for item in listed} == set(POSITIONS[region])
    for name in ATTRIBUTES:
        assert Counter(item.value(name) for item in listed) == dict.fromkeys(VALUES[name], count / len(VALUES[name]))


def test_rows_of_the_table_are_objects_in_order() -> None:
    rows = table("left")
    assert thing(rows[0], "left").colour == "red"
    assert [thing(row, "left") for row in rows] == list(things("left"))


@pytest.mark.parametrize("region", REGIONS)
def test_boxes_lie_in_the_picture_and_in_their_half(region: Region) -> None:
    half = PICTURE_SIZE // 2
    for x, y in POSITIONS[region]:
        assert BOX // 2 <= x <= PICTURE_SIZE - BOX // 2
        assert BOX // 2 <= y <= PICTURE_SIZE - BOX // 2
        assert {"top": y + BOX // 2 <= half, "bottom": y - BOX // 2 >= half}.get(region, True)
        assert {"left": x + BOX // 2 <= half, "right": x - BOX // 2 >= half}.get(region, True)


@pytest.mark.parametrize(("layout", "along"), [("vertical", 1), ("horizontal", 0)])
def test_two_objects_stand_apart_along_their_axis_only(layout: Layout, along: int) -> None:
    first, second = LAYOUTS[layout]
    for one, other in product(POSITIONS[first], POSITIONS[second]):
        assert other[along] - one[along] >= 24
        assert abs(other[1 - along] - one[1 - along]) <= 8


def test_positions_are_multiples_of_the_stride_apart() -> None:
    for region in REGIONS:
        for one, other in combinations(POSITIONS[region], 2):
            assert (one[0] - other[0]) % 8 == (one[1] - other[1]) % 8 == 0


def test_scenes_are_drawn_from_the_prior() -> None:
    rng = np.random.default_rng(0)
    scenes = [sample_scene(rng) for _ in range(6000)]
    layouts = Counter(scene.layout for scene in scenes)
    expected = [len(scenes) * LAYOUT_PRIOR[layout] for layout in LAYOUTS]
    assert stats.chisquare([layouts[layout] for layout in LAYOUTS], expected).pvalue > 1e-3
    for layout, regions in LAYOUTS.items():
        for slot, region in enumerate(regions):
            items = [scene.things[slot] for scene in scenes if scene.layout == layout]
            places = Counter((item.x, item.y) for item in items)
            assert stats.chisquare([places[place] for place in POSITIONS[region]]).pvalue > 1e-3
            for name in ATTRIBUTES:
                seen = Counter(item.value(name) for item in items)
                assert stats.chisquare([seen[value] for value in VALUES[name]]).pvalue > 1e-3
    assert stats.chisquare(list(Counter(scene.background for scene in scenes).values())).pvalue > 1e-3


def test_a_seed_gives_the_same_scenes() -> None:
    first, second = (np.random.default_rng(7) for _ in range(2))
    assert [sample_scene(first) for _ in range(20)] == [sample_scene(second) for _ in range(20)]


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_layout_can_be_asked_for(layout: Layout) -> None:
    scene = sample_scene(np.random.default_rng(1), layout)
    assert scene.layout == layout
    assert len(scene.things) == len(LAYOUTS[layout])
