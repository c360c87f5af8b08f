"""Pipelines that share a family's network and call it with further channels, pictures or steps."""

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import (
    ControlNetModel,
    DiffusionPipeline,
    FluxFillPipeline,
    FluxImg2ImgPipeline,
    FluxKontextPipeline,
    LatentConsistencyModelPipeline,
    LCMScheduler,
    StableDiffusion3Img2ImgPipeline,
    StableDiffusionControlNetPipeline,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionInpaintPipeline,
    StableDiffusionPipeline,
    StableDiffusionXLInpaintPipeline,
    UNet2DConditionModel,
)
from family_calls import PROMPT, TEXT, recorded
from numpy.typing import NDArray
from PIL import Image
from tiny_families import loaded, saved
from tiny_parts import sharpened, unet

from denoscope import observe
from denoscope.pipelines import adapter_for


def picture(size: int = 64) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (size, size, 3), dtype=np.uint8))


def hole(size: int = 64) -> Image.Image:
    return Image.fromarray(np.pad(np.full((size // 2, size // 2), 255, np.uint8), size // 4))


def draw(pipe: DiffusionPipeline, **kwargs: object) -> NDArray[np.float32]:
    settings: dict[str, object] = {"num_inference_steps": 2, "output_type": "np"} | kwargs
    made = pipe(prompt=PROMPT, generator=torch.Generator().manual_seed(5), **settings).images
    return np.asarray(made)


def check(pipe: DiffusionPipeline, word: list[int], row: int, text_first: bool | None = None, **kwargs: object) -> None:
    """The same picture, and the word's mass in every layer at the first step is that of float64."""
    pipe.set_progress_bar_config(disable=True)
    plain = draw(pipe, **kwargs)
    layers = dict(adapter_for(pipe).layers(pipe, "cross"))
    with recorded(layers) as reference, observe(pipe, words=["circle"]) as watch:
        seen = draw(pipe, **kwargs)
    assert seen.tobytes() == plain.tobytes()
    trace = watch.trace
    for layer in layers:
        whole = reference.probabilities(layer, 0, bool(text_first))[row].numpy()
        places = trace.sizes["y"] * trace.sizes["x"] // 4
        if text_first is None:
            expected = whole[:, word].sum(-1)
        elif text_first:  # [text, picture, pictures to go by]
            text = 512
            expected = whole[text : text + places][:, word].sum(-1)
        else:
            expected = whole[:places][:, [places + position for position in word]].sum(-1)
        found = trace.attention.sel(word="circle", layer=layer).isel(step=0).values
        assert float(found.mean()) == pytest.approx(float(expected.mean()), abs=1e-5)
        assert float(found.max()) == pytest.approx(float(expected.max()), abs=1e-5)
    assert trace.x0.sizes["channel"] == 4 or "SD3" in type(pipe).__name__ or "Diffusion3" in type(pipe).__name__
    assert bool(np.isfinite(trace.x0).all())


def test_img2img(pipe: StableDiffusionPipeline) -> None:
    check(StableDiffusionImg2ImgPipeline.from_pipe(pipe), [3], 1, image=picture(), strength=1.0)


@pytest.mark.parametrize("channels", [4, 9])
def test_inpainting(pipe: StableDiffusionPipeline, channels: int) -> None:
    other = StableDiffusionInpaintPipeline.from_pipe(pipe)
    if channels == 9:
        torch.manual_seed(0)
        other.unet = sharpened(unet(9))
    check(other, [3], 1, image=picture(), mask_image=hole(), height=64, width=64)


def test_controlnet(pipe: StableDiffusionPipeline) -> None:
    torch.manual_seed(0)
    control = ControlNetModel.from_unet(pipe.unet, conditioning_embedding_out_channels=(8, 8, 8, 8))
    check(StableDiffusionControlNetPipeline.from_pipe(pipe, controlnet=control), [3], 1, image=picture())


def test_latent_consistency(pipe: StableDiffusionPipeline) -> None:
    torch.manual_seed(0)
    network: UNet2DConditionModel = sharpened(unet(time_cond_proj_dim=8))
    other = LatentConsistencyModelPipeline.from_pipe(pipe, unet=network)
    other.scheduler = LCMScheduler.from_config(other.scheduler.config)
    check(other, [3], 0, height=64, width=64)


def test_sdxl_inpainting(tmp_path: Path) -> None:
    pipe = StableDiffusionXLInpaintPipeline.from_pipe(loaded("sdxl", saved("sdxl", tmp_path)))
    check(pipe, [3], 1, image=picture(16), mask_image=hole(16), height=16, width=16, strength=1.0)


def test_sd3_img2img(tmp_path: Path) -> None:
    pipe = StableDiffusion3Img2ImgPipeline.from_pipe(loaded("sd3", saved("sd3", tmp_path)))
    check(pipe, TEXT["sd3"]["circle"], 1, False, image=picture(16), height=16, width=16, strength=1.0)


def test_flux_img2img(tmp_path: Path) -> None:
    pipe = FluxImg2ImgPipeline.from_pipe(loaded("flux", saved("flux", tmp_path)))
    check(pipe, [2], 0, True, image=picture(16), height=16, width=16, strength=1.0)


def test_flux_fill(tmp_path: Path) -> None:
    pipe = loaded("flux", saved("flux", tmp_path))
    torch.manual_seed(0)
    config = dict(pipe.transformer.config) | {"in_channels": 16 + 16 + 4, "out_channels": 16}
    filling = FluxFillPipeline.from_pipe(pipe, transformer=sharpened(type(pipe.transformer).from_config(config)))
    check(filling, [2], 0, True, image=picture(16), mask_image=hole(16), height=16, width=16)


def test_flux_kontext(tmp_path: Path) -> None:
    pipe = FluxKontextPipeline.from_pipe(loaded("flux", saved("flux", tmp_path)))
    check(pipe, [2], 0, True, image=picture(16), height=16, width=16, _auto_resize=False, max_area=256)
