"""``denoscope train shapes``: the embedded model from nothing, in stages that resume.

Autoencoder, text encoder, then the denoiser in the latent space of the first and with the words of the second. The
first two are rounded to float16 before the denoiser sees them, as they are shipped so. The denoiser is trained twice:
the second time a warm restart (Loshchilov & Hutter 2017, "SGDR") from the average of the first.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from torch import nn
from transformers import CLIPTextModel

from denoscope.data.worlds.shapes.tokens import new_tokenizer
from denoscope.networks import UNet2DCondition, UNetConfig, load_unet, save_unet
from denoscope.networks.config import DownBlockType, UpBlockType
from denoscope.pipelines.defaults import SETTINGS_FILE
from denoscope.pipelines.exact import shapes_scheduler
from denoscope.schedules import NoiseSchedule
from denoscope.training.shapes.autoencoder import LATENT_CHANNELS, autoencoder_loss, fix_latents, new_autoencoder
from denoscope.training.shapes.denoiser import DenoiserTask, NoiseLevels, Target
from denoscope.training.shapes.latents import latent_world, unit_scale
from denoscope.training.shapes.text import HIDDEN_SIZE, CaptionQuestions, caption_loss, new_text_encoder
from denoscope.training.trainer import Report, TrainerConfig, TrainingError, train

StageReport = Callable[[str, int, int, float], None]
"""Called after every step with the stage's name, the step, the stage's number of steps, and the loss."""


@dataclass(frozen=True, slots=True)
class ShapesRecipe:
    """How long and how each part is trained; the defaults are those of the embedded model."""

    autoencoder: TrainerConfig = field(
        default_factory=lambda: TrainerConfig(
            steps=2400, learning_rate=3e-3, warmup=100, ema_decay=0.998, checkpoint_every=250
        )
    )
    text: TrainerConfig = field(
        default_factory=lambda: TrainerConfig(
            steps=1500, learning_rate=1e-3, warmup=100, ema_decay=0.99, checkpoint_every=500, seed=1
        )
    )
    denoiser: TrainerConfig = field(
        default_factory=lambda: TrainerConfig(
            steps=7000, learning_rate=1e-3, warmup=200, ema_decay=0.999, checkpoint_every=250, seed=2
        )
    )
    refinement: TrainerConfig = field(
        default_factory=lambda: TrainerConfig(
            steps=4500, learning_rate=6e-4, warmup=100, ema_decay=0.999, checkpoint_every=250, seed=3
        )
    )
    channels: tuple[int, ...] = (96, 128)
    batch_size: int = 64
    target: Target = "posterior"
    guidance_scale: float = 1.5
    num_inference_steps: int = 25


def recipe_with(overrides: Sequence[str]) -> tuple[ShapesRecipe, int]:
    """The recipe with ``steps=…`` and ``refinement_steps=…`` of the denoiser, and the number of ``threads=…``.

    Raises :class:`TrainingError` for another key or a value that is no positive number.

    >>> recipe, threads = recipe_with(["steps=10"])
    >>> recipe.denoiser.steps, threads
    (10, 2)
    """
    recipe, threads = ShapesRecipe(), 2
    for override in overrides:
        key, _, text = override.partition("=")
        least = 0 if key == "refinement_steps" else 1
        if not text.isdecimal() or int(text) < least:
            raise TrainingError(f"{override!r} needs a whole number of at least {least}")
        value = int(text)
        match key:
            case "steps":
                recipe = replace(recipe, denoiser=replace(recipe.denoiser, steps=value))
            case "refinement_steps":
                recipe = replace(recipe, refinement=replace(recipe.refinement, steps=value))
            case "threads":
                threads = value
            case _:
                raise TrainingError(f"the recipe shapes has no key {key!r}; it has steps, refinement_steps, threads")
    return recipe, threads


def new_denoiser(channels: tuple[int, ...]) -> UNet2DCondition:
    """An untrained U-Net with attention at every level, for 8×8×4 latents."""
    down: DownBlockType = "CrossAttnDownBlock2D"
    up: UpBlockType = "CrossAttnUpBlock2D"
    net = UNet2DCondition(
        UNetConfig(
            sample_size=8,
            in_channels=LATENT_CHANNELS,
            out_channels=LATENT_CHANNELS,
            block_out_channels=channels,
            layers_per_block=1,
            down_block_types=(down,) * len(channels),
            up_block_types=(up,) * len(channels),
            cross_attention_dim=HIDDEN_SIZE,
            attention_head_dim=4,
            norm_num_groups=16,
        )
    )
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it for modules
    return net


def train_shapes(out: Path, recipe: ShapesRecipe | None = None, report: StageReport | None = None) -> Path:
    """Train every part and write ``out/model``, a ``StableDiffusionPipeline`` folder in float16; returns its path.

    State is kept in ``out/checkpoints``; a run that finds it there goes on from it. Two CPU cores take about two hours
    and a quarter.

    Raises :class:`TrainingError` when a loss is not finite and :class:`CheckpointError` for a damaged file.
    """
    recipe = recipe or ShapesRecipe()
    checkpoints = out / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)

    def stage(name: str, config: TrainerConfig) -> Report | None:
        return None if report is None else lambda done: report(name, done.step, config.steps, done.loss)

    autoencoder = _train_autoencoder(checkpoints, recipe, stage("autoencoder", recipe.autoencoder))
    text_encoder = _train_text_encoder(checkpoints, recipe, stage("text encoder", recipe.text))
    tokenizer = new_tokenizer()

    world = latent_world(autoencoder, checkpoints / "latents.safetensors")
    levels = NoiseLevels(NoiseSchedule.cosine().logsnr.float())
    task = DenoiserTask(world, tokenizer, text_encoder, levels, recipe.target, recipe.batch_size)
    torch.manual_seed(recipe.denoiser.seed)
    denoiser = new_denoiser(recipe.channels)
    for name, config in (("denoiser", recipe.denoiser), ("refinement", recipe.refinement)):
        ema = train(
            denoiser,
            lambda network, draws: task.loss(network, draws.shared),
            config,
            checkpoints / f"{name}.safetensors",
            stage(name, config),
        )
        denoiser.load_state_dict(ema.average)
    save_unet(denoiser, checkpoints / "unet")
    return save_pipeline(out / "model", autoencoder, text_encoder, checkpoints / "unet", recipe)


def save_pipeline(
    folder: Path, autoencoder: AutoencoderKL, text_encoder: CLIPTextModel, unet: Path, recipe: ShapesRecipe
) -> Path:
    """Put the trained parts together as a ``StableDiffusionPipeline`` folder in float16; returns the folder.

    The folder is written beside its place and renamed, so that an older model is replaced whole or not at all.
    """
    ours = load_unet(unet)
    # from_pretrained would write this folder's path into the model.
    theirs = UNet2DConditionModel.from_config(ours.config.to_diffusers())
    theirs.load_state_dict(ours.state_dict())
    pipe = StableDiffusionPipeline(
        vae=autoencoder,
        text_encoder=text_encoder,
        tokenizer=new_tokenizer(),
        unet=theirs,
        scheduler=ancestral_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    pipe.to(dtype=torch.float16).save_pretrained(part)
    settings = {"num_inference_steps": recipe.num_inference_steps, "guidance_scale": recipe.guidance_scale}
    (part / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    return folder


def ancestral_scheduler() -> DDPMScheduler:
    """The exact model's levels, sampled with fresh noise at every step (Ho et al. 2020, algorithm 2).

    A network is wrong mostly where two scenes are about as likely, and a deterministic path keeps what it did there: an
    object too many or too few. Fresh noise lets later steps put it right.
    """
    settings = {"variance_type": "fixed_small", "clip_sample": False}
    return DDPMScheduler.from_config(shapes_scheduler().config | settings)


def _train_autoencoder(checkpoints: Path, recipe: ShapesRecipe, report: Report | None) -> AutoencoderKL:
    torch.manual_seed(recipe.autoencoder.seed)
    autoencoder = new_autoencoder().to(memory_format=torch.channels_last)
    ema = train(
        autoencoder,
        lambda network, draws: autoencoder_loss(autoencoder, draws.shared),
        recipe.autoencoder,
        checkpoints / "autoencoder.safetensors",
        report,
    )
    autoencoder.load_state_dict(ema.average)
    fix_latents(autoencoder)
    _freeze_as_shipped(autoencoder)
    autoencoder.register_to_config(scaling_factor=unit_scale(autoencoder))
    return autoencoder


def _train_text_encoder(checkpoints: Path, recipe: ShapesRecipe, report: Report | None) -> CLIPTextModel:
    torch.manual_seed(recipe.text.seed)
    tokenizer = new_tokenizer()
    questions = CaptionQuestions(new_text_encoder(tokenizer))
    ema = train(
        questions,
        lambda network, draws: caption_loss(questions, tokenizer, draws.shared)[0],
        recipe.text,
        checkpoints / "text_encoder.safetensors",
        report,
    )
    questions.load_state_dict(ema.average)
    _freeze_as_shipped(questions.encoder)
    return questions.encoder


def _freeze_as_shipped(module: nn.Module) -> None:
    module.half().float().eval().requires_grad_(False)
