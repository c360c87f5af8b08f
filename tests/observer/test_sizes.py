"""Pictures of usual sizes, wide ones and odd ones, at the eighth that usual latents have, against float64."""

from functools import partial

import numpy as np
import pytest
import torch
from attention_reference import on_latent_grid, recorded
from diffusers import DiffusionPipeline, StableDiffusionPipeline
from family_calls import CLIP, PROMPT, call
from family_layouts import LAYOUTS
from held_against import check_words
from tiny_families import loaded, saved

from denoscope import observe

LAYER = "*down_blocks.0.attentions.0*"
"""One layer at the latents' own size; all layers of these sizes would take a minute."""


def draw(pipe: StableDiffusionPipeline, height: int, width: int) -> None:
    pipe(
        PROMPT, height=height, width=width, num_inference_steps=1, output_type="latent",
        generator=torch.Generator().manual_seed(5),
    )  # fmt: skip


@pytest.mark.parametrize(("height", "width"), [(512, 768), (256, 1024), (1024, 256), (488, 360)])
def test_pictures_of_usual_sizes(pipe: StableDiffusionPipeline, height: int, width: int) -> None:
    with recorded(pipe) as reference, observe(pipe, words=["red", "crimson"], layers=LAYER) as watch:
        draw(pipe, height, width)
    (layer,) = watch.trace.layer.values.tolist()
    whole = reference.probabilities(layer, 0)[1]
    assert whole.shape[0] == (height // 8) * (width // 8)
    for word in ("red", "crimson"):
        expected = on_latent_grid(whole[:, CLIP[word]].sum(-1), height // 8, width // 8)
        assert expected.shape == (height // 8, width // 8)
        found = watch.trace.attention.sel(word=word, layer=layer).isel(step=0)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(watch.trace.token_mass.sum("token_kind"), 1, atol=1e-5)


def test_the_deepest_layer_of_a_wide_picture(pipe: StableDiffusionPipeline) -> None:
    with recorded(pipe) as reference, observe(pipe, words=["red"], layers="mid_block*") as watch:
        draw(pipe, 256, 1024)
    (layer,) = watch.trace.layer.values.tolist()
    whole = reference.probabilities(layer, 0)[1]
    assert whole.shape[0] == 8 * 32
    found = watch.trace.attention.sel(word="red", layer=layer).isel(step=0)
    np.testing.assert_allclose(found, on_latent_grid(whole[:, [2]].sum(-1), 32, 128), atol=1e-5)


ODD = {"sd": (13, 18), "sdxl": (13, 18), "sd3": (14, 22), "flux": (10, 22), "flux2": (7, 5), "pixart-sigma": (14, 22)}
"""Latents that halve to odd numbers, or are odd themselves, where the family can draw them."""
EIGHTHS = ("sd", "sdxl", "pixart-sigma")
"""Families that draw multiples of 8 pixels alone: these are told that latents are an eighth of the picture."""


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DiffusionPipeline]:
    folder = tmp_path_factory.mktemp("families")
    return {name: loaded(name, saved(name, folder / name)) for name in ODD}


@pytest.mark.parametrize("name", ODD)
def test_odd_latents(name: str, families: dict[str, DiffusionPipeline]) -> None:
    pipe, pixels = families[name], {"flux2": 2}.get(name, 1)  # a token of Flux.2 is a latent here
    if name in EIGHTHS:
        pipe.vae_scale_factor = pixels = 8
    height, width = (pixels * side for side in ODD[name])
    with observe(pipe, attention=None) as watch:
        call(name, pipe, steps=1, size=(height, width))
    assert watch.trace.x0.shape[-2:] == ODD[name]
    check_words(pipe, partial(call, name, pipe, size=(height, width)), LAYOUTS[name])
