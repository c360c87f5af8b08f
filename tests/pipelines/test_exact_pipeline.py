"""The exact model of the shapes world runs as a Stable Diffusion pipeline and draws what it is told."""

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline

from denoscope import ModelError, observe
from denoscope.data.worlds.shapes.captions import parse
from denoscope.data.worlds.shapes.exact import conditions
from denoscope.data.worlds.shapes.judging import judge
from denoscope.data.worlds.shapes.reader import read, relation
from denoscope.observer import plan_generation, trace_generation

PROMPT = "a red circle above a blue square"


@pytest.mark.parametrize("seed", [0, 1])
def test_it_draws_what_the_caption_says(exact_pipe: StableDiffusionPipeline, seed: int) -> None:
    plan = plan_generation(exact_pipe, PROMPT, steps=8, guidance_scale=1, seed=seed)
    traced = trace_generation(exact_pipe, plan)
    assert judge(traced.picture, parse(PROMPT)).whole
    upper, lower = read(traced.picture).things
    assert (upper.colour, upper.shape, lower.colour, lower.shape) == ("red", "circle", "blue", "square")
    assert relation(upper, lower) == ("vertical", False)
    assert set(traced.trace.data_vars) == {"x0"}


def test_one_step_is_the_closed_form(exact_pipe: StableDiffusionPipeline) -> None:
    world = exact_pipe.unet.world
    scheduler: DDIMScheduler = exact_pipe.scheduler
    scheduler.set_timesteps(4)
    start = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    told: list[torch.Tensor] = []

    def after(_pipe: object, step: int, _timestep: object, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        told.append(values["latents"].clone())
        return values

    exact_pipe(
        PROMPT,
        num_inference_steps=4,
        guidance_scale=1,
        latents=start,
        output_type="latent",
        callback_on_step_end=after,
    )
    z = start.double()
    for step, timestep in enumerate(scheduler.timesteps.tolist()):
        kept = float(scheduler.alphas_cumprod[timestep])
        before = timestep - 250
        left = float(scheduler.alphas_cumprod[before]) if before >= 0 else 1.0
        logsnr = float(np.log(kept / (1 - kept)))
        clean = world.denoise(z.float(), logsnr, conditions([parse(PROMPT)])).double()
        noise = (z - kept**0.5 * clean) / (1 - kept) ** 0.5
        z = left**0.5 * clean + (1 - left) ** 0.5 * noise
        assert float((told[step] - z).abs().max()) < 2e-3
        z = told[step].double()


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [("a red dog", "'dog' is not a word"), ("a red circle on a red circle on a square", "exact model only knows")],
)
def test_a_prompt_outside_the_world(exact_pipe: StableDiffusionPipeline, prompt: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        exact_pipe(prompt, num_inference_steps=1)
    assert "\n" not in str(caught.value)


def test_another_size_is_refused(exact_pipe: StableDiffusionPipeline) -> None:
    with pytest.raises(ModelError, match="only draws pictures of 64 x 64"):
        exact_pipe(PROMPT, num_inference_steps=1, height=64, width=128)


def test_the_output_is_v_of_the_posterior_mean_also_between_timesteps(exact_pipe: StableDiffusionPipeline) -> None:
    z = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    ids = exact_pipe.tokenizer([PROMPT, ""], padding="max_length", return_tensors="pt")["input_ids"]
    (states,) = exact_pipe.text_encoder(ids)
    given = conditions([parse(PROMPT), parse("")])
    logsnr = exact_pipe.unet.logsnr
    levels = {500: float(logsnr[500]), 500.25: float(0.75 * logsnr[500] + 0.25 * logsnr[501])}
    outputs = []
    for timestep, level in levels.items():
        alpha, sigma = (1 / (1 + np.exp(-level))) ** 0.5, (1 / (1 + np.exp(level))) ** 0.5
        clean = exact_pipe.unet.world.denoise(z, level, given)
        expected = alpha * (z - alpha * clean) / sigma - sigma * clean
        outputs.append(exact_pipe.unet(z, timestep, states)[0])
        torch.testing.assert_close(outputs[-1], expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(outputs[0][0], outputs[0][1], atol=0.1)
    assert not torch.equal(*outputs)


def test_guidance_is_observed(exact_pipe: StableDiffusionPipeline) -> None:
    with observe(exact_pipe, attention=None) as watch:
        generator = torch.Generator().manual_seed(0)
        exact_pipe(PROMPT, num_inference_steps=3, guidance_scale=2, output_type="latent", generator=generator)
    assert set(watch.trace.data_vars) == {"guidance", "x0"}
    assert float(watch.trace.guidance.max()) > 0.01
