"""A trained network, ready to be sampled."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from denoscope.sampling import SOLVERS, Denoise, Grid, NoiseSource, sample
from denoscope.sampling.guidance import guided
from denoscope.training.draws import step_seed
from denoscope.training.recipes.build import build_denoiser, build_grid
from denoscope.training.recipes.config import Recipe, RecipeError
from denoscope.training.recipes.modality import Conditions, Modality


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A network with all that its samples need: ``denoiser(conditions)`` is x0 at any level, ``grid(steps, spacing)``
    the noise levels of a number of steps (``spacing`` None is what suits the network).
    """

    network: nn.Module
    modality: Modality
    denoiser: Callable[[Conditions], Denoise]
    grid: Callable[[int, str | None], Grid]

    @classmethod
    def by_recipe(cls, recipe: Recipe, network: nn.Module, modality: Modality) -> Self:
        """As the network was trained."""
        return cls(
            network,
            modality,
            lambda conditions: build_denoiser(recipe, network, modality, conditions),
            lambda steps, spacing: build_grid(recipe, steps, spacing),
        )

    def sample(
        self,
        seeds: Sequence[int],
        labels: Tensor | None = None,
        *,
        captions: Sequence[str] | None = None,
        solver: str | None = None,
        steps: int | None = None,
        spacing: str | None = None,
        batch_size: int = 64,
        guidance_scale: float = 1.0,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[Tensor, Conditions]:
        """One sample a seed, ``(n, …)`` on the CPU, and what the network was told; the same for any ``batch_size``.

        ``labels`` ``(n,)`` number classes; ``captions`` are one a sample. ``solver`` and ``steps`` are by default what
        suits the modality. ``guidance_scale`` other than 1 also asks the network for samples of nothing in particular.
        ``progress`` is told how many samples are finished after each batch.

        Raises :class:`RecipeError` for an unknown solver or spacing and for guidance that can't be, and
        :class:`SamplingError` when the network's output is not finite.
        """
        solver, steps = solver or self.modality.solver, steps or self.modality.steps
        if solver not in SOLVERS:
            raise RecipeError(f"there is no solver {solver!r}; there are {', '.join(SOLVERS)}")
        if not math.isfinite(guidance_scale):
            raise RecipeError(f"the guidance scale must be a finite number, not {guidance_scale}")
        if guidance_scale != 1 and self.modality.untold is None:
            raise RecipeError(
                "guidance needs a model trained with classes or captions, some left out; this one isn't known to be"
            )
        if captions is not None and (self.modality.tell is None or len(captions) != len(seeds)):
            raise RecipeError("captions need a model that was trained with some, and one caption a sample")
        try:
            grid = self.grid(steps, spacing)
        except ValueError as error:
            raise RecipeError(str(error)) from error
        tell = self.modality.tell
        conditions = tell(captions) if tell and captions else self.modality.conditions(seeds, labels)
        drawn = []
        for start in range(0, len(seeds), batch_size):
            part = slice(start, start + batch_size)
            told = {name: values[part] for name, values in conditions.items()}
            drawn.append(self._batch(list(seeds[part]), told, grid, solver, guidance_scale))
            if progress is not None:
                progress(min(start + batch_size, len(seeds)))
        return torch.cat(drawn), conditions

    def _batch(
        self, seeds: list[int], conditions: Conditions, grid: Grid, solver: str, guidance_scale: float
    ) -> Tensor:
        device = next(self.network.parameters()).device
        told = {name: values.to(device) for name, values in conditions.items()}
        denoise = self.denoiser(told)
        if guidance_scale != 1 and self.modality.untold is not None:
            denoise = guided(denoise, self.denoiser(self.modality.untold(told)), guidance_scale)
        z = starting_noise(seeds, self.modality.shape, grid).to(device)
        if self.modality.noise is not None:
            z = self.modality.noise(z, told)
        # Fresh noise comes from another stream, or the first of it would repeat the starting noise.
        streams = [step_seed(seed, 1) for seed in seeds]
        return sample(denoise, z, grid, SOLVERS[solver](), seeds=streams).cpu()


def starting_noise(seeds: Sequence[int], shape: tuple[int, ...], grid: Grid) -> Tensor:
    """Noise at the grid's first level, each sample's by its own seed: ``(n, *shape)``."""
    return NoiseSource(seeds).draw(torch.empty(len(seeds), *shape)) * grid[0].sigma
