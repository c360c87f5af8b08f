"""Long prompts, negative ones, embeddings, skipped layers of the encoder: words stay with their columns."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline
from family_calls import PROMPT, call, joined, shifted
from family_layouts import LAYOUTS
from held_against import check_words
from tiny_families import loaded, saved

from denoscope import ObserveError, observe
from denoscope.pipelines.adapters import Branch

NEGATIVE = "a blue square"
CLIP_NEGATIVE, T5_NEGATIVE = {"a": [1], "blue": [2], "square": [3]}, {"a": [0], "blue": [1], "square": [2]}
BOTH = joined(CLIP_NEGATIVE, shifted(T5_NEGATIVE, 32))
FAMILIES = (
    "sd", "sdxl", "sdxl-refiner", "sd3", "sd3.5", "flux", "flux2", "pixart-alpha", "pixart-sigma",
    "kandinsky-prior", "instruct-pix2pix", "pag",
)  # fmt: skip


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DiffusionPipeline]:
    folder: Path = tmp_path_factory.mktemp("families")
    return {name: loaded(name, saved(name, folder / name)) for name in FAMILIES}


@pytest.mark.parametrize(
    ("name", "words", "row", "branch"),
    [
        ("sd", CLIP_NEGATIVE, 0, "uncond"),
        ("sdxl", CLIP_NEGATIVE, 0, "uncond"),
        ("sdxl-refiner", CLIP_NEGATIVE, 0, "uncond"),
        ("sd3", BOTH, 0, "uncond"),
        ("sd3.5", BOTH, 0, "uncond"),
        ("flux", T5_NEGATIVE, 0, "uncond"),
        ("pixart-alpha", T5_NEGATIVE, 0, "uncond"),
        ("pixart-sigma", T5_NEGATIVE, 0, "uncond"),
        ("instruct-pix2pix", CLIP_NEGATIVE, 1, "image"),
        ("instruct-pix2pix", CLIP_NEGATIVE, 2, "uncond"),
        ("pag", CLIP_NEGATIVE, 0, "uncond"),
    ],
)
def test_the_negative_prompts_words(
    name: str, words: Mapping[str, list[int]], row: int, branch: Branch, families: dict[str, DiffusionPipeline]
) -> None:
    more: dict[str, object] = {"true_cfg_scale": 3.0} if name == "flux" else {}
    calls = 2 if name == "flux" else 1
    layout = replace(LAYOUTS[name], words=words, row=row, calls=calls, turn=calls - 1)
    draw = partial(call, name, families[name], more=more | {"negative_prompt": NEGATIVE})
    check_words(families[name], draw, layout, branch=branch)


def test_a_prior_that_answers_both_prompts_at_once_is_refused(families: dict[str, DiffusionPipeline]) -> None:
    """Of Kandinsky's prior a negative prompt asks for a second embedding, by the same denoiser call."""
    with observe(families["kandinsky-prior"]) as watch:
        call("kandinsky-prior", families["kandinsky-prior"], more={"negative_prompt": NEGATIVE})
    with pytest.raises(ObserveError, match="one prompt per call"):
        _ = watch.trace


def counted(count: int, first: int) -> dict[str, list[int]]:
    """Columns of "red circle red circle …", one token a word."""
    labels = (f"{('red', 'circle')[i % 2]}#{i // 2 + 1}".removesuffix("#1") for i in range(count))
    return {label: [first + i] for i, label in enumerate(labels)}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sd", counted(30, 1)),  # of 32 tokens one begins and one ends the prompt
        ("sdxl", counted(30, 1)),
        ("sdxl-refiner", counted(30, 1)),
        ("sd3", counted(255, 32) | joined(counted(30, 1), counted(30, 32))),
        ("flux", counted(511, 0)),
        ("flux2", counted(507, 5) | {"red": [3, 4, 5]}),  # "red" is no token without a space; no end is read
        ("pixart-alpha", counted(119, 0)),
        ("pixart-sigma", counted(299, 0)),
        ("kandinsky-prior", counted(30, 1)),
        ("instruct-pix2pix", counted(30, 1)),
        ("pag", counted(30, 1)),
    ],
)
def test_of_a_prompt_too_long_what_is_read_is_seen(
    name: str, words: Mapping[str, list[int]], families: dict[str, DiffusionPipeline]
) -> None:
    steps = 1 if "flux" in name else 2  # some samplers of others take no single step
    draw = partial(call, name, families[name], steps=steps, more={"prompt": "red circle " * 300})
    check_words(families[name], draw, replace(LAYOUTS[name], words=words), steps=steps)


# Of SD diffusers itself can't skip layers with transformers 5, whose encoder has no part called text_model.
@pytest.mark.parametrize("name", ["sdxl", "sd3"])
def test_skipped_layers_of_the_encoder_change_maps_rightly(name: str, families: dict[str, DiffusionPipeline]) -> None:
    draw = partial(call, name, families[name], more={"clip_skip": 1})
    check_words(families[name], draw, LAYOUTS[name])
    with observe(families[name]) as skipped:
        draw()
    with observe(families[name]) as whole:
        call(name, families[name])
    assert float(abs(skipped.trace.attention - whole.trace.attention).max()) > 1e-4


def test_rescaled_guidance_is_in_the_predicted_picture(
    families: dict[str, DiffusionPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = families["sd"]
    draw = partial(call, "sd", pipe, more={"guidance_rescale": 0.7, "guidance_scale": 9.0})
    check_words(pipe, draw, LAYOUTS["sd"])
    expected = []
    plain = pipe.scheduler.step

    def step(noise: torch.Tensor, timestep: torch.Tensor, sample: torch.Tensor, **kwargs: object) -> object:
        kept = pipe.scheduler.alphas_cumprod[timestep].double()
        expected.append((sample.double() - (1 - kept).sqrt() * noise.double()) / kept.sqrt())
        return plain(noise, timestep, sample, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(pipe.scheduler, "step", step)
        with observe(pipe) as watch:
            draw()
    for seen, told in zip(watch.trace.x0.values, expected, strict=True):
        np.testing.assert_allclose(seen, told[0], rtol=1e-3, atol=1e-3)


def embeddings_of_two_chunks(pipe: DiffusionPipeline, texts: tuple[str, str]) -> dict[str, object]:
    """Two prompts' embeddings one after the other, as tools for long prompts make them."""
    parts = [pipe.encode_prompt(text, "cpu", 1, False)[0] for text in texts]
    none = pipe.encode_prompt("", "cpu", 1, False)[0]
    return {"prompt": None, "prompt_embeds": torch.cat(parts, 1), "negative_prompt_embeds": torch.cat([none, none], 1)}


def test_embeddings_lengthened_by_other_tools(families: dict[str, DiffusionPipeline]) -> None:
    pipe = families["sd"]
    draw = partial(call, "sd", pipe, more=embeddings_of_two_chunks(pipe, (PROMPT, "")))
    with observe(pipe) as watch:
        draw()
    with pytest.raises(ObserveError, match=r"words are unknown .*pass observe"):
        _ = watch.trace
    # The prompt fills less than the first chunk: its words are where they always are.
    check_words(pipe, draw, replace(LAYOUTS["sd"], text=64), prompt=PROMPT)
    long = "red circle " * 20
    draw = partial(call, "sd", pipe, more=embeddings_of_two_chunks(pipe, (long[:165], long[165:])))
    with observe(pipe, prompt=long) as watch:
        draw()
    with pytest.raises(ObserveError, match="prompts lengthened by other tools can't be mapped to words"):
        _ = watch.trace
