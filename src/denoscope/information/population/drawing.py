"""Drawing the pictures of a population while their features are pooled."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from torch import Tensor

from denoscope.information.errors import InformationError
from denoscope.information.population.design import Population
from denoscope.information.population.parts import Part, is_written, write_part
from denoscope.observer import observe


@dataclass(frozen=True, slots=True)
class Settings:
    """How every picture is drawn, and what is kept of it.

    ``layers`` are names or globs of the denoiser's parts, empty for the family's usual ones; ``grid`` is how many cells
    a side their maps are reduced to; ``batch`` how many pictures of a prompt are drawn at once.
    """

    num_inference_steps: int
    guidance_scale: float
    negative_prompt: str = ""
    layers: tuple[str, ...] = ()
    grid: int = 2
    batch: int = 16


def draw_population(
    pipe: DiffusionPipeline,
    population: Population,
    settings: Settings,
    folder: Path,
    *,
    rank: int = 0,
    ranks: int = 1,
    on_prompt: Callable[[int], None] | None = None,
) -> int:
    """Draw what is still missing of a population into ``folder``; returns how many prompts were drawn.

    Of several processes each draws every ``ranks``-th prompt. A prompt's seeds are always drawn in the same batches, so
    numbers don't depend on the number of processes, nor on where an earlier run was stopped. ``on_prompt`` is told the
    number of each finished prompt, those found drawn included.
    """
    drawn = 0
    for number, prompt in list(enumerate(population.prompts))[rank::ranks]:
        if not is_written(folder, number, prompt):
            write_part(folder, number, draw_prompt(pipe, prompt, population.seeds, settings))
            drawn += 1
        if on_prompt is not None:
            on_prompt(number)
    return drawn


def draw_prompt(pipe: DiffusionPipeline, prompt: str, seeds: Sequence[int], settings: Settings) -> Part:
    """Draw one prompt with several seeds (CPU generators), and keep its features and final latents.

    Raises :class:`InformationError` when the scheduler's noise levels can't be told; ``ObserveError`` for layers that
    there are none of.
    """
    found = [
        _draw_batch(pipe, prompt, seeds[start : start + settings.batch], settings)
        for start in range(0, len(seeds), settings.batch)
    ]
    first = found[0]
    features = {layer: torch.cat([part.features[layer] for part in found], 2) for layer in first.features}
    latents = torch.cat([part.latents for part in found])
    return Part(prompt, first.branches, features, first.channels, first.levels, latents)


def call_pipeline(pipe: DiffusionPipeline, prompt: str, seeds: Sequence[int], settings: Settings) -> Tensor:
    """The pipeline's own call; returns the final latents.

    At a guidance scale of 1 diffusers leaves out the branch without the prompt, which is where one reads what the
    picture holds; a scale of 1 + 10⁻⁶ has it, and moves predictions by less than float32 rounds.
    """
    accepted = inspect.signature(type(pipe).__call__).parameters
    further: dict[str, object] = {"negative_prompt": settings.negative_prompt} if settings.negative_prompt else {}
    further |= {"use_resolution_binning": False} if "use_resolution_binning" in accepted else {}
    output = pipe(
        prompt=prompt,
        num_images_per_prompt=len(seeds),
        num_inference_steps=settings.num_inference_steps,
        guidance_scale=1 + 1e-6 if settings.guidance_scale == 1 else settings.guidance_scale,
        generator=[torch.Generator("cpu").manual_seed(seed) for seed in seeds],
        output_type="latent",
        **further,
    )
    latents: Tensor = output.images
    return latents


def _draw_batch(pipe: DiffusionPipeline, prompt: str, seeds: Sequence[int], settings: Settings) -> Part:
    watching = observe(
        pipe,
        attention=None,
        guidance=False,
        x0=False,
        features=settings.layers or True,
        feature_grid=settings.grid,
    )
    with watching as watch:
        latents = call_pipeline(pipe, prompt, seeds, settings)
    features: dict[str, Tensor] = {}
    channels: dict[str, int] = {}
    branches: tuple[str, ...] = ()
    for layer, dataset in watch.features.items():
        branches = tuple(str(name) for name in dataset["branch"].values)
        columns = [dataset["mean"].values, dataset["std"].values]
        if "grid" in dataset:
            columns.append(dataset["grid"].values.reshape(*columns[0].shape[:3], -1))
        channels[layer] = columns[0].shape[-1]
        features[layer] = torch.from_numpy(np.concatenate(columns, -1)).permute(1, 2, 0, 3)
        levels: NDArray[np.float64] = np.stack(
            [dataset[name].values for name in ("timestep", "sigma", "logsnr")], 1
        ).astype(np.float64)
    if np.isnan(levels).any():
        raise InformationError("the scheduler's noise levels can't be told: use one of diffusers' usual schedulers")
    return Part(prompt, branches, features, channels, torch.from_numpy(levels), latents.detach().cpu())
