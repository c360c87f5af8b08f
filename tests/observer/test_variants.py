"""Every pipeline that ``denoscope models list`` names is called, and held against float64, as its family is."""

from functools import partial

import pytest
from diffusers import DiffusionPipeline
from family_layouts import LAYOUTS
from held_against import check_places, check_undisturbed, check_words
from tiny_families import FAMILIES, loaded, saved
from tiny_variants import VARIANTS, Variant

from denoscope.pipelines.adapters import ADAPTERS

NOT_CALLED: dict[str, str] = {}
"""Pipelines that an adapter names and no test calls, and why."""


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DiffusionPipeline]:
    folder = tmp_path_factory.mktemp("families")
    names = sorted({variant.family for variant in VARIANTS})
    return {name: loaded(name, saved(name, folder / name)) for name in names}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.pipeline)
def test_a_variant_is_seen_as_its_family_is(variant: Variant, families: dict[str, DiffusionPipeline]) -> None:
    pipe = variant.made(families[variant.family])
    assert type(pipe).__name__ == variant.pipeline
    layout, draw = variant.layout or LAYOUTS[variant.family], partial(variant.draw, pipe)
    if layout.words is None:
        check_undisturbed(pipe, draw, reads_text=False)
    else:
        check_words(pipe, draw, layout)
    check_places(pipe, draw, layout)


def test_no_pipeline_that_is_named_goes_untested() -> None:
    called = {variant.pipeline for variant in VARIANTS} | {type(make()).__name__ for make in FAMILIES.values()}
    named = {pipeline for adapter in ADAPTERS for pipeline in adapter.classes}
    assert named - called == set(NOT_CALLED)
    assert called <= named
