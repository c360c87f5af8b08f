"""What layers give out and how long they take, told as it happens."""

import gc
import time

import pytest
import torch
from diffusers import StableDiffusionPipeline
from family_calls import PROMPT
from torch import Tensor, nn

from denoscope import ObserveError, observe
from denoscope.observer import LayerReport, features


def draw(pipe: StableDiffusionPipeline) -> Tensor:
    latents: Tensor = pipe(
        PROMPT, num_inference_steps=2, output_type="latent", generator=torch.Generator().manual_seed(5)
    ).images
    return latents


def test_each_run_of_a_watched_layer_is_told(pipe: StableDiffusionPipeline) -> None:
    told: list[LayerReport] = []
    plain = draw(pipe)
    with observe(pipe, layers="mid_block*", features=["mid_block", "up_blocks.*"], debug=told.append) as watch:
        assert torch.equal(draw(pipe), plain)
    attention = "mid_block.attentions.0.transformer_blocks.0.attn2"
    order = [attention, "mid_block", "up_blocks.0", "up_blocks.1", "up_blocks.2"]
    assert [(each.step, each.layer) for each in told] == [(step, name) for step in range(2) for name in order]
    assert told[0].reads == ("attention",)
    assert told[1].reads == ("features",)
    assert (told[1].shape, told[1].dtype, told[1].bytes) == ((2, 32, 2, 2), "float32", 2 * 32 * 4 * 4)
    assert all(each.milliseconds > 0 for each in told)
    assert watch.trace.sizes["step"] == 2


def test_lines_are_printed(pipe: StableDiffusionPipeline, capfd: pytest.CaptureFixture[str]) -> None:
    with observe(pipe, attention=None, features=["mid_block"], debug=True):
        draw(pipe)
    out, err = capfd.readouterr()
    assert out == ""
    assert [line.split("  ")[:3] for line in err.splitlines()] == [
        ["step 0", "mid_block", "features"],
        ["step 1", "mid_block", "features"],
    ]
    assert "(2, 32, 2, 2) float32  1024 bytes" in err


def test_the_observers_own_time_is_not_the_layers(
    pipe: StableDiffusionPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that goes on only when something sleeps, so that nothing here depends on the machine."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def sleeps(seconds: float) -> None:
        now[0] += seconds

    class Slow(nn.Module):
        def forward(self, hidden: Tensor, *args: object, **kwargs: object) -> Tensor:
            sleeps(0.5)
            return hidden

    pipe.unet.mid_block.resnets[0].nonlinearity = Slow()
    told: list[LayerReport] = []

    def tell(report: LayerReport) -> None:
        sleeps(3)
        told.append(report)

    plain = features.pool

    def slow_pool(*args: object) -> object:
        sleeps(7)
        return plain(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("denoscope.observer.feature_reading.pool", slow_pool)
    names = ["mid_block", "mid_block.resnets.0"]
    with observe(pipe, attention=None, features=names, debug=tell):
        draw(pipe)
    # The activation is called three times in a block; the inner layer's 7 and 3 seconds are not the outer one's.
    assert [round(each.milliseconds) for each in told] == [1500] * 4


def test_no_tensor_is_kept_and_without_debug_there_is_no_hook(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe, features=["mid_block"], debug=lambda _: None) as watch:
        hooks = len(pipe.unet.mid_block._forward_hooks), len(pipe.unet.mid_block._forward_pre_hooks)
        draw(pipe)
    assert hooks == (2, 1)
    assert not any(isinstance(held, Tensor) for held in gc.get_referents(watch._timer))
    assert watch._timer is not None
    assert watch._timer._started == {}
    with observe(pipe, features=["mid_block"]) as watch:
        assert (len(pipe.unet.mid_block._forward_hooks), len(pipe.unet.mid_block._forward_pre_hooks)) == (1, 0)
    assert watch._timer is None


def test_what_the_users_function_raises_is_told_later(pipe: StableDiffusionPipeline) -> None:
    def broken(_: LayerReport) -> None:
        raise ValueError("my own mistake")

    plain = draw(pipe)
    with observe(pipe, debug=broken) as watch:
        assert torch.equal(draw(pipe), plain)
    with pytest.raises(ObserveError, match="my own mistake"):
        _ = watch.trace
