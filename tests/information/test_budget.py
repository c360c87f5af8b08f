"""What economies leave out, and that what they don't touch stays as it was."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from diffusers import DPMSolverMultistepScheduler, StableDiffusionPipeline
from torch import Tensor

import denoscope
from denoscope.information import InformationError
from denoscope.information.budget import Economy, Setting, economised, measure, on_front, spaced_by_information
from denoscope.pipelines.exact import ExactDenoiser

PROMPT = "a red circle above a blue square"


@pytest.fixture(scope="module")
def shapes() -> StableDiffusionPipeline:
    pipe = denoscope.load("shapes", "cpu")
    pipe.set_progress_bar_config(disable=True)
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)
    return pipe


def draw(pipe: StableDiffusionPipeline, steps: int = 6, **kwargs: object) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    call: dict[str, object] = {"guidance_scale": 2.0, "output_type": "latent"}
    latents: Tensor = pipe(PROMPT, num_inference_steps=steps, generator=generator, **(call | kwargs)).images
    return latents


def guidance_until(step: int) -> Callable[..., dict[str, Tensor]]:
    """diffusers' own way to turn guidance off, through the callback between steps."""

    def after(
        pipe: StableDiffusionPipeline, index: int, _timestep: object, held: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        if index == step - 1:
            pipe._guidance_scale = 0.0
            held["prompt_embeds"] = held["prompt_embeds"].chunk(2)[-1]
        return held

    return after


def test_guidance_off_is_what_the_pipeline_s_own_callback_does(shapes: StableDiffusionPipeline) -> None:
    with economised(shapes, Economy(guidance_off=2)) as tally:
        ours = draw(shapes)
    theirs = draw(shapes, callback_on_step_end=guidance_until(2), callback_on_step_end_tensor_inputs=["prompt_embeds"])
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert tally.rows == 2 * 2 + 4 * 1


def test_nothing_left_out_is_the_plain_call(shapes: StableDiffusionPipeline) -> None:
    plain = draw(shapes)
    with economised(shapes, Economy()) as tally:
        assert torch.equal(draw(shapes), plain)
    assert tally.rows == 12


def test_a_prediction_taken_over_is_the_last_one(shapes: StableDiffusionPipeline) -> None:
    held: list[Tensor] = []
    plain = shapes.scheduler.step

    def step(output: Tensor, *args: object, **kwargs: object) -> object:
        held.append(output.clone())
        return plain(output, *args, **kwargs)

    shapes.scheduler.step = step
    try:
        with economised(shapes, Economy(taken_over=(2, 3))) as tally:
            draw(shapes)
    finally:
        del shapes.scheduler.step
    same = [torch.equal(one, other) for one, other in pairwise(held)]
    assert same == [False, True, True, False, False]
    assert tally.rows == 8


def test_frozen_text_calls_its_layers_no_more(shapes: StableDiffusionPipeline) -> None:
    calls = []
    layer = shapes.unet.mid_block.attentions[0].transformer_blocks[0].attn2
    hook = layer.to_q.register_forward_hook(lambda *_: calls.append(1))
    try:
        with economised(shapes, Economy(text_frozen=1)):
            draw(shapes)
    finally:
        hook.remove()
    assert len(calls) == 2  # steps 0 and 1


def test_cached_blocks_are_the_inner_ones(shapes: StableDiffusionPipeline) -> None:
    calls = {"outer": 0, "inner": 0}

    def count(name: str) -> Callable[..., None]:
        def called(*_: object) -> None:
            calls[name] += 1

        return called

    hooks = [
        shapes.unet.down_blocks[0].resnets[0].register_forward_hook(count("outer")),
        shapes.unet.mid_block.resnets[0].register_forward_hook(count("inner")),
    ]
    try:
        with economised(shapes, Economy(cached=(1, 2, 4))):
            draw(shapes)
    finally:
        for hook in hooks:
            hook.remove()
    assert calls == {"outer": 6, "inner": 3}


def test_modules_and_scheduler_are_left_as_they_were_after_an_exception(shapes: StableDiffusionPipeline) -> None:
    before = {name: dict(vars(module)) for name, module in shapes.unet.named_modules()}
    scheduler = set(vars(shapes.scheduler))
    with pytest.raises(RuntimeError, match="stop"), economised(shapes, Economy(text_frozen=1, cached=(1,))):
        raise RuntimeError("stop")
    assert all(vars(module).keys() == before[name].keys() for name, module in shapes.unet.named_modules())
    assert set(vars(shapes.scheduler)) == scheduler


@pytest.mark.parametrize(
    ("economy", "words"),
    [(Economy(cached=(0, 1)), "step 0"), (Economy(guidance_off=1, text_frozen=1), "can't be combined")],
)
def test_what_can_t_be_left_out_is_said(shapes: StableDiffusionPipeline, economy: Economy, words: str) -> None:
    with pytest.raises(InformationError, match=words), economised(shapes, economy):
        pass


def test_a_denoiser_without_such_layers_is_refused(shapes: StableDiffusionPipeline) -> None:
    pipe = StableDiffusionPipeline(**(shapes.components | {"unet": ExactDenoiser()}), requires_safety_checker=False)
    with pytest.raises(InformationError, match="cross-attention"), economised(pipe, Economy(text_frozen=1)):
        pass
    with pytest.raises(InformationError, match="U-Net"), economised(pipe, Economy(cached=(1,))):
        pass


def test_equal_information_lies_between_re_spaced_steps() -> None:
    timesteps = np.linspace(999, 0, 1000)
    curve = 1 / (1 + np.exp((timesteps - 400) / 40))
    found = np.array(spaced_by_information(curve, timesteps, 12))
    assert found[0] == 999
    assert found[-1] == 0
    gained = np.diff(0.9 * np.interp(-found, -timesteps, curve) / curve[-1] + 0.1 * (999 - found) / 999)
    np.testing.assert_allclose(gained, gained.mean(), atol=0.01)


def test_the_front_against_every_pair() -> None:
    rng = np.random.default_rng(0)
    cost, quality = rng.integers(0, 6, 40).astype(float), rng.integers(0, 6, 40).astype(float)
    for at, front in enumerate(on_front(cost, quality)):
        beaten = any(
            cost[other] <= cost[at]
            and quality[other] >= quality[at]
            and (cost[other], quality[other]) != (cost[at], quality[at])
            for other in range(40)
        )
        assert front != beaten


def test_costs_and_losses_of_a_small_run(shapes: StableDiffusionPipeline) -> None:
    own = shapes.scheduler
    settings = [
        Setting("fewer steps", "half", 4),
        Setting("guidance off", "off", 8, Economy(guidance_off=4)),
        Setting("re-spaced", "re-spaced", 4, timesteps=(999, 700, 400, 100)),
    ]
    found = measure(
        shapes,
        settings,
        [PROMPT],
        [0, 1],
        steps=8,
        guidance_scale=2.0,
        judge=lambda _, pictures: [True] * len(pictures),
    )
    assert shapes.scheduler is own
    assert found["calls"].values.tolist() == [16, 8, 12, 8]
    macs = found["macs"].values
    np.testing.assert_allclose(macs / macs[0], [1, 1 / 2, 3 / 4, 1 / 2], rtol=0.01)
    assert found["psnr"].values[0] == found["psnr"].values.max()
    assert (found["accuracy"] == 1).all()
    assert found["accuracy_low"].values[0] == pytest.approx(2 / (2 + 1.645**2), abs=1e-3)  # Wilson, all right
