"""The observer reads: same picture, same random numbers, and nothing left behind, however the block ends."""

import threading
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, EulerAncestralDiscreteScheduler, StableDiffusionPipeline
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import denoscope
from denoscope import ObserveError, observe
from denoscope.observer import levels as levels_module
from denoscope.observer import observer as observer_module

PROMPT = "a red circle above a blue square"


def draw(pipe: StableDiffusionPipeline, prompt: str | list[str] = PROMPT, **kwargs: object) -> torch.Tensor:
    settings = {"num_inference_steps": 2, "output_type": "pt", "guidance_scale": 5} | kwargs
    pictures: torch.Tensor = pipe(prompt, **settings).images
    return pictures


def belongings(pipe: StableDiffusionPipeline) -> dict[str, object]:
    """All that an observer could leave on a pipeline: attributes, hooks, processors, wrappers, modes."""
    found: dict[str, object] = {"pipe": dict.fromkeys(vars(pipe)), "scheduler": dict.fromkeys(vars(pipe.scheduler))}
    for part in ("unet", "text_encoder", "vae"):
        for name, module in getattr(pipe, part).named_modules():
            kept = {key: dict(value) if isinstance(value, dict) else value for key, value in vars(module).items()}
            found[f"{part}.{name}"] = kept
    found["modes"] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    found["watched"] = set(observer_module._watched)
    return found


def weights(pipe: StableDiffusionPipeline) -> dict[str, torch.Tensor]:
    return {
        f"{part}.{name}": value.clone()
        for part in ("unet", "text_encoder", "vae")
        for name, value in getattr(pipe, part).state_dict().items()
    }


def test_the_documented_spelling_works_however_the_library_was_imported() -> None:
    assert denoscope.observe is observe
    assert callable(denoscope.observe)


@pytest.mark.parametrize("sampler", ["ddim", "ddim with noise", "euler ancestral"])
def test_picture_and_random_numbers_are_the_same(pipe: StableDiffusionPipeline, sampler: str) -> None:
    if sampler == "euler ancestral":
        pipe.scheduler = EulerAncestralDiscreteScheduler.from_config(pipe.scheduler.config)
    eta = 1.0 if sampler == "ddim with noise" else 0.0

    def numbers(watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(5)
        if watched:
            with observe(pipe) as watch:
                picture = draw(pipe, generator=generator, eta=eta, num_inference_steps=3)
            assert watch.trace.sizes["step"] == 3
        else:
            picture = draw(pipe, generator=generator, eta=eta, num_inference_steps=3)
        return [picture, generator.get_state(), torch.get_rng_state()]

    plain, seen = numbers(watched=False), numbers(watched=True)
    assert all(torch.equal(one, other) for one, other in zip(plain, seen, strict=True))
    assert plain[0].std() > 0


def stop(error: type[BaseException]) -> Callable[..., NoReturn]:
    def stopped(*_: object) -> NoReturn:
        raise error("stopped here")

    return stopped


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["between steps", "inside a layer"])
def test_nothing_is_left_however_the_block_ends(
    pipe: StableDiffusionPipeline, where: str, error: type[BaseException] | None
) -> None:
    layer = pipe.unet.mid_block.attentions[0].transformer_blocks[0].attn2.to_q
    after_step = stop(error) if error is not None and where == "between steps" else None
    draw(pipe)  # the first call leaves attributes of its own
    hook = layer.register_forward_pre_hook(stop(error)) if error is not None and where == "inside a layer" else None
    before, values = belongings(pipe), weights(pipe)
    if error is None:
        with observe(pipe):
            draw(pipe)
    else:
        with pytest.raises(error, match="stopped here"), observe(pipe):  # noqa: PT012
            assert belongings(pipe) != before
            draw(pipe, callback_on_step_end=after_step)
    assert belongings(pipe) == before
    after = weights(pipe)
    assert all(torch.equal(values[name], after[name]) for name in values | after)
    if hook is not None:
        hook.remove()
    with observe(pipe) as watch:
        draw(pipe)
    assert watch.trace.sizes["step"] == 2


def test_what_the_user_hung_on_the_pipeline_stays(pipe: StableDiffusionPipeline) -> None:
    draw(pipe)  # the first call leaves attributes of its own
    heard: list[str] = []
    layer: nn.Module = pipe.unet.mid_block.attentions[0].transformer_blocks[0].attn2
    layer.register_forward_hook(lambda *_: heard.append("hook"))
    plain = pipe.scheduler.step

    def step(*args: object, **kwargs: object) -> object:
        heard.append("step")
        return plain(*args, **kwargs)

    pipe.scheduler.step = step
    before = belongings(pipe)
    with observe(pipe) as watch:
        draw(pipe)
    assert heard == ["hook", "step"] * 2
    assert pipe.scheduler.step is step
    assert belongings(pipe) == before
    assert watch.trace.sizes["step"] == 2


