"""How far apart the embedded model's latents put what the world tells apart, and what halves put together change.

python -m benchmarks.latent_geometry
"""

import json
from itertools import combinations
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

import denoscope
from denoscope.data.worlds.shapes import render, sample_scene
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, POSITIONS, VALUES
from denoscope.training.shapes.latents import encode_mean, latent_world


def distances(templates: torch.Tensor) -> list[dict[str, float | str]]:
    """Squared distances between templates ``(K, d)`` of one half that differ in one attribute's value alone."""
    grid = templates.reshape(*(len(VALUES[name]) for name in ATTRIBUTES), len(POSITIONS["top"]), -1)
    rows: list[dict[str, float | str]] = []
    for axis, name in enumerate(ATTRIBUTES):
        for i, j in combinations(range(len(VALUES[name])), 2):
            squared = (grid.select(axis, i) - grid.select(axis, j)).square().sum(-1)
            pair = f"{VALUES[name][i]} / {VALUES[name][j]}"
            rows.append(
                {"attribute": name, "pair": pair, "least": float(squared.min()), "median": float(squared.median())}
            )
    return sorted(rows, key=lambda row: float(row["least"]))


def main(
    model: str = "shapes",
    n: Annotated[
        int, typer.Option(help="Two-object scenes for the comparison of whole and put-together latents.")
    ] = 256,
    seed: int = 70_000,
    cache: Annotated[Path | None, typer.Option(help="Where to keep the encoded world between runs.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Closest pairs by attribute (top half, darker background), and the relative difference of composites."""
    pipe = denoscope.load(model, "cpu")
    world = latent_world(pipe.vae, cache)
    rows = distances(world.templates["top"][0])
    rng = np.random.default_rng(seed)
    scenes = [sample_scene(rng, "vertical" if i % 2 else "horizontal") for i in range(n)]
    whole = encode_mean(pipe.vae, np.stack([render(scene) for scene in scenes]))
    joined = torch.stack([world.scene_map(scene) for scene in scenes])
    relative = float(((whole - joined).square().sum() / joined.square().sum()).sqrt())
    if as_json:
        print(json.dumps({"pairs": rows, "composite_relative_rms": relative, "n": n}))
        return
    table = Table("attribute", "pair", "least squared distance", "median")
    for row in rows:
        table.add_row(str(row["attribute"]), str(row["pair"]), f"{row['least']:.3f}", f"{row['median']:.2f}")
    Console().print(table)
    print(f"{n} two-object scenes: the encoder's own latents differ from put-together ones by {relative:.3f} (RMS)")


if __name__ == "__main__":
    typer.run(main)
