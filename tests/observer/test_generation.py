"""Planning a generation, and watching it from beginning to end."""

from pathlib import Path
from types import SimpleNamespace
from typing import TypedDict

import numpy as np
import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    PNDMScheduler,
    StableDiffusionPipeline,
)

from denoscope import ModelError, ObserveError
from denoscope.observer import plan_generation, trace_generation

PROMPT = "a red circle above a blue square"


def test_defaults_are_the_models(pipe: StableDiffusionPipeline) -> None:
    plan = plan_generation(pipe, PROMPT)
    assert (plan.num_inference_steps, plan.guidance_scale) == (50, 7.5)
    assert (plan.width, plan.height) == (64, 64)
    assert (plan.seed, plan.negative_prompt) == (0, "")
    plan = plan_generation(pipe, PROMPT, seed=3, steps=4, guidance_scale=0, size=(96, 72), negative_prompt="x")
    assert (plan.num_inference_steps, plan.guidance_scale, plan.width, plan.height) == (4, 0, 96, 72)


class Asked(TypedDict, total=False):
    negative_prompt: str
    words: list[str]
    steps: int
    guidance_scale: float
    size: tuple[int, int]


@pytest.mark.parametrize(
    ("prompt", "settings", "sentence"),
    [
        ("", {}, "the prompt is empty"),
        (" \n", {}, "the prompt is empty"),
        ("a \udcff circle", {}, "the prompt is not valid Unicode"),
        (PROMPT, {"negative_prompt": "\ud83d"}, "the negative prompt is not valid Unicode"),
        (PROMPT, {"words": ["dog"]}, "the word 'dog' is not in the prompt; its words are 'a', 'red'"),
        (PROMPT, {"words": ["red", "\udcff"]}, "is not in the prompt"),
        (PROMPT, {"steps": 0}, "0 steps are not possible: this scheduler makes 1 to 1000"),
        (PROMPT, {"steps": -3}, "-3 steps are not possible"),
        (PROMPT, {"steps": 1001}, "1001 steps are not possible"),
        (PROMPT, {"steps": 61}, "DDIMScheduler can't make 61 steps as it is configured: take 60"),
        (PROMPT, {"guidance_scale": -0.5}, "guidance -0.5 is out of range"),
        (PROMPT, {"guidance_scale": float("nan")}, "guidance nan is out of range"),
        (PROMPT, {"guidance_scale": float("inf")}, "guidance inf is out of range"),
        (PROMPT, {"size": (63, 64)}, "width 63 is not possible: give a multiple of 8"),
        (PROMPT, {"size": (64, 0)}, "height 0 is not possible"),
        (PROMPT, {"size": (64, 8192)}, "height 8192 is not possible"),
    ],
)
def test_what_can_not_be_drawn_is_refused(
    pipe: StableDiffusionPipeline, prompt: str, settings: Asked, sentence: str
) -> None:
    before = dict(vars(pipe.scheduler))
    with pytest.raises(ObserveError) as caught:
        plan_generation(pipe, prompt, **settings)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert vars(pipe.scheduler) == before


@pytest.mark.parametrize(
    ("kind", "settings", "possible", "impossible"),
    [
        (DDIMScheduler, {"timestep_spacing": "leading", "steps_offset": 1}, (1, 61, 999), (1000,)),
        (DDIMScheduler, {"timestep_spacing": "linspace"}, (1, 61, 1000), ()),
        (EulerDiscreteScheduler, {"timestep_spacing": "trailing"}, (1, 60, 62, 1000), (61,)),
        (DPMSolverMultistepScheduler, {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}, (1, 20), ()),
        (PNDMScheduler, {}, (4, 50), (1,)),
    ],
)
def test_steps_that_a_scheduler_makes(
    pipe: StableDiffusionPipeline,
    kind: type,
    settings: dict[str, object],
    possible: tuple[int, ...],
    impossible: tuple[int, ...],
) -> None:
    pipe.scheduler = kind(**settings)
    for steps in possible:
        assert plan_generation(pipe, PROMPT, steps=steps).num_inference_steps == steps
    for steps in impossible:
        with pytest.raises(ObserveError, match=f"can't make {steps} steps"):
            plan_generation(pipe, PROMPT, steps=steps)


def test_a_pipeline_that_is_not_supported(pipe: StableDiffusionPipeline) -> None:
    other = DDPMPipeline(pipe.unet, DDPMScheduler())
    with pytest.raises(ModelError, match="DDPMPipeline is not drawn from a prompt alone"):
        plan_generation(other, PROMPT)


def test_the_picture_is_the_pipelines_and_every_step_is_shown(pipe: StableDiffusionPipeline) -> None:
    plan = plan_generation(pipe, PROMPT, steps=3, seed=11, size=(96, 64), negative_prompt="a cross")
    told: list[int] = []
    traced = trace_generation(pipe, plan, ["circle"], told.append)
    plain = pipe(
        PROMPT,
        negative_prompt="a cross",
        num_inference_steps=3,
        width=96,
        height=64,
        generator=torch.Generator().manual_seed(11),
        output_type="np",
    ).images[0]
    assert np.array_equal(traced.picture, np.rint(plain * 255).astype(np.uint8))
    assert told == [0, 1, 2]
    assert [picture.shape for picture in traced.x0_pictures] == [(64, 96, 3)] * 3
    assert np.abs(traced.x0_pictures[-1].astype(int) - traced.picture).max() <= 1
    assert traced.trace.word.values.tolist() == ["circle"]
    attrs = traced.trace.attrs
    assert (attrs["prompt"], attrs["negative_prompt"], attrs["guidance_scale"]) == (PROMPT, "a cross", 7.5)
    assert set(traced.seconds) == {"generate", "decode"}
    assert traced.warnings == ()


def test_a_cut_prompt_is_warned_of(pipe: StableDiffusionPipeline) -> None:
    traced = trace_generation(pipe, plan_generation(pipe, "red " * 40, steps=1))
    assert traced.warnings == ("the prompt has 42 tokens, the model reads the first 32 only",)


@pytest.mark.filterwarnings("error")
def test_an_overflowed_picture_is_warned_of(pipe: StableDiffusionPipeline) -> None:
    plan = plan_generation(pipe, PROMPT, steps=1)
    with torch.no_grad():
        pipe.vae.post_quant_conv.bias.fill_(torch.nan)
    traced = trace_generation(pipe, plan)
    assert len(traced.warnings) == 1
    assert "not finite" in traced.warnings[0]


def test_a_picture_blacked_out_is_warned_of(pipe: StableDiffusionPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = StableDiffusionPipeline.__call__

    def flagged(self: StableDiffusionPipeline, *args: object, **kwargs: object) -> SimpleNamespace:
        return SimpleNamespace(images=plain(self, *args, **kwargs).images, nsfw_content_detected=[True])

    plan = plan_generation(pipe, PROMPT, steps=1)
    monkeypatch.setattr(StableDiffusionPipeline, "__call__", flagged)
    assert trace_generation(pipe, plan).warnings == ("the model's safety checker blacked the picture out",)


def test_recommended_settings_lie_beside_the_model(pipe: StableDiffusionPipeline, tiny_folder: Path) -> None:
    file = tiny_folder / "sampling.json"
    file.write_text('{"num_inference_steps": 5, "guidance_scale": 2.5}')
    try:
        plan = plan_generation(pipe, PROMPT)
    finally:
        file.unlink()
    assert (plan.num_inference_steps, plan.guidance_scale) == (5, 2.5)
