"""The denoiser's error against the Bayes floor of the exact world, at ten noise levels.

The floor is the mean squared error of the exact denoiser E[x₀ | z, caption]; no network can be below it.

    python -m benchmarks.bayes_floor
    python -m benchmarks.bayes_floor --n 256 --json
"""

import json
import math
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

import denoscope
from denoscope.data.worlds.shapes.exact import conditions
from denoscope.data.worlds.shapes.tokens import tokenize
from denoscope.schedules import convert_prediction, logsnr_of
from denoscope.training.shapes.denoiser import sample_captioned
from denoscope.training.shapes.latents import latent_world

LEVELS = (-12.0, -9.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0)
"""Where something is undecided. Above, the exact denoiser knows the scene and its floor is zero to all digits."""


@torch.no_grad()
def measure(model: str, n: int, seed: int, cache: Path | None, batch: int = 64) -> list[dict[str, float]]:
    """Per level: mean squared error per latent element of the network and of the exact denoiser, and of their gap."""
    pipe = denoscope.load(model, "cpu")
    world = latent_world(pipe.vae, cache)
    every = torch.arange(int(pipe.scheduler.config.num_train_timesteps))
    table = logsnr_of(pipe.scheduler, every).logsnr
    rng = np.random.default_rng(seed)
    drawn = [sample_captioned(rng, unseen=True) for _ in range(n)]
    states = pipe.text_encoder(tokenize(pipe.tokenizer, [text for _, text, _ in drawn]))[0]
    clean = torch.stack([world.scene_map(scene) for scene, _, _ in drawn])
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed))
    rows = []
    for wanted in LEVELS:
        timestep = int((table - wanted).abs().argmin())
        logsnr = table[timestep].float()
        alpha, sigma = float(logsnr.sigmoid().sqrt()), float((-logsnr).sigmoid().sqrt())
        sums = torch.zeros(3, dtype=torch.float64)
        for start in range(0, n, batch):
            part = slice(start, start + batch)
            z = alpha * clean[part] + sigma * noise[part]
            best = world.denoise(z, logsnr, conditions([meaning for _, _, meaning in drawn[part]]))
            output = pipe.unet(z, timestep, states[part]).sample
            x0 = convert_prediction(output, "v_prediction", "sample", z, alpha, sigma)
            errors = (x0 - clean[part], best - clean[part], x0 - best)
            sums += torch.stack([error.double().square().sum() for error in errors])
        network, floor, gap = (sums / clean.numel()).tolist()
        ratio = network / floor if floor > 0 else math.inf
        row = {"logsnr": float(logsnr), "network": network, "floor": floor, "ratio": ratio, "gap": gap}
        # In units of the v-prediction that the network makes: an x₀ error is σ times a v error.
        rows.append(row | {"gap_v": gap / sigma**2})
    return rows


def main(
    n: Annotated[int, typer.Option(help="Noisy latents per level.")] = 512,
    model: str = "shapes",
    seed: int = 30_000,
    cache: Annotated[Path | None, typer.Option(help="Where to keep the encoded world between runs.")] = None,
    threads: int = 2,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compare the network's squared error on x₀ with the exact denoiser's."""
    torch.set_num_threads(threads)
    rows = measure(model, n, seed, cache)
    if as_json:
        print(json.dumps({"n": n, "seed": seed, "levels": rows}))
        return
    table = Table("logsnr", "network", "Bayes floor", "ratio", "gap on v", title=f"{model}, n = {n} per level")
    for row in rows:
        numbers = (row["network"], row["floor"], row["ratio"], row["gap_v"])
        table.add_row(f"{row['logsnr']:.2f}", *(f"{number:.5f}" for number in numbers))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
