"""Does a word's attention map lie on its own object? Two-object captions, judged where the reader finds both objects.

python -m benchmarks.attention_on_object
"""

import json
from typing import Annotated

import numpy as np
import torch
import typer
import xarray as xr
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

import denoscope
from denoscope.data.worlds.shapes import Meaning, Mention, word
from denoscope.data.worlds.shapes.judging import wilson
from denoscope.data.worlds.shapes.reader import ReadThing, read
from denoscope.data.worlds.shapes.scenes import COLOURS, SHAPES
from denoscope.pipelines import sampling_defaults


def draw_captions(rng: np.random.Generator, n: int) -> list[tuple[str, Meaning]]:
    """Captions of two objects with different colours and shapes, so that each of the four words names one object."""
    drawn = []
    for _ in range(n):
        colours = rng.choice(list(COLOURS), 2, replace=False)
        shapes = rng.choice(SHAPES, 2, replace=False)
        mentions = tuple(Mention(str(c), str(s)) for c, s in zip(colours, shapes, strict=True))
        meaning = Meaning("vertical" if rng.random() < 0.5 else "horizontal", mentions)
        drawn.append((word(meaning, rng), meaning))
    return drawn


def mass_on(weights: NDArray[np.float32], thing: ReadThing, pixels: int = 64, box: int = 24) -> float:
    """Share of a map's mass that lies in the object's box; ``weights`` is ``(h, w)``."""
    fine = np.kron(weights, np.ones((pixels // weights.shape[0], pixels // weights.shape[1])))
    rows = slice(max(0, round(thing.y) - box // 2), round(thing.y) + box // 2)
    columns = slice(max(0, round(thing.x) - box // 2), round(thing.x) + box // 2)
    return float(fine[rows, columns].sum() / fine.sum())


def measure(model: str, n: int, seed: int) -> tuple[list[dict[str, float | str]], int]:
    """For each word of each picture the mass on its own object and on the other one; and how many were unreadable."""
    pipe = denoscope.load(model)
    pipe.set_progress_bar_config(disable=True)
    defaults = sampling_defaults(pipe)
    rows: list[dict[str, float | str]] = []
    unread = 0
    captions = draw_captions(np.random.default_rng(seed), n)
    for i, (text, meaning) in enumerate(track(captions, "drawing", console=Console(stderr=True), transient=True)):
        with denoscope.observe(pipe, guidance=False, x0=False) as watch:
            picture = pipe(
                text,
                num_inference_steps=defaults.num_inference_steps,
                guidance_scale=defaults.guidance_scale,
                generator=torch.Generator().manual_seed(seed + i),
                output_type="np",
            ).images[0]
        reading = read(np.rint(picture * 255).astype(np.uint8))
        if reading.problem is not None or len(reading.things) != 2:
            unread += 1
            continue
        axis = "y" if meaning.layout == "vertical" else "x"
        things = sorted(reading.things, key=lambda thing: getattr(thing, axis))
        rows += _rows(watch.trace, meaning, things, text)
    return rows, unread


def _rows(trace: xr.Dataset, meaning: Meaning, things: list[ReadThing], text: str) -> list[dict[str, float | str]]:
    from denoscope.data.worlds.shapes.captions import SYNONYMS

    named = {SYNONYMS.get(label, label): label for label in trace["word"].values.tolist()}
    rows: list[dict[str, float | str]] = []
    for slot, mention in enumerate(meaning.mentions):
        for kind, value in (("shape", mention.shape), ("colour", mention.colour)):
            maps = trace.attention.sel(word=named[str(value)]).mean(["layer", "step"]).values
            own, other = mass_on(maps, things[slot]), mass_on(maps, things[1 - slot])
            first = text.find(named[str(value)]) < len(text) / 2
            rows.append({"kind": kind, "place": "first" if first else "second", "own": own, "other": other})
    return rows


def main(
    n: Annotated[int, typer.Option(help="Prompts.")] = 200,
    model: str = "shapes",
    seed: int = 40_000,
    threads: int = 2,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Mass of each word's map (mean over layers and steps) on its own object and on the other object."""
    torch.set_num_threads(threads)
    rows, unread = measure(model, n, seed)
    groups = [("shape", "first"), ("shape", "second"), ("colour", "first"), ("colour", "second")]
    told = []
    for kind, place in [("shape", "any"), ("colour", "any"), *groups]:
        chosen = [row for row in rows if row["kind"] == kind and place in ("any", row["place"])]
        own, other = (np.array([float(row[name]) for row in chosen]) for name in ("own", "other"))
        rate = wilson(int((own > other).sum()), len(chosen))
        told.append(
            {"word": kind, "named": place, "own": own.mean(), "other": other.mean()}
            | {"own_more": rate.value, "low": rate.low, "high": rate.high, "n": rate.n}
        )
    if as_json:
        print(json.dumps({"prompts": n, "unread": unread, "groups": told}))
        return
    table = Table("word", "named", "mass on own", "on other", "own > other", "95 % interval", "n")
    for row in told:
        interval = f"{row['low']:.3f}…{row['high']:.3f}"
        numbers = (f"{row['own']:.3f}", f"{row['other']:.3f}", f"{row['own_more']:.3f}", interval, str(row["n"]))
        table.add_row(str(row["word"]), str(row["named"]), *numbers)
    Console().print(table)
    print(f"{n} prompts, {unread} of them without two readable objects")


if __name__ == "__main__":
    typer.run(main)
