"""Every family: maps are the softmax of the layers' own queries and keys, and the picture is the one unobserved."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
import xarray as xr
from diffusers import DiffusionPipeline
from diffusers.models import attention_processor
from family_calls import call
from family_layouts import LAYOUTS
from held_against import belongings, check_places, check_undisturbed, check_words
from tiny_families import FAMILIES, loaded, saved

from denoscope import ObserveError, observe
from denoscope.observer import Observer
from denoscope.pipelines import adapter_for


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, DiffusionPipeline]:
    name = str(request.param)
    folder: Path = saved(name, tmp_path_factory.mktemp("family") / name)
    return name, loaded(name, folder)


def test_words_have_the_mass_that_float64_gives_them_and_nothing_else_changes(
    family: tuple[str, DiffusionPipeline],
) -> None:
    name, pipe = family
    if LAYOUTS[name].words is None:
        assert not adapter_for(pipe).layers(pipe, "cross")
        check_undisturbed(pipe, partial(call, name, pipe), reads_text=False)
    else:
        check_words(pipe, partial(call, name, pipe), LAYOUTS[name])


def test_places_look_where_float64_says(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    if name == "kandinsky-prior":
        assert not adapter_for(pipe).layers(pipe, "self")
    else:
        check_places(pipe, partial(call, name, pipe), LAYOUTS[name])


def watched(name: str, pipe: DiffusionPipeline) -> Observer:
    return observe(pipe, attention="self" if LAYOUTS[name].words is None else "cross")


def test_an_exception_in_a_layer_leaves_nothing(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    call(name, pipe)  # the first call leaves attributes of its own

    def stop(*_: object) -> NoReturn:
        raise RuntimeError("stopped here")

    layers = adapter_for(pipe).layers(pipe, "self" if LAYOUTS[name].words is None else "cross")
    processors = dict(pipe.unet.attn_processors) if name == "pag" else {}
    handle = list(layers.values())[-1].register_forward_pre_hook(stop)
    try:
        before = belongings(pipe)
        with pytest.raises(RuntimeError, match="stopped here"), watched(name, pipe):
            call(name, pipe)
        if name == "pag":  # diffusers itself leaves its processors there when a call fails
            pipe.unet.set_attn_processor(processors)
        assert belongings(pipe) == before
    finally:
        handle.remove()
    with watched(name, pipe) as watch:
        call(name, pipe)
    assert watch.trace.sizes["step"] == 2


def test_a_second_observer_and_a_second_thread_are_refused(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    plain = call(name, pipe)
    with ThreadPoolExecutor(1) as pool, watched(name, pipe) as watch:
        before = belongings(pipe)
        with pytest.raises(ObserveError, match="being observed already"), watched(name, pipe):
            pass
        assert belongings(pipe) == before
        seen = pool.submit(call, name, pipe).result()
    assert seen.tobytes() == plain.tobytes()
    with pytest.raises(ObserveError, match="only be seen in the thread of the observe block"):
        _ = watch.trace


@pytest.mark.parametrize("how", ["torch.compile", "in place"])
def test_a_compiled_denoiser_is_refused(family: tuple[str, DiffusionPipeline], how: str) -> None:
    name, pipe = family
    part = adapter_for(pipe).denoiser_name
    denoiser = getattr(pipe, part)
    try:
        if how == "in place":
            denoiser.compile()
        else:
            setattr(pipe, part, torch.compile(denoiser))
        with pytest.raises(ObserveError, match="a compiled denoiser hides its layers; observe the pipeline before"):
            watched(name, pipe)
    finally:
        setattr(pipe, part, denoiser)
        denoiser._compiled_call_impl = None
    with watched(name, pipe):
        pass


SLICED = {"sd", "sdxl", "sdxl-refiner", "unclip", "kandinsky-decoder", "instruct-pix2pix", "pag"}
"""Families whose watched layers ``enable_attention_slicing`` changes; in all others it does nothing to them."""


def test_sliced_attention_is_refused_and_the_advice_works(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    if not hasattr(pipe, "enable_attention_slicing"):
        pytest.skip("can't be sliced")
    with watched(name, pipe) as watch:
        plain = call(name, pipe)
    whole = watch.trace
    pipe.enable_attention_slicing()
    try:
        with watched(name, pipe) as watch:
            call(name, pipe)
        if name in SLICED:
            with pytest.raises(ObserveError, match="does not go through scaled_dot_product_attention") as told:
                _ = watch.trace
            advised = re.search(r"first call pipe\.(\w+)\.set_attn_processor\((\w+)\(\)\)", str(told.value))
            assert advised is not None
            assert "Sliced" in str(told.value)
            getattr(pipe, advised[1]).set_attn_processor(getattr(attention_processor, advised[2])())
            with watched(name, pipe) as watch:
                np.testing.assert_allclose(call(name, pipe), plain, atol=1e-5)
        xr.testing.assert_allclose(watch.trace, whole, atol=1e-5)
    finally:
        pipe.disable_attention_slicing()


@pytest.mark.parametrize("size", [(16, 16), (8, 40), (24, 8)])
@pytest.mark.parametrize("name", ["sdxl", "sd3", "flux", "pixart-sigma"])
def test_every_shape_of_picture(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    pipe = loaded(name, saved(name, tmp_path))
    with observe(pipe, words=["circle"]) as watch:
        call(name, pipe, size=size)
    assert (watch.trace.sizes["y"], watch.trace.sizes["x"]) == size
    assert bool(np.isfinite(watch.trace.attention).all())
    assert watch.trace.x0.shape[-2:] == size
