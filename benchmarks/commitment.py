"""Do decision times tell when a picture is committed to a word? The shapes model, or the exact one.

For each cell (attribute × context): t50 of the path posterior, and t_c by switching to the prompt without the word.

python -m benchmarks.commitment [--model shapes] [--seeds 16] [--points 8] [--cells 20] [--json]
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from diffusers import DDPMScheduler, StableDiffusionPipeline
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import denoscope
from benchmarks.exact_dynamics import half_time
from benchmarks.slot_worlds import prompts
from denoscope.data.worlds.shapes.reader import read
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, VALUES, Attribute
from denoscope.information.agreement import agreement
from denoscope.information.commitment import Judge, commitment, commitment_time
from denoscope.information.guidance_information import word_information
from denoscope.information.levels import uniform_timesteps
from denoscope.information.path_posterior import path_posterior

SCENES = (
    {"colour": "red", "shape": "circle"},
    {"colour": "blue", "shape": "square", "texture": "striped"},
    {"colour": "green", "shape": "triangle", "size": "large"},
    {"colour": "yellow", "shape": "cross", "size": "small", "texture": "plain"},
    {"colour": "purple", "shape": "circle", "size": "large", "texture": "striped"},
)
"""What the words beside the one in question say; each is one cluster of cells."""

SPAN = (-8.0, 3.0)
"""Levels of logsnr between which paths are drawn and times looked for."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The times of one attribute in one context, in logsnr."""

    attribute: str
    context: str
    t50: float
    t_c: float
    low: float
    high: float
    argmax: float
    mass: float


def caption(name: Attribute, scene: dict[str, str], gap: str) -> str:
    """The scene's caption with ``gap`` in the attribute's place."""
    words = [gap if key == name else scene.get(key, "") for key in ("size", "texture", "colour", "shape")]
    return " ".join(["a", *filter(None, words)])


def judged(name: Attribute) -> Judge:
    """Pictures to the attribute that the reader reads, where it reads one object."""

    def judge(pictures: NDArray[np.uint8]) -> list[str | None]:
        readings = [read(picture) for picture in pictures]
        return [reading.things[0].value(name) if len(reading.things) == 1 else None for reading in readings]

    return judge


def measure(pipe: StableDiffusionPipeline, name: Attribute, scene: dict[str, str], options: argparse.Namespace) -> Cell:
    context = caption(name, scene, "{}")
    opened = caption(name, scene, "shape" if name == "shape" else "")
    values = VALUES[name]
    pair = (0, 1) if len(values) == 2 else (1, 2)
    texts = prompts(context, name)
    fine = uniform_timesteps(pipe.scheduler, options.steps, *SPAN)
    coarse = uniform_timesteps(pipe.scheduler, options.switch_steps, *SPAN)
    seeds = range(options.seeds)
    path = path_posterior(pipe, texts, values=values, drawn=pair, seeds=seeds, timesteps=fine)
    whole = float(np.log(len(values)))
    t50 = half_time(path.logsnr.values, whole - path.entropy.mean("sample").values, whole)
    first, second = (texts[index] for index in pair)
    switched = commitment(
        pipe,
        (first, second),
        (values[pair[0]], values[pair[1]]),
        judged(name),
        seeds=seeds,
        points=options.points,
        span=(-7, 2),
        neutral=opened,
        chance=1 / len(values),
        guidance_scale=1.0,
        timesteps=coarse,
    )
    found = commitment_time(switched)
    neutral = {values[pair[0]]: "shape" if name == "shape" else ""}
    rates = [
        word_information(pipe, first, [values[pair[0]]], how="neutral", neutral=neutral, seed=seed, timesteps=coarse)
        for seed in range(4)
    ]
    rate = np.mean([told.rate.sum(("y", "x")).values[0] for told in rates], axis=0)
    peak = float(rates[0].logsnr.values[int(rate.argmax())])
    mass = most_attended(pipe, first, values[pair[0]])
    return Cell(name, opened, t50, found.time, found.low, found.high, peak, mass)


def most_attended(pipe: StableDiffusionPipeline, prompt: str, word: str) -> float:
    """The logsnr at which the picture looks most at a word, in the mean over 4 pictures, layers and places."""
    generators = [torch.Generator().manual_seed(seed) for seed in range(4)]
    with denoscope.observe(pipe, words=[word], x0=False) as watch:
        pipe(
            [prompt] * len(generators),
            num_inference_steps=100,
            guidance_scale=1.0,
            generator=generators,
            output_type="latent",
        )
    mass = watch.trace.attention.mean([axis for axis in watch.trace.attention.dims if axis != "step"])
    inside = mass.where((watch.trace.logsnr > SPAN[0]) & (watch.trace.logsnr < SPAN[1]))
    return float(watch.trace.logsnr[int(inside.argmax("step"))])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.commitment", description=__doc__)
    parser.add_argument("--model", choices=("shapes", "exact-shapes"), default="shapes")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--points", type=int, default=8, help="steps to switch at")
    parser.add_argument("--steps", type=int, default=100, help="steps of the path posterior")
    parser.add_argument("--switch-steps", type=int, default=25, help="steps of the switched generations")
    parser.add_argument("--cells", type=int, default=len(SCENES) * len(ATTRIBUTES))
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start = time.perf_counter()
    pipe: StableDiffusionPipeline = denoscope.load(options.model, "cpu", torch.float32)
    pipe.scheduler = DDPMScheduler.from_config(pipe.scheduler.config, variance_type="fixed_small")
    pipe.set_progress_bar_config(disable=True)
    asked = [(name, index) for index in range(len(SCENES)) for name in ATTRIBUTES][: options.cells]
    cells = []
    for done, (name, index) in enumerate(asked, 1):
        cells.append(measure(pipe, name, SCENES[index], options))
        print(f"{done}/{len(asked)} {cells[-1]} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    committed = [cell.t_c for cell in cells]
    times = {
        "t50": [cell.t50 for cell in cells],
        "argmax of the difference": [cell.argmax for cell in cells],
        "most attention mass": [cell.mass for cell in cells],
        "constant": [float(np.nanmean(committed))] * len(cells),
    }
    found = agreement(times, committed, [str(index) for _, index in asked])
    seconds = round(time.perf_counter() - start)
    if options.json:
        told = {"cells": [asdict(cell) for cell in cells], "agreement": found.to_dict(), "seconds": seconds}
        print(json.dumps({"settings": vars(options), **told}, indent=2))
        return
    table = Table(
        "attribute", "without the word", "t50", "t_c", "90 %", "argmax", "mass", title=f"{options.model}, {seconds} s"
    )
    for cell in cells:
        interval = f"{cell.low:.2f} … {cell.high:.2f}"
        numbers = f"{cell.t50:.2f}", f"{cell.t_c:.2f}", interval, f"{cell.argmax:.2f}", f"{cell.mass:.2f}"
        table.add_row(cell.attribute, cell.context, *numbers)
    Console().print(table)
    table = Table("predictor", "Spearman", "Kendall", "mean |Δlogsnr|")
    for predictor in times:
        one = found.sel(predictor=predictor)
        parts = [
            f"{float(one[key]):.2f} ({float(one[key + '_low']):.2f} … {float(one[key + '_high']):.2f})"
            for key in ("spearman", "kendall", "distance")
        ]
        table.add_row(predictor, *parts)
    Console().print(table)


if __name__ == "__main__":
    main()
