"""Guidance, predicted x0 and noise levels of every step, against the schedulers' own numbers."""

import gc

import numpy as np
import pytest
import torch
import xarray as xr
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    SchedulerMixin,
    StableDiffusionPipeline,
)
from torch import Tensor

from denoscope import observe
from denoscope.observer.records import StepRecord, Tally

PROMPT = "a red circle above a blue square"


def draw(pipe: StableDiffusionPipeline, **kwargs: object) -> Tensor:
    settings = {"num_inference_steps": 4, "output_type": "latent", "guidance_scale": 5.0} | kwargs
    latents: Tensor = pipe(PROMPT, generator=torch.Generator().manual_seed(5), **settings).images
    return latents


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction"])
def test_guidance_is_the_squared_difference_of_the_branches_noise(
    pipe: StableDiffusionPipeline, prediction_type: str
) -> None:
    pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config, prediction_type=prediction_type)
    outputs: list[Tensor] = []
    pipe.unet.register_forward_hook(lambda _module, _args, output: outputs.append(output[0].clone()))
    with observe(pipe, attention=None) as watch:
        draw(pipe)
    trace = watch.trace
    assert trace.guidance.dims == ("step", "y", "x")
    for step, (output, timestep) in enumerate(zip(outputs, pipe.scheduler.timesteps, strict=True)):
        without, given = output.double()
        difference = given - without
        if prediction_type == "v_prediction":
            # ε = α·v + σ·z, and z is the same for both.
            difference = difference * pipe.scheduler.alphas_cumprod[timestep].double().sqrt()
        expected = difference.square().sum(0)
        np.testing.assert_allclose(trace.guidance.isel(step=step), expected, rtol=1e-3, atol=1e-6)
    assert float(trace.guidance.min("step").max()) > 1e-4


def test_without_guidance_there_is_no_guidance(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        draw(pipe, guidance_scale=1.0)
    assert set(watch.trace.data_vars) == {"attention", "token_mass", "x0"}
    with observe(pipe, guidance=False, x0=False) as watch:
        draw(pipe)
    assert set(watch.trace.data_vars) == {"attention", "token_mass"}


SCHEDULERS: dict[str, tuple[type[SchedulerMixin], dict[str, object]]] = {
    "ddim": (DDIMScheduler, {}),
    "ddim v": (DDIMScheduler, {"prediction_type": "v_prediction"}),
    "ddim sample": (DDIMScheduler, {"prediction_type": "sample"}),
    "dpm": (DPMSolverMultistepScheduler, {}),
    "dpm karras": (DPMSolverMultistepScheduler, {"use_karras_sigmas": True}),
    "dpm flow": (DPMSolverMultistepScheduler, {"prediction_type": "flow_prediction", "use_flow_sigmas": True}),
    "euler": (EulerDiscreteScheduler, {}),
    "euler v": (EulerDiscreteScheduler, {"prediction_type": "v_prediction"}),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_x0_is_the_schedulers_own(pipe: StableDiffusionPipeline, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, settings = SCHEDULERS[name]
    pipe.scheduler = kind.from_config(pipe.scheduler.config, **settings)
    told: list[Tensor] = []
    plain = kind.step

    def step(self: SchedulerMixin, *args: object, return_dict: bool = True, **kwargs: object) -> object:
        output = plain(self, *args, return_dict=True, **kwargs)
        is_dpm = isinstance(self, DPMSolverMultistepScheduler)
        told.append((self.model_outputs[-1] if is_dpm else output.pred_original_sample).clone())
        return output if return_dict else (output.prev_sample,)

    monkeypatch.setattr(kind, "step", step)
    with observe(pipe, attention=None) as watch:
        draw(pipe)
    x0 = watch.trace.x0
    assert x0.dims == ("step", "channel", "y", "x")
    assert len(told) == 4
    for seen, own in zip(x0.values, [batch[0].numpy() for batch in told], strict=True):
        # The noisiest step divides by α ≈ 0.07, and rounding errors with it.
        assert np.abs(seen - own).max() < 2e-5 * np.abs(own).max()


def test_the_last_x0_is_the_picture(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        latents = draw(pipe)
    np.testing.assert_allclose(watch.trace.x0.isel(step=-1), latents[0], rtol=1e-4, atol=1e-5)


def test_steps_are_labelled_with_their_noise(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        draw(pipe)
    trace = watch.trace
    assert trace.step.values.tolist() == [0, 1, 2, 3]
    assert trace.timestep.values.tolist() == pipe.scheduler.timesteps.tolist() == [999, 749, 499, 249]
    kept = pipe.scheduler.alphas_cumprod[pipe.scheduler.timesteps].double().numpy()
    np.testing.assert_allclose(trace.logsnr, np.log(kept / (1 - kept)))
    np.testing.assert_allclose(trace.sigma, np.sqrt((1 - kept) / kept))


def test_a_scheduler_of_second_order_has_a_step_for_each_of_its_steps(pipe: StableDiffusionPipeline) -> None:
    pipe.scheduler = HeunDiscreteScheduler.from_config(pipe.scheduler.config)
    with observe(pipe) as watch:
        draw(pipe)
    assert watch.trace.timestep.values.tolist() == pipe.scheduler.timesteps.tolist()
    assert watch.trace.sizes["step"] == 7
    assert np.isfinite(watch.trace.attention).all()


@pytest.mark.parametrize("guidance_scale", [1.0, 5.0])
def test_without_the_step_axis_there_are_means(pipe: StableDiffusionPipeline, guidance_scale: float) -> None:
    with observe(pipe) as full:
        draw(pipe, guidance_scale=guidance_scale)
    with observe(pipe, keep_steps=False) as means:
        draw(pipe, guidance_scale=guidance_scale)
    expected = full.trace.drop_vars("x0").mean("step")
    assert "step" not in means.trace.dims
    xr.testing.assert_allclose(means.trace, expected.drop_attrs(), atol=1e-6)


def held_bytes(thing: object) -> int:
    """Bytes of all tensors that an object holds, at any depth."""
    seen: set[int] = set()
    queue, total = [thing], 0
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type):
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            total += item.untyped_storage().nbytes()
        else:
            queue.extend(gc.get_referents(item))
    return total


def test_memory_does_not_grow_with_steps_unless_they_are_kept(pipe: StableDiffusionPipeline) -> None:
    def held(steps: int, keep_steps: bool) -> int:
        with observe(pipe, keep_steps=keep_steps) as watch:
            draw(pipe, num_inference_steps=steps)
        return held_bytes(watch._tally)

    assert held(2, keep_steps=False) == held(6, keep_steps=False) > 0
    assert held(6, keep_steps=True) == 3 * held(2, keep_steps=True)


def test_a_tally_of_means_keeps_one_record() -> None:
    def record() -> StepRecord:
        return StepRecord(1, 1, 1, {"layer": torch.ones(1, 2, 4, 4)}, {"layer": torch.ones(1, 4)}, x0=torch.ones(9))

    tally = Tally(keep_steps=False)
    for _ in range(5):
        tally.add(record())
    assert held_bytes(tally) == (32 + 4) * 4
    assert float(tally.mean().attention["layer"].mean()) == 1
