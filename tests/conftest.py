"""Tiny real pipelines with random weights, and the command line, shared by the tests of several rooms."""

import copy
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import Denoscope, Ended

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline


def build_tiny_pipeline() -> "StableDiffusionPipeline":
    """Stable Diffusion in small: latents 8 times smaller, a U-Net of three levels, the shapes world's tokenizer."""
    # Imported here: most tests need no torch.
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    from denoscope.data.worlds.shapes.tokens import new_tokenizer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = new_tokenizer()
    unet = UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16, 32, 32),
        down_block_types=("CrossAttnDownBlock2D",) * 3,
        up_block_types=("CrossAttnUpBlock2D",) * 3,
        cross_attention_dim=32,
        attention_head_dim=4,
        norm_num_groups=8,
    )
    with torch.no_grad():
        for name, weight in unet.named_parameters():
            if name.endswith(("attn2.to_q.weight", "attn2.to_k.weight")):
                weight.mul_(4)  # fresh weights look everywhere alike
    text_encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=tokenizer.model_max_length,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 8, 8, 8),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
    )
    scheduler = DDIMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        timestep_spacing="trailing",
        steps_offset=1,
        clip_sample=False,
        set_alpha_to_one=True,
    )
    return StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny pipeline; tests that change files copy it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    build_tiny_pipeline().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def loaded_pipe(tiny_folder: Path) -> "StableDiffusionPipeline":
    """The tiny pipeline, loaded once; tests take copies of it."""
    import denoscope

    loaded = denoscope.load(tiny_folder, "cpu")
    loaded.set_progress_bar_config(disable=True)
    return loaded


@pytest.fixture
def pipe(loaded_pipe: "StableDiffusionPipeline") -> "StableDiffusionPipeline":
    """A tiny pipeline of the test's own."""
    return copy.deepcopy(loaded_pipe)


@pytest.fixture(scope="session")
def exact_pipe() -> "StableDiffusionPipeline":
    """The exact denoiser of the shapes world; it takes 0.6 GB and some seconds, so all tests share it."""
    import torch

    import denoscope

    torch.set_num_threads(1)
    loaded = denoscope.load("exact-shapes", "cpu")
    loaded.set_progress_bar_config(disable=True)
    return loaded


@pytest.fixture
def denoscope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Denoscope]:
    """Runs the command line in this process and in an empty folder."""
    from denoscope.cli.main import main

    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["denoscope", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    yield run
    signal.signal(signal.SIGTERM, before)
