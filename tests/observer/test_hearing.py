"""Hearing the attention kernel, and reading what was heard later, many steps at once."""

import threading
from collections.abc import Callable

import pytest
import torch
import xarray as xr
from diffusers import StableDiffusionPipeline
from family_calls import PROMPT
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from denoscope import observe
from denoscope.observer import reading
from denoscope.observer.hearing import hear, stop_hearing

PLAIN = functional.scaled_dot_product_attention


def draw(pipe: StableDiffusionPipeline, **kwargs: object) -> Tensor:
    settings = {"num_inference_steps": 4, "output_type": "latent"} | kwargs
    latents: Tensor = pipe(PROMPT, generator=torch.Generator().manual_seed(5), **settings).images
    return latents


@pytest.mark.parametrize("settings", [{}, {"keep_steps": False}, {"heads": True}, {"attention": "self"}])
@pytest.mark.parametrize("kept", [0, 1, 1 << 22])
def test_it_does_not_matter_when_it_is_read(
    pipe: StableDiffusionPipeline, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], kept: int
) -> None:
    monkeypatch.setattr(reading, "_SMALL", 0)
    with observe(pipe, **settings) as at_once:  # type: ignore[arg-type]
        draw(pipe)
    monkeypatch.setattr(reading, "_SMALL", 1 << 30)
    monkeypatch.setattr(reading, "_KEPT", kept)
    with observe(pipe, **settings) as later:  # type: ignore[arg-type]
        draw(pipe)
    xr.testing.assert_allclose(at_once.trace, later.trace, rtol=0, atol=1e-6)


def test_what_is_kept_is_bounded(pipe: StableDiffusionPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_KEPT", 200_000)
    held: list[int] = []

    def after_step(_pipe: object, _step: int, _timestep: object, kwargs: dict[str, object]) -> dict[str, object]:
        tensors = [each for kept in watch._attention._kept.values() for each in (*kept.queries, *kept.keys)]
        held.append(sum(each.untyped_storage().nbytes() for each in tensors))
        return kwargs

    with observe(pipe, keep_steps=False) as watch:
        draw(pipe, num_inference_steps=10, callback_on_step_end=after_step)
    assert 0 in held
    assert max(held) > 0
    assert max(held) <= 200_000
    assert not watch._attention._kept


def test_what_a_step_that_was_not_finished_showed_does_not_count(pipe: StableDiffusionPipeline) -> None:
    calls: list[None] = []

    def stop(*_: object) -> None:
        calls.append(None)
        if len(calls) == 3:
            raise RuntimeError("stopped here")

    pipe.unet.conv_out.register_forward_pre_hook(stop)
    with pytest.raises(RuntimeError, match="stopped here"), observe(pipe, keep_steps=False) as watch:
        draw(pipe)
    with observe(pipe) as whole:
        draw(pipe)
    expected = whole.trace[["attention", "token_mass"]].isel(step=slice(0, 2)).mean("step")
    xr.testing.assert_allclose(watch.trace[["attention", "token_mass"]], expected.drop_attrs(), atol=1e-6)


def test_a_trace_inside_of_the_block_leaves_the_rest_to_come(pipe: StableDiffusionPipeline) -> None:
    def look(*_: object) -> None:
        if watch._tally.levels:
            seen.append(watch.trace.sizes["step"])

    seen: list[int] = []
    handle = pipe.unet.mid_block.register_forward_hook(look)
    with observe(pipe) as watch:
        draw(pipe)
    handle.remove()
    assert seen == [1, 2, 3]
    with observe(pipe) as other:
        draw(pipe)
    xr.testing.assert_allclose(watch.trace, other.trace, atol=1e-6)


def attend() -> Tensor:
    ones = torch.ones(1, 1, 2, 4)
    return functional.scaled_dot_product_attention(ones, ones, ones)


def test_one_thread_hears_itself_alone_and_the_kernel_is_put_back() -> None:
    heard: list[tuple[str, Tensor | None]] = []

    def listener(name: str) -> Callable[[Tensor, Tensor, Tensor | None, float | None], None]:
        def told(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> None:
            assert functional.scaled_dot_product_attention is PLAIN or name == "other"
            attend()  # not heard
            heard.append((name, mask))

        return told

    def elsewhere() -> None:
        attend()
        hear(listener("other"))
        attend()
        stop_hearing()
        attend()

    hear(listener("here"))
    attend()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    ones = torch.ones(1, 1, 2, 4)
    functional.scaled_dot_product_attention(ones, ones, value=ones, is_causal=True)
    stop_hearing()
    stop_hearing()
    attend()
    assert [name for name, _ in heard] == ["here", "other", "here"]
    causal = heard[-1][1]
    assert causal is not None
    assert causal.tolist() == [[True, False], [True, True]]
    assert functional.scaled_dot_product_attention is PLAIN


def test_what_others_put_in_the_kernels_place_stays() -> None:
    hear(lambda *_: None)
    inner: Callable[..., Tensor] = functional.scaled_dot_product_attention

    def theirs(*args: Tensor) -> Tensor:
        return inner(*args)

    vars(functional)["scaled_dot_product_attention"] = theirs
    stop_hearing()
    try:
        assert functional.scaled_dot_product_attention is theirs
        assert attend().shape == (1, 1, 2, 4)
    finally:
        functional.scaled_dot_product_attention = PLAIN


def test_a_users_own_function_mode_sees_the_kernel_as_ever(pipe: StableDiffusionPipeline) -> None:
    class Counting(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.count += func is functional.scaled_dot_product_attention
            return func(*args, **(kwargs or {}))

    with Counting() as plain:
        draw(pipe, num_inference_steps=1)
    with observe(pipe), Counting() as seen:
        draw(pipe, num_inference_steps=1)
    assert plain.count == seen.count > 0
    assert functional.scaled_dot_product_attention is PLAIN
