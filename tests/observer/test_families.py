"""Every family: maps are the softmax of the layers' own queries and keys, and the picture is the one unobserved."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from diffusers import DiffusionPipeline
from family_calls import call
from family_layouts import LAYOUTS
from held_against import check_places, check_undisturbed, check_words
from tiny_families import FAMILIES, loaded, saved

from denoscope import observe
from denoscope.pipelines import adapter_for


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, DiffusionPipeline]:
    name = str(request.param)
    folder: Path = saved(name, tmp_path_factory.mktemp("family") / name)
    return name, loaded(name, folder)


def test_the_picture_is_the_same_and_nothing_stays(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    check_undisturbed(pipe, partial(call, name, pipe), reads_text=LAYOUTS[name].words is not None)


def test_words_have_the_mass_that_float64_gives_them(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    if LAYOUTS[name].words is None:
        assert not adapter_for(pipe).layers(pipe, "cross")
    else:
        check_words(pipe, partial(call, name, pipe), LAYOUTS[name])


def test_places_look_where_float64_says(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    if name == "kandinsky-prior":
        assert not adapter_for(pipe).layers(pipe, "self")
    else:
        check_places(pipe, partial(call, name, pipe), LAYOUTS[name])


@pytest.mark.parametrize("size", [(16, 16), (8, 40), (24, 8)])
@pytest.mark.parametrize("name", ["sdxl", "sd3", "flux", "pixart-sigma"])
def test_every_shape_of_picture(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    pipe = loaded(name, saved(name, tmp_path))
    with observe(pipe, words=["circle"]) as watch:
        call(name, pipe, size=size)
    assert (watch.trace.sizes["y"], watch.trace.sizes["x"]) == size
    assert bool(np.isfinite(watch.trace.attention).all())
    assert watch.trace.x0.shape[-2:] == size
