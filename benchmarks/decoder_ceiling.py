"""What the reader makes of the decoder's pictures of the world's exact latents: no denoiser can be judged better.

python -m benchmarks.decoder_ceiling
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

import denoscope
from denoscope.data.worlds.shapes import CaptionStyle, describe, sample_scene
from denoscope.data.worlds.shapes.judging import Rate, judge, rates
from denoscope.data.worlds.shapes.scenes import Layout
from denoscope.pipelines import decode_latents
from denoscope.training.shapes.latents import latent_world

EVERYTHING = CaptionStyle(colour=1.0, shape=1.0, size=1.0, texture=1.0)


def measure(model: str, n: int, seed: int, cache: Path | None) -> dict[str, dict[str, Rate]]:
    """Rates for one- and two-object scenes, all four attributes of every object named."""
    pipe = denoscope.load(model, "cpu")
    world = latent_world(pipe.vae, cache)
    rng = np.random.default_rng(seed)
    found = {}
    for kind in ("one", "two"):
        layouts: tuple[Layout, Layout] = ("one", "one") if kind == "one" else ("vertical", "horizontal")
        scenes = [sample_scene(rng, layouts[i % 2]) for i in range(n)]
        pictures = decode_latents(pipe, torch.stack([world.scene_map(scene) for scene in scenes]))
        meanings = [describe(scene, rng, EVERYTHING)[1] for scene in scenes]
        found[kind] = rates([judge(picture, meaning) for picture, meaning in zip(pictures, meanings, strict=True)])
    return found


def main(
    n: Annotated[int, typer.Option(help="Scenes of each kind.")] = 500,
    model: str = "shapes",
    seed: int = 60_000,
    cache: Annotated[Path | None, typer.Option(help="Where to keep the encoded world between runs.")] = None,
    threads: int = 2,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Judge decoded exact latents by the reader; rates with Wilson 95 % intervals."""
    torch.set_num_threads(threads)
    found = measure(model, n, seed, cache)
    if as_json:
        told = {kind: {name: asdict(rate) for name, rate in by.items() if rate.n} for kind, by in found.items()}
        print(json.dumps(told))
        return
    table = Table("objects", "read right", "rate", "95 % interval", "n")
    for kind, by_name in found.items():
        for name, rate in by_name.items():
            if rate.n:
                table.add_row(kind, name, f"{rate.value:.3f}", f"{rate.low:.3f}…{rate.high:.3f}", str(rate.n))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
