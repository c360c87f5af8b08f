"""Trained models on disk: weights in diffusers' layout, and beside them what they were trained on and how."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

import diffusers
from torch import nn

from denoscope._version import __version__
from denoscope.networks import (
    DiT,
    MoleculeNet,
    UNet2D,
    UNet2DCondition,
    load_dit,
    load_molecule_net,
    load_unet,
    load_unet2d,
    save_network,
)
from denoscope.networks.folders import CONFIG_FILE
from denoscope.pipelines.ddpm_folder import save_ddpm
from denoscope.sampling import Denoise, denoisers
from denoscope.schedules import NoiseSchedule
from denoscope.training.recipes.build import build_schedule, discrete_grid
from denoscope.training.recipes.config import PictureData, Recipe, RecipeError, parse
from denoscope.training.recipes.modality import Conditions, Modality
from denoscope.training.recipes.open import modality_of
from denoscope.training.recipes.pictures import picture_modality
from denoscope.training.recipes.trained import Trained

RECIPE_FILE: Final = "denoscope.json"
UNET, TRANSFORMER, NETWORK = "unet", "transformer", "network"


def save_trained(recipe: Recipe, network: nn.Module, modality: Modality, folder: Path, card: str) -> Path:
    """Write the model's folder, whole or not at all; returns it.

    A U-Net of pictures trained by the ``ddpm`` objective becomes a ``DDPMPipeline`` that diffusers loads; any other
    network lies in ``unet/``, ``transformer/`` or ``network/``. ``denoscope.json`` holds the recipe, ``README.md`` is
    ``card``.

    Raises :class:`RecipeError` for a network that has no folder format, and :class:`OSError` when the disk refuses.
    """
    part = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        match network:
            case UNet2D() if recipe.objective.name == "ddpm":
                clip = modality.value_range == 1.0
                schedule = build_schedule(recipe.schedule)
                save_ddpm(network, schedule, part, recipe.objective.prediction_type, clip_sample=clip)
            case UNet2D() | UNet2DCondition():
                save_network(network, part / UNET)
            case DiT():
                save_network(network, part / TRANSFORMER)
            case MoleculeNet():
                save_network(network, part / NETWORK)
            case _:
                raise RecipeError(f"{type(network).__name__} has no folder format")
        if modality.save_parts is not None:
            modality.save_parts(part)
        told = {
            "denoscope_version": __version__,
            "recipe": recipe.model_dump(mode="json"),
            "shape": list(modality.shape),
            "classes": list(modality.classes),
            "details": dict(modality.details),
        }
        (part / RECIPE_FILE).write_text(json.dumps(told, indent=2) + "\n", "utf-8")
        (part / "README.md").write_text(card, "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def load_trained(folder: Path) -> Trained:
    """Read a folder of :func:`save_trained`, the run folder around it, or diffusers' folder of a ``DDPMPipeline``.

    Raises :class:`RecipeError` in one sentence when the folder is no such model or is damaged.
    """
    folder = folder / "model" if (folder / "model" / RECIPE_FILE).is_file() else folder
    if not folder.is_dir():
        raise RecipeError(f"there is no folder {str(folder)!r}")
    path = folder / RECIPE_FILE
    if not path.is_file():
        return _load_ddpm(folder)
    try:
        told = json.loads(path.read_text("utf-8"))
        shape, classes = tuple(int(size) for size in told["shape"]), tuple(str(name) for name in told["classes"])
        recipe, details = parse(told["recipe"]), dict(told.get("details", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{path} can't be read ({error})") from error
    return Trained.by_recipe(recipe, _load_network(folder), modality_of(recipe, shape, classes, details, folder))


def _load_network(folder: Path) -> nn.Module:
    try:
        if (folder / TRANSFORMER).is_dir():
            return load_dit(folder / TRANSFORMER)
        if (folder / NETWORK).is_dir():
            return load_molecule_net(folder / NETWORK)
        config = json.loads((folder / UNET / CONFIG_FILE).read_text("utf-8"))
        words = isinstance(config, dict) and config.get("_class_name") == "UNet2DConditionModel"
        return load_unet(folder / UNET) if words else load_unet2d(folder / UNET)
    except (ValueError, FileNotFoundError) as error:
        raise RecipeError(str(error)) from error


def _load_ddpm(folder: Path) -> Trained:
    """A ``DDPMPipeline`` or ``DDIMPipeline`` that diffusers wrote."""
    try:
        index = json.loads((folder / "model_index.json").read_text("utf-8"))
        config = json.loads((folder / "scheduler" / "scheduler_config.json").read_text("utf-8"))
        kind, name = str(index["_class_name"]), str(config["_class_name"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{folder} is no model trained here (no {RECIPE_FILE}) and no folder of diffusers") from error
    scheduler_class = getattr(diffusers, name, None)
    if kind not in ("DDPMPipeline", "DDIMPipeline") or scheduler_class is None:
        raise RecipeError(f"{folder} is a {kind} with {name}; DDPMPipeline and DDIMPipeline can be sampled here")
    network = _load_network(folder)
    assert isinstance(network, UNet2D)
    try:
        schedule = NoiseSchedule.from_diffusers(scheduler_class.from_config(config))
    except ValueError as error:
        raise RecipeError(f"{folder}: {error}") from error
    size = network.config.sample_size
    if size is None:
        raise RecipeError(f"{folder / UNET / 'config.json'} has no sample_size, so the size of pictures isn't known")
    height, width = (size, size) if isinstance(size, int) else size
    classes = tuple(map(str, range(network.config.num_class_embeds or 0)))
    data = PictureData(kind="folder", folder=folder, size=height)
    # Whether one of its classes stands for "not told" is nowhere said, so there is no guidance.
    modality = replace(picture_modality(data, (network.config.in_channels, height, width), classes), untold=None)
    prediction_type = config.get("prediction_type", "epsilon")
    clips = float(config.get("clip_sample_range", 1.0)) if config.get("clip_sample", True) else None

    def denoiser(conditions: Conditions) -> Denoise:
        found = denoisers.discrete(network, schedule, prediction_type, **conditions)
        return found if clips is None else denoisers.clipped(found, clips)

    return Trained(network, modality, denoiser, lambda steps, spacing: discrete_grid(schedule, steps, spacing))
