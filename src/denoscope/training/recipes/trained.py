"""A trained model on disk: weights in diffusers' layout, and beside them what it was trained on and for."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from denoscope._version import __version__
from denoscope.networks import UNet2D, load_unet2d, save_unet
from denoscope.pipelines.ddpm_folder import save_ddpm
from denoscope.sampling import SOLVERS, Denoise, Grid, sample
from denoscope.training.draws import step_seed
from denoscope.training.recipes.build import build_denoiser, build_grid, build_schedule
from denoscope.training.recipes.config import Recipe, RecipeError, parse
from denoscope.training.recipes.modality import Conditions, Modality
from denoscope.training.recipes.open import modality_of

RECIPE_FILE: Final = "denoscope.json"
NETWORK_FOLDER: Final = "unet"


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A network ready to be sampled."""

    recipe: Recipe
    network: nn.Module
    modality: Modality

    def denoiser(self, conditions: Conditions) -> Denoise:
        """The network as x0 at any level, told ``conditions`` ``(n, …)``."""
        return build_denoiser(self.recipe, self.network, self.modality, conditions)

    def grid(self, steps: int, spacing: str | None = None) -> Grid:
        """The noise levels of a number of steps."""
        return build_grid(self.recipe, steps, spacing)

    def sample(
        self,
        seeds: Sequence[int],
        labels: Tensor | None = None,
        *,
        solver: str = "ddim",
        steps: int = 50,
        spacing: str | None = None,
        batch_size: int = 64,
        guidance_scale: float = 1.0,
    ) -> tuple[Tensor, Conditions]:
        """One sample a seed, ``(n, …)``, and what the network was told; the same whatever ``batch_size`` is.

        With classes, ``guidance_scale`` other than 1 also asks the network for samples of no class.

        Raises :class:`RecipeError` for an unknown solver or spacing and guidance without classes, and
        :class:`SamplingError` when the network's output is not finite.
        """
        from denoscope.sampling.guidance import guided

        if solver not in SOLVERS:
            raise RecipeError(f"there is no solver {solver!r}; there are {', '.join(SOLVERS)}")
        if guidance_scale != 1 and not self.modality.classes:
            raise RecipeError("guidance needs a model with classes; this one has none")
        device = next(self.network.parameters()).device
        grid = self.grid(steps, spacing)
        conditions = self.modality.conditions(seeds, labels)
        drawn: list[Tensor] = []
        for start in range(0, len(seeds), batch_size):
            part = list(seeds[start : start + batch_size])
            told = {name: values[start : start + batch_size].to(device) for name, values in conditions.items()}
            denoise = self.denoiser(told)
            if guidance_scale != 1:
                untold = self.modality.conditions(part, None)
                denoise = guided(denoise, self.denoiser({k: v.to(device) for k, v in untold.items()}), guidance_scale)
            z = starting_noise(part, self.modality.shape, grid).to(device)
            if self.modality.noise is not None:
                z = self.modality.noise(z, told)
            drawn.append(sample(denoise, z, grid, SOLVERS[solver](), seeds=[_stream(seed) for seed in part]).cpu())
        return torch.cat(drawn), conditions


def starting_noise(seeds: Sequence[int], shape: tuple[int, ...], grid: Grid) -> Tensor:
    """Noise at the grid's first level, each sample's by its own seed: ``(n, *shape)``."""
    noise = torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
    return noise * grid[0].sigma


def _stream(seed: int) -> int:
    """Another seed than that of the starting noise, or the first fresh noise would repeat it."""
    return step_seed(seed, 1)


def save_trained(trained: Trained, folder: Path, card: str) -> Path:
    """Write the model's folder, whole or not at all; returns it.

    A U-Net of a discrete schedule becomes a ``DDPMPipeline`` that diffusers loads; any other network is saved as a
    folder of its own under ``unet/``. ``denoscope.json`` holds the recipe.

    Raises :class:`OSError` when the disk refuses.
    """
    recipe, network = trained.recipe, trained.network
    part = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        if isinstance(network, UNet2D) and recipe.objective.name == "ddpm":
            clip = trained.modality.value_range == 1.0
            schedule = build_schedule(recipe.schedule)
            save_ddpm(network, schedule, part, recipe.objective.prediction_type, clip_sample=clip)
        elif isinstance(network, UNet2D):
            save_unet(network, part / NETWORK_FOLDER)
        else:
            raise RecipeError(f"{type(network).__name__} can't be saved")
        told = {
            "denoscope_version": __version__,
            "recipe": recipe.model_dump(mode="json"),
            "shape": list(trained.modality.shape),
            "classes": list(trained.modality.classes),
        }
        (part / RECIPE_FILE).write_text(json.dumps(told, indent=2) + "\n", "utf-8")
        (part / "README.md").write_text(card, "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def load_trained(folder: Path) -> Trained:
    """Read what :func:`save_trained` wrote, or the run folder around it.

    Raises :class:`RecipeError` in one sentence when the folder is no such model or is damaged.
    """
    folder = folder / "model" if (folder / "model" / RECIPE_FILE).is_file() else folder
    path = folder / RECIPE_FILE
    if not path.is_file():
        raise RecipeError(f"{folder} is no model trained here: it lacks {RECIPE_FILE}")
    try:
        told = json.loads(path.read_text("utf-8"))
        shape, classes = tuple(int(size) for size in told["shape"]), tuple(str(name) for name in told["classes"])
        recipe = parse(told["recipe"])
    except (ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{path} can't be read ({error})") from error
    try:
        network = load_unet2d(folder / NETWORK_FOLDER)
    except (ValueError, FileNotFoundError) as error:
        raise RecipeError(str(error)) from error
    return Trained(recipe, network, modality_of(recipe, shape, classes))