def test_pipelines_that_share_a_scheduler_are_watched_at_once(
    pipe: StableDiffusionPipeline, tiny_folder: object
) -> None:
    other = denoscope.load(str(tiny_folder), "cpu")
    other.set_progress_bar_config(disable=True)
    other.scheduler = pipe.scheduler
    with observe(pipe) as outer:
        with observe(other) as inner:
            draw(other)
        draw(pipe)
    assert inner.trace.sizes["step"] == 2
    assert outer.trace.sizes["step"] == 2
    assert "step" not in vars(pipe.scheduler)


def test_a_second_observer_is_refused_and_leaves_the_first_alone(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as outer:
        before = belongings(pipe)
        with pytest.raises(ObserveError, match="being observed already"), observe(pipe):
            pass
        assert belongings(pipe) == before
        draw(pipe)
    assert outer.trace.sizes["step"] == 2


def test_an_error_of_the_observer_is_told_and_the_picture_drawn(
    pipe: StableDiffusionPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = draw(pipe, generator=torch.Generator().manual_seed(5))

    def unknown(*_: object) -> NoReturn:
        raise ValueError("this scheduler has neither alphas_cumprod nor sigmas")

    monkeypatch.setattr(levels_module, "logsnr_of", unknown)
    with observe(pipe) as watch:
        assert torch.equal(draw(pipe, generator=torch.Generator().manual_seed(5)), plain)
    with pytest.raises(ObserveError, match="can't be observed: this scheduler has neither"):
        _ = watch.trace


def test_no_call_no_trace(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        pass
    with pytest.raises(ObserveError, match="no call of the pipeline was seen"):
        _ = watch.trace


def test_two_calls_in_a_block_are_refused(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        draw(pipe)
        assert watch.trace.sizes["step"] == 2
        draw(pipe, prompt="a green cross")
    with pytest.raises(ObserveError, match="one call of the pipeline; open another observe block"):
        _ = watch.trace


def test_several_prompts_in_a_call_are_refused(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        draw(pipe, prompt=["a red circle", "a blue square"])
    with pytest.raises(ObserveError, match="one prompt per call"):
        _ = watch.trace


def test_a_call_in_another_thread_is_refused(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        thread = threading.Thread(target=draw, args=(pipe,))
        thread.start()
        thread.join()
    with pytest.raises(ObserveError, match="only be seen in the thread of the observe block"):
        _ = watch.trace
    with observe(pipe, attention=None) as watch:
        thread = threading.Thread(target=draw, args=(pipe,))
        thread.start()
        thread.join()
    assert set(watch.trace.data_vars) == {"guidance", "x0"}


@pytest.mark.parametrize("how", ["classic", "sliced", "one classic layer"])
def test_hidden_attention_is_refused_by_name_and_the_advice_works(pipe: StableDiffusionPipeline, how: str) -> None:
    if how == "classic":
        pipe.unet.set_attn_processor(AttnProcessor())
    elif how == "sliced":
        pipe.enable_attention_slicing()
    else:
        pipe.unet.mid_block.attentions[0].transformer_blocks[0].attn2.set_processor(AttnProcessor())
    with observe(pipe) as watch:
        draw(pipe)
    name = "SlicedAttnProcessor" if how == "sliced" else "AttnProcessor"
    with pytest.raises(ObserveError, match=rf"attn2 uses {name}, .*set_attn_processor\(AttnProcessor2_0\(\)\)"):
        _ = watch.trace
    pipe.unet.set_attn_processor(AttnProcessor2_0())
    with observe(pipe) as watch:
        draw(pipe)
    assert np.isfinite(watch.trace.attention).all()


def test_a_model_without_cross_attention_says_so(exact_pipe: StableDiffusionPipeline) -> None:
    with pytest.raises(ObserveError, match="ExactDenoiser has no cross-attention; observe with attention=None"):
        observe(exact_pipe)


def test_the_scheduler_may_be_one_without_room_for_x0(pipe: StableDiffusionPipeline) -> None:
    from diffusers import EDMEulerScheduler

    pipe.scheduler = EDMEulerScheduler()
    with observe(pipe) as watch:
        draw(pipe)
    with pytest.raises(ObserveError, match=r"EDMEulerScheduler rescales .* observe with guidance=False, x0=False"):
        _ = watch.trace
    pipe.scheduler = EDMEulerScheduler()
    with observe(pipe, guidance=False, x0=False) as watch:
        draw(pipe)
    assert "attention" in watch.trace
    assert not isinstance(pipe.scheduler, DDIMScheduler)
