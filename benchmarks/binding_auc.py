"""Does the binding score tell rightly bound colours from wrong ones? Two-object prompts, read back by the reader.

python -m benchmarks.binding_auc
python -m benchmarks.binding_auc --maps information
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
import typer
import xarray as xr
from diffusers import StableDiffusionPipeline
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import rankdata

import denoscope
from benchmarks.attention_on_object import draw_captions
from denoscope.data.worlds.shapes import Meaning
from denoscope.data.worlds.shapes.captions import SYNONYMS
from denoscope.data.worlds.shapes.judging import judge
from denoscope.data.worlds.shapes.reader import Reading, read
from denoscope.data.worlds.shapes.scenes import BOX, PICTURE_SIZE
from denoscope.information.guidance_information import word_information
from denoscope.observer import bindings, pointing, word_maps
from denoscope.observer.binding import WARNS_BELOW

Floats = NDArray[np.float64]
Maps = Literal["attention", "information"]
ENOUGH = 5
"""Fewer pictures of a kind than this say nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One picture. ``right`` is whether both objects have the colour named for them, ``None`` if that can't be read.

    ``own`` and ``swapped`` are the binding scores of its two colour words with the nouns as in the caption, and
    exchanged: with two nouns, the same with the other sign. ``placeless`` is as ``own``, each colour word's map being
    replaced by the words' mean map scaled to its total: a control, which knows no place. ``on_own`` and ``on_other``
    are the mass of words' maps on their own and on the other object, over the region's share of the picture, by kind
    of word; empty where the objects can't be told.
    """

    right: bool | None
    own: tuple[float, ...]
    swapped: tuple[float, ...]
    placeless: tuple[float, ...]
    on_own: dict[str, tuple[float, ...]]
    on_other: dict[str, tuple[float, ...]]


def auc(high: Floats, low: Floats) -> float:
    """The chance that a value of ``high`` is above one of ``low``, ties counting half (Mann and Whitney 1947).

    >>> auc(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
    0.625
    """
    ranks = rankdata(np.concatenate([high, low]))
    return float((ranks[: len(high)].sum() - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))


def interval(
    statistic: Callable[[NDArray[np.int64]], float], groups: Sequence[NDArray[np.int64]], repeats: int = 2000
) -> tuple[float, float]:
    """95 % bootstrap interval: pictures are drawn again, within each of ``groups`` of indices.

    >>> values = np.arange(100.0)
    >>> low, high = interval(lambda chosen: float(values[chosen].mean()), [np.arange(100)])
    >>> abs(low - 43.8) < 0.8, abs(high - 55.2) < 0.8  # the normal interval of the mean: 49.5 ± 1.96 · 2.89
    (True, True)
    """
    rng = np.random.default_rng(0)
    drawn = [statistic(np.concatenate([rng.choice(group, len(group)) for group in groups])) for _ in range(repeats)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def colours_right(reading: Reading, meaning: Meaning) -> bool | None:
    """Whether the objects have the colours named for them; ``None`` if not two objects with a colour were read."""
    if reading.problem is not None or len(reading.things) != 2:
        return None
    if any(thing.colour is None for thing in reading.things):
        return None
    return bool(judge(reading, meaning).colour)


def region(x: float, y: float, grid: int) -> NDArray[np.bool_]:
    """Places of a ``grid`` × ``grid`` map whose middle lies in the box of an object at ``x, y`` (pixels)."""
    middles = (np.arange(grid) + 0.5) * PICTURE_SIZE / grid
    inside: NDArray[np.bool_] = (abs(middles - y) <= BOX / 2)[:, None] & (abs(middles - x) <= BOX / 2)
    return inside


def look(trace: xr.Dataset, meaning: Meaning, reading: Reading) -> Row:
    """Score one picture."""
    named = {SYNONYMS.get(label, label): label for label in trace["word"].values.tolist()}
    pairs = [(named[str(mention.colour)], named[str(mention.shape)]) for mention in meaning.mentions]
    nouns = [noun for _, noun in pairs]
    exchanged = [(colour, nouns[1 - index]) for index, (colour, _) in enumerate(pairs)]
    own, swapped = (tuple(found.score for found in bindings(trace, each, nouns)) for each in (pairs, exchanged))
    placeless = tuple(
        found.score for pair in pairs for found in bindings(_without_place(trace, pairs, pair), [pair], nouns)
    )
    on_own: dict[str, tuple[float, ...]] = {}
    on_other: dict[str, tuple[float, ...]] = {}
    right = colours_right(reading, meaning)
    if reading.problem is None and len(reading.things) == 2:
        axis = "y" if meaning.layout == "vertical" else "x"
        things = sorted(reading.things, key=lambda thing: getattr(thing, axis))
        maps = word_maps(trace).mean("step")
        masks = [region(thing.x, thing.y, maps.sizes["x"]) for thing in things]
        for place, kind in enumerate(("colour", "shape")):
            # Over the region's share of the picture, as the two regions may have more or fewer places.
            found = [[pointing(maps.sel(word=pair[place]), mask) for mask in masks] for pair in pairs]
            shares = [[float(each.mass / each.area) for each in row] for row in found]
            on_own[kind] = tuple(shares[slot][slot] for slot in (0, 1))
            on_other[kind] = tuple(shares[slot][1 - slot] for slot in (0, 1))
    return Row(right, own, swapped, placeless, on_own, on_other)


def _without_place(trace: xr.Dataset, pairs: Sequence[tuple[str, str]], pair: tuple[str, str]) -> xr.Dataset:
    maps = word_maps(trace).mean("step").sel(word=[word for each in pairs for word in each])
    mean = maps.mean("word")
    flat = mean * (maps.sel(word=pair[0], drop=True).sum() / mean.sum())
    return xr.Dataset({"attention": maps.where(maps["word"] != pair[0], flat)})


def attended(
    pipe: StableDiffusionPipeline, text: str, steps: int, guidance: float, seed: int
) -> tuple[xr.Dataset, Floats]:
    """Maps of every word by attention, and the picture in [0, 1]."""
    with denoscope.observe(pipe, guidance=False, x0=False) as watch:
        picture = pipe(
            text,
            num_inference_steps=steps,
            guidance_scale=guidance,
            generator=torch.Generator().manual_seed(seed),
            output_type="np",
        ).images[0]
    return watch.trace, picture


def informed(
    pipe: StableDiffusionPipeline, text: str, meaning: Meaning, steps: int, guidance: float, seed: int
) -> tuple[xr.Dataset, Floats]:
    """The same of what colour and shape words add to the prediction: colours left out, shapes said as "shape"."""
    named = {SYNONYMS.get(word, word): word for word in text.split()}
    colours = [named[str(mention.colour)] for mention in meaning.mentions]
    shapes = dict.fromkeys((named[str(mention.shape)] for mention in meaning.mentions), "shape")
    told = partial(word_information, pipe, text, guidance_scale=guidance, seed=seed, num_inference_steps=steps)
    found = told(colours, how="omit"), told(list(shapes), how="neutral", neutral=shapes)
    maps = xr.concat([each["injected"] for each in found], "word")
    return xr.Dataset({"attention": maps}), found[0]["picture"].values / 255


def measure(n: int, steps: int, guidance: float, seed: int, maps: Maps) -> list[Row]:
    pipe: StableDiffusionPipeline = denoscope.load("shapes", "cpu")
    pipe.set_progress_bar_config(disable=True)
    captions = draw_captions(np.random.default_rng(seed), n)
    rows = []
    for i, (text, meaning) in enumerate(track(captions, "drawing", console=Console(stderr=True), transient=True)):
        if maps == "attention":
            trace, picture = attended(pipe, text, steps, guidance, seed + i)
        else:
            trace, picture = informed(pipe, text, meaning, steps, guidance, seed + i)
        rows.append(look(trace, meaning, read(np.rint(picture * 255).astype(np.uint8))))
    return rows


def told_of(rows: Sequence[Row]) -> dict[str, dict[str, float | int | None]]:
    """For each question its AUC with interval and the numbers of values on either side; no AUC where too few."""
    told: dict[str, dict[str, float | int | None]] = {}
    mean = np.array([np.mean(row.own) if row.own else np.nan for row in rows])
    right, wrong = (
        np.array([i for i, row in enumerate(rows) if row.right is kind], np.int64) for kind in (True, False)
    )
    told["rightly against wrongly drawn colours"] = _told(
        len(right), len(wrong), lambda chosen: _split_auc(chosen, mean, len(right)), [right, wrong]
    )
    every = np.arange(len(rows))
    sides: dict[str, tuple[list[tuple[float, ...]], list[tuple[float, ...]]]] = {
        "right against swapped nouns": ([row.own for row in rows], [row.swapped for row in rows]),
        "the same of maps without place": (
            [row.placeless for row in rows],
            [tuple(-score for score in row.placeless) for row in rows],
        ),
    }
    for kind in ("colour", "shape"):
        sides[f"{kind} words: own against other object"] = (
            [row.on_own.get(kind, ()) for row in rows],
            [row.on_other.get(kind, ()) for row in rows],
        )
    for name, (high, low) in sides.items():
        seen = np.array([i for i in every if high[i]], np.int64)

        def statistic(
            chosen: NDArray[np.int64], high: list[tuple[float, ...]] = high, low: list[tuple[float, ...]] = low
        ) -> float:
            return auc(np.concatenate([high[i] for i in chosen]), np.concatenate([low[i] for i in chosen]))

        told[name] = _told(2 * len(seen), 2 * len(seen), statistic, [seen])
    return told


def _split_auc(chosen: NDArray[np.int64], values: Floats, count: int) -> float:
    return auc(values[chosen[:count]], values[chosen[count:]])


def _told(
    high: int, low: int, statistic: Callable[[NDArray[np.int64]], float], groups: Sequence[NDArray[np.int64]]
) -> dict[str, float | int | None]:
    counts: dict[str, float | int | None] = {"n_high": high, "n_low": low}
    if min(high, low) < ENOUGH:
        return {"auc": None, "low": None, "high": None} | counts
    ends = interval(statistic, groups)
    return {"auc": statistic(np.concatenate(groups)), "low": ends[0], "high": ends[1]} | counts


def main(
    n: Annotated[int, typer.Option("-n", min=1, help="Prompts.")] = 500,
    steps: Annotated[int, typer.Option(help="Scheduler steps: few, so that some pictures come out wrong.")] = 2,
    guidance: Annotated[float, typer.Option(help="Guidance scale; 1, none, leaves more of them wrong.")] = 1.0,
    seed: int = 60_000,
    maps: Annotated[Maps, typer.Option(help="Where words look, or what they add to the prediction.")] = "attention",
    threads: int = 2,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """AUC of the binding score of colour words, with bootstrap intervals over pictures."""
    torch.set_num_threads(threads)
    rows = measure(n, steps, guidance, seed, maps)
    told = told_of(rows)
    counts = {name: sum(row.right is kind for row in rows) for name, kind in (("right", True), ("wrong", False))}
    counts["unread"] = len(rows) - sum(counts.values())
    scores = np.array([score for row in rows if row.right for score in row.own if np.isfinite(score)])
    usual = {
        "n": len(scores),
        "below_0": float((scores < 0).mean()) if len(scores) else None,
        "warned": float((scores < WARNS_BELOW).mean()) if len(scores) else None,
    }
    if as_json:
        whole: dict[str, object] = {
            "prompts": n,
            "maps": maps,
            "steps": steps,
            "guidance": guidance,
            "pictures": counts,
            "auc": told,
        }
        print(json.dumps(whole | {"rightly_drawn": usual}))
        return
    table = Table("question", "AUC", "95 % interval", "values")
    for name, found in told.items():
        few = found["auc"] is None
        shown = ("too few", "") if few else (f"{found['auc']:.3f}", f"{found['low']:.3f}…{found['high']:.3f}")
        table.add_row(name, *shown, f"{found['n_high']} / {found['n_low']}")
    Console().print(table)
    print(
        f"{n} prompts at {steps} steps: {counts['right']} with the colours as named, {counts['wrong']} with others, "
        f"{counts['unread']} not read as two coloured objects"
    )
    if usual["warned"] is not None:
        print(
            f"of {usual['n']} scores of rightly drawn pictures {usual['below_0']:.3f} are below 0, "
            f"{usual['warned']:.3f} below {WARNS_BELOW} and so warned of"
        )


if __name__ == "__main__":
    typer.run(main)
