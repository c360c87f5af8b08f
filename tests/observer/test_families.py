"""Every family: maps are the softmax of the layers' own queries and keys, and the picture is the one unobserved."""

from pathlib import Path

import numpy as np
import pytest
import torch
from attention_reference import on_latent_grid
from diffusers import DiffusionPipeline
from family_calls import CALLS_A_STEP, COND_ROW, TEXT, call, recorded
from numpy.typing import NDArray
from tiny_families import FAMILIES, loaded, saved
from torch import nn

from denoscope import observe
from denoscope.pipelines import adapter_for

WITHOUT_SELF = {"kandinsky-prior"}
TEXT_FIRST = ("flux", "flux2", "unclip", "kandinsky-decoder")


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, DiffusionPipeline]:
    name = str(request.param)
    folder: Path = saved(name, tmp_path_factory.mktemp("family") / name)
    return name, loaded(name, folder)


def hooks(pipe: DiffusionPipeline) -> int:
    modules = [part for part in pipe.components.values() if isinstance(part, nn.Module)]
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for part in modules for m in part.modules())


def weights(pipe: DiffusionPipeline) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in adapter_for(pipe).denoiser(pipe).state_dict().items()}


def test_the_picture_is_the_same_and_nothing_stays(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    plain = call(name, pipe)
    before, state, random = hooks(pipe), weights(pipe), torch.get_rng_state()
    attributes = {key: set(vars(part)) for key, part in pipe.components.items() if part is not None}
    with observe(pipe, attention="cross" if name in TEXT else None, features=True) as watch:
        seen = call(name, pipe)
    assert seen.tobytes() == plain.tobytes()
    assert hooks(pipe) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[key]) for key, value in weights(pipe).items())
    assert {key: set(vars(part)) for key, part in pipe.components.items() if part is not None} == attributes
    assert watch.trace.sizes["step"] == 2
    assert bool(np.all(np.diff(watch.trace.logsnr) > 0))
    for features in watch.features.values():
        assert bool(np.isfinite(features["mean"]).all())


def test_words_have_the_mass_that_float64_gives_them(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    if name not in TEXT:
        pytest.skip("reads no text")
    layers = dict(adapter_for(pipe).layers(pipe, "cross"))
    assert layers
    with recorded(layers) as reference, observe(pipe) as watch:
        call(name, pipe)
    trace = watch.trace
    assert trace.layer.values.tolist() == list(layers)
    assert trace.word.values.tolist() == list(TEXT[name])
    text_first = name in TEXT_FIRST
    places = trace.sizes["y"] * trace.sizes["x"]
    for layer in layers:
        for step in range(2):
            rows_of_all = reference.probabilities(layer, step * CALLS_A_STEP.get(name, 1), text_first)
            whole = rows_of_all[COND_ROW.get(name, 1)].numpy()
            text = whole.shape[1] - (picture := own_places(name, whole, places))
            start = 0 if text_first or picture == 0 or name == "kandinsky-prior" else picture
            rows = (
                slice(-1, None)
                if name == "kandinsky-prior"
                else slice(text, None)
                if name in ("flux", "flux2")
                else slice(0, picture or None)
            )
            for word, positions in TEXT[name].items():
                expected = whole[rows][:, [start + position for position in positions]].sum(-1)
                seen = trace.attention.sel(word=word, layer=layer).isel(step=step)
                np.testing.assert_allclose(seen, on_latent_grid(expected, *seen.shape), atol=1e-5)
            mass = trace.token_mass.sel(layer=layer).isel(step=step)
            assert float(mass.sum()) == pytest.approx(1, abs=1e-5)
            found = whole[rows][:, start : start + text].sum(-1).mean()
            told = mass.sel(token_kind=[kind for kind in mass.token_kind.values if kind != "picture"]).sum()
            assert float(told) == pytest.approx(found, abs=1e-5)
    if TEXT[name]:
        assert float(trace.attention.std("word").mean()) > 1e-3  # the reference tells words apart


def own_places(name: str, whole: NDArray[np.float64], latents: int) -> int:
    """How many of the keys are places of the picture."""
    match name:
        case "flux":
            return latents // 4
        case "flux2":
            return latents
        case "sd3" | "sd3-without-t5" | "sd3.5":
            return latents // 4
        case "unclip" | "kandinsky-decoder":
            return int(whole.shape[0])
        case "kandinsky-prior":
            return int(whole.shape[1]) - 32
    return 0


def test_places_look_where_float64_says(family: tuple[str, DiffusionPipeline]) -> None:
    name, pipe = family
    if name in WITHOUT_SELF:
        pytest.skip("has no picture")
    layers = dict(adapter_for(pipe).layers(pipe, "self"))
    with recorded(layers) as reference, observe(pipe, attention="self", region=(0, 0, 0.5, 1)) as watch:
        call(name, pipe)
    trace = watch.trace
    height, width = trace.sizes["y"], trace.sizes["x"]
    for layer in layers:
        whole = reference.probabilities(layer, CALLS_A_STEP.get(name, 1), name in TEXT_FIRST)[
            COND_ROW.get(name, 1)
        ].numpy()
        picture = own_places(name, whole, height * width) or whole.shape[1]
        start = whole.shape[1] - picture if name in TEXT_FIRST else 0
        rows = start if name in ("flux", "flux2") else 0
        halvings = next(level for level in range(8) if -(-height // 2**level) * -(-width // 2**level) == picture)
        columns = -(-width // 2**halvings)
        left = [place for place in range(picture) if (place % columns + 0.5) / columns < 0.5]
        expected = whole[[rows + place for place in left]][:, start : start + picture].mean(0)
        seen = trace.self_attention.sel(layer=layer).isel(step=1)
        np.testing.assert_allclose(seen, on_latent_grid(expected, height, width), atol=1e-5)


@pytest.mark.parametrize("size", [(16, 16), (8, 40), (24, 8)])
@pytest.mark.parametrize("name", ["sdxl", "sd3", "flux", "pixart-sigma"])
def test_every_shape_of_picture(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    pipe = loaded(name, saved(name, tmp_path))
    with observe(pipe, words=["circle"]) as watch:
        call(name, pipe, size=size)
    assert (watch.trace.sizes["y"], watch.trace.sizes["x"]) == size
    assert bool(np.isfinite(watch.trace.attention).all())
    assert watch.trace.x0.shape[-2:] == size
