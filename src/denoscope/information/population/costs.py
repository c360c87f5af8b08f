"""What an experiment will cost, told before it begins."""

import time
from dataclasses import dataclass

import torch
from diffusers import DiffusionPipeline

from denoscope.information.population.design import Population
from denoscope.information.population.drawing import Settings, draw_prompt

_SHORT, _LONGER = 2, 6
"""Steps of the two calls that are timed; their difference is that of so many steps alone."""


@dataclass(frozen=True, slots=True)
class Cost:
    """``calls`` of the denoiser (a guided one counts once), ``seconds`` of drawing, ``bytes`` on disk."""

    calls: int
    seconds: float
    bytes: int

    def __str__(self) -> str:
        """One line for a reader."""
        minutes = self.seconds / 60
        return f"{self.calls:,} denoiser calls, about {minutes:.1f} minutes, {self.bytes / 2**20:,.0f} MiB on disk"


def estimate_cost(pipe: DiffusionPipeline, population: Population, settings: Settings, processes: int = 1) -> Cost:
    """Time two short calls of the first prompt and stretch them to the whole population.

    The longer call less the shorter one is the time of a step; what is left is the time that a prompt takes whatever
    its steps. A first call, not counted, warms up what is lazy.
    """
    # A batch is what a prompt's time is proportional to, also where the last is smaller than the others.
    seeds = population.seeds[: settings.batch]
    taken: dict[int, float] = {}
    size: dict[int, int] = {}
    steps = min(_SHORT, settings.num_inference_steps), min(_LONGER, settings.num_inference_steps)
    for turn, count in enumerate((steps[0], *steps)):
        short = Settings(
            count, settings.guidance_scale, settings.negative_prompt, settings.layers, settings.grid, settings.batch
        )
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begun = time.perf_counter()
        part = draw_prompt(pipe, population.prompts[0], seeds, short)
        if turn:
            taken[count] = time.perf_counter() - begun
            size[count] = sum(tensor.nbytes for tensor in part.features.values())
            fixed = part.latents.nbytes
    apart = max(steps[1] - steps[0], 1)
    per_step = max(taken[steps[1]] - taken[steps[0]], 0.0) / apart if steps[1] > steps[0] else taken[steps[0]]
    once = max(taken[steps[1]] - per_step * steps[1], 0.0)
    prompts, share = len(population.prompts), len(population.seeds) / len(seeds)
    return Cost(
        calls=prompts * settings.num_inference_steps * -(-len(population.seeds) // settings.batch),
        seconds=prompts * share * (once + per_step * settings.num_inference_steps) / processes,
        bytes=round(prompts * share * (size[steps[1]] / steps[1] * settings.num_inference_steps + fixed)),
    )
