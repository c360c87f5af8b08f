"""How well the embedded model draws what it is told, on captions that its denoiser never saw.

python -m benchmarks.shapes_quality                       # 1,000 pictures, 25 steps, default guidance
python -m benchmarks.shapes_quality --n 200 --guidance 1  # fewer, without guidance
python -m benchmarks.shapes_quality --json
"""

import json
import time
from dataclasses import asdict
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import denoscope
from denoscope.data.worlds.shapes.judging import Judgement, Rate, judge, rates
from denoscope.pipelines import sampling_defaults
from denoscope.training.shapes.denoiser import sample_captioned

# What the model has to reach: (kind of caption, judgement) to rate.
WANTED = {
    ("one", "colour"): 0.99,
    ("one", "shape"): 0.97,
    ("two", "colour"): 0.95,
    ("two", "shape"): 0.90,
    ("two", "relation"): 0.95,
    ("two", "whole"): 0.80,
}


def measure(
    model: str, n: int, steps: int | None, guidance: float | None, seed: int, batch: int = 50
) -> tuple[dict[str, dict[str, Rate]], dict[str, float]]:
    """Rates by kind of caption and judgement, and the settings used. Picture i has caption i and seed ``seed + i``."""
    pipe = denoscope.load(model)
    pipe.set_progress_bar_config(disable=True)
    defaults = sampling_defaults(pipe)
    steps = steps or defaults.num_inference_steps
    guidance = defaults.guidance_scale if guidance is None else guidance
    rng = np.random.default_rng(seed)
    drawn = [sample_captioned(rng, unseen=True) for _ in range(n)]
    judged: dict[str, list[Judgement]] = {"one": [], "two": []}
    started = time.perf_counter()
    for start in track(range(0, n, batch), "drawing", console=Console(stderr=True), transient=True):
        part = drawn[start : start + batch]
        pictures = pipe(
            [text for _, text, _ in part],
            num_inference_steps=steps,
            guidance_scale=guidance,
            generator=[torch.Generator().manual_seed(seed + start + i) for i in range(len(part))],
            output_type="np",
        ).images
        for picture, (_, _, meaning) in zip(np.rint(pictures * 255).astype(np.uint8), part, strict=True):
            judged["one" if meaning.layout == "one" else "two"].append(judge(picture, meaning))
    settings = {"n": n, "steps": steps, "guidance": guidance, "seed": seed, "seconds": time.perf_counter() - started}
    return {kind: rates(judgements) for kind, judgements in judged.items()}, settings


def main(
    n: Annotated[int, typer.Option(help="Pictures.")] = 1000,
    model: str = "shapes",
    steps: int | None = None,
    guidance: float | None = None,
    seed: int = 20_000,
    threads: int = 2,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Judge pictures of unseen captions by the reader; rates with Wilson 95 % intervals."""
    torch.set_num_threads(threads)
    found, settings = measure(model, n, steps, guidance, seed)
    if as_json:
        told = {kind: {name: asdict(rate) for name, rate in by.items() if rate.n} for kind, by in found.items()}
        print(json.dumps({"settings": settings, "rates": told}))
        return
    table = Table("objects", "right", "rate", "95 % interval", "n", "wanted", title=f"{model}: {settings}")
    for kind, by_name in found.items():
        for name, rate in by_name.items():
            if rate.n:
                wanted = WANTED.get((kind, name))
                mark = "" if wanted is None else f"{wanted} {'reached' if rate.value >= wanted else 'MISSED'}"
                table.add_row(kind, name, f"{rate.value:.3f}", f"{rate.low:.3f}…{rate.high:.3f}", str(rate.n), mark)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
