"""Path posterior and guidance information against the truth, with the exact denoiser in the network's place.

python -m benchmarks.exact_dynamics [--space pooled] [--steps 512] [--seeds 32] [--json]
"""

import argparse
import json
import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import isotonic_regression

from benchmarks.slot_worlds import SlotShapes, prompts, slot_pipeline
from denoscope.data.worlds.shapes.scenes import VALUES, Attribute
from denoscope.information.guidance_information import word_information
from denoscope.information.levels import uniform_timesteps
from denoscope.information.path_posterior import path_posterior, renoised_posterior

CONTEXTS: dict[Attribute, tuple[str, str]] = {
    "colour": ("a {} circle", "a circle"),
    "shape": ("a red {}", "a red shape"),
    "size": ("a {} red circle", "a red circle"),
    "texture": ("a {} red circle", "a red circle"),
}
"""A caption with a gap, and the same caption with the attribute left open."""


def half_time(logsnr: NDArray[np.float64], information: NDArray[np.float64], whole: float) -> float:
    """Where information, made rising, passes half of the whole."""
    rising = isotonic_regression(information).x
    above = int(np.searchsorted(rising, whole / 2))
    if not 0 < above < len(rising):
        return math.nan
    share = (whole / 2 - rising[above - 1]) / (rising[above] - rising[above - 1])
    return float(logsnr[above - 1] + share * (logsnr[above] - logsnr[above - 1]))


def beliefs(
    name: Attribute,
    space: str,
    steps: int,
    seeds: int,
    span: tuple[float, float],
    guidance_scale: float,
    batch: int,
    renoised: bool,
) -> dict[str, float]:
    """Path posterior against the exact one of the same latents."""
    pipe, world = _pipeline(space)
    context, opened = CONTEXTS[name]
    timesteps = uniform_timesteps(pipe.scheduler, steps, *span)
    found, right = [], []
    for start in range(0, seeds, batch):
        for index in range(len(VALUES[name])):
            now = range(start, min(start + batch, seeds))
            texts, values = prompts(context, name), VALUES[name]
            if renoised:
                clean = world.draw(texts[index], len(now), seed=start)
                levels = np.linspace(*span, steps)
                path = renoised_posterior(
                    pipe, clean, texts, levels, values=values, intended=index, seed=start, keep_latents=True
                )
            else:
                path = path_posterior(
                    pipe,
                    texts,
                    values=values,
                    drawn=[index],
                    seeds=now,
                    guidance_scale=guidance_scale,
                    timesteps=timesteps,
                    keep_latents=True,
                )
            levels = path.logsnr.values
            z = torch.from_numpy(path.latents.values)
            exact = [world.belief(z[:, i], float(level), name, opened) for i, level in enumerate(levels)]
            found.append(path.posterior.values)
            right.append(torch.stack(exact, 1).double().numpy())
    mine, truth = np.concatenate(found), np.concatenate(right)
    whole = math.log(len(VALUES[name]))
    curves = [whole + np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0).sum(-1).mean(0) for p in (mine, truth)]
    times = [half_time(levels, curve, whole) for curve in curves]
    wrong = np.abs(mine - truth)
    return {
        "paths": len(mine),
        "steps": len(levels),
        "mean |dp|": float(wrong.mean()),
        "worst step's": float(wrong.mean((0, 2)).max()),
        "largest |dI|": float(np.abs(curves[0] - curves[1]).max()),
        "t50": times[0],
        "exact t50": times[1],
    }


def sums(name: Attribute, space: str, steps: int, runs: int, span: tuple[float, float]) -> dict[str, float]:
    """The word's information summed over single generations at w = 1, against all of its entropy."""
    pipe, _ = _pipeline(space)
    context, _ = CONTEXTS[name]
    timesteps = uniform_timesteps(pipe.scheduler, steps, *span)
    totals = []
    for run in range(runs):
        value = VALUES[name][run % len(VALUES[name])]
        neutral = {value: "shape" if name == "shape" else "the"}
        told = word_information(
            pipe, context.format(value), [value], how="neutral", neutral=neutral, seed=run, timesteps=timesteps
        )
        totals.append(float(told.total[0]))
    return {
        "runs": runs,
        "mean sum": float(np.mean(totals)),
        "standard error": float(np.std(totals, ddof=1) / runs**0.5),
        "entropy": math.log(len(VALUES[name])),
    }


_loaded: dict[str, tuple[StableDiffusionPipeline, SlotShapes]] = {}


def _pipeline(space: str) -> tuple[StableDiffusionPipeline, SlotShapes]:
    if space not in _loaded:
        _loaded[space] = slot_pipeline(space)
    return _loaded[space]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.exact_dynamics", description=__doc__)
    parser.add_argument("--space", choices=("pixels", "pooled"), default="pooled")
    parser.add_argument("--attributes", nargs="+", choices=sorted(CONTEXTS), default=list(CONTEXTS))
    parser.add_argument("--steps", type=int, default=512, help="steps over the span")
    parser.add_argument("--seeds", type=int, default=32, help="paths drawn with each value")
    parser.add_argument("--runs", type=int, default=0, help="single generations for the sum of a word's information")
    parser.add_argument("--low", type=float, default=-8.0, help="least logsnr")
    parser.add_argument("--high", type=float, default=2.0, help="greatest logsnr")
    parser.add_argument("--guidance", type=float, default=1.0, help="guidance scale of the paths")
    parser.add_argument("--batch", type=int, default=16, help="paths at a time; bounds the memory")
    parser.add_argument("--renoised", action="store_true", help="noise the world's pictures instead of drawing")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start, span = time.perf_counter(), (options.low, options.high)
    rows = {
        name: beliefs(
            name, options.space, options.steps, options.seeds, span, options.guidance, options.batch, options.renoised
        )
        for name in options.attributes
        if options.seeds
    }
    summed = {
        name: sums(name, options.space, min(options.steps, 64), options.runs, span)
        for name in options.attributes
        if options.runs
    }
    seconds = round(time.perf_counter() - start)
    if options.json:
        print(json.dumps({"settings": vars(options), "seconds": seconds, "beliefs": rows, "sums": summed}, indent=2))
        return
    for title, found in (("Path posterior", rows), ("Guidance information, nat", summed)):
        if not found:
            continue
        table = Table("attribute", *next(iter(found.values())), title=f"{title}, {options.space} space, {seconds} s")
        for name, told in found.items():
            table.add_row(
                name, *(f"{value:.4f}" if isinstance(value, float) else str(value) for value in told.values())
            )
        Console().print(table)


if __name__ == "__main__":
    main()
