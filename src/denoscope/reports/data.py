"""What the page's script needs to know, as one JSON document with one block of arrays."""

import json
from collections.abc import Sequence

import numpy as np
import xarray as xr

from denoscope.reports import summaries
from denoscope.reports.arrays import ArrayBlock, Floats, pack_maps
from denoscope.reports.facts import Json
from denoscope.reports.figures import step_axis
from denoscope.reports.figures.style import MAP_COLOURS, ON_DARK, word_line
from denoscope.reports.panels import Panel, has_words
from denoscope.reports.pictures import EmbeddedPictures

WORD_BUDGET = 750_000
LAYER_BUDGET = 850_000
GUIDANCE_BUDGET = 200_000
PICTURE_BUDGET = 1_000_000
"""Bytes, compressed: with base64 (a third more) and plotly (2 MB) the page stays below 6 MB."""


def page_data(
    trace: xr.Dataset,
    panels: Sequence[Panel],
    pictures: EmbeddedPictures,
    first_word: int | None,
) -> dict[str, Json]:
    """Everything that the script draws.

    ``arrays`` is the directory of ``block`` (gzip, base64). In it, when present: ``words`` (word, step, h,
    w), ``layers`` (word, layer, step, h, w) and ``guidance`` (step, h, w) as bytes with a ``*_scale`` each;
    ``word_stats`` (word, 1 + layer, step, 3) and ``guidance_stats`` (step, 2) as float32. Statistics are
    mass, peak and spread of a word's map (layer 0: the mean over layers), and sum and peak of the guidance
    map; ``information`` (word, step, h, w) and ``information_stats`` (word, step, 3) likewise, with sums.
    """
    block = ArrayBlock()
    factors: dict[str, Json] = {}
    if has_words(trace):
        _add_maps(block, factors, "words", _floats(summaries.word_maps(trace)), WORD_BUDGET)
        by_layer = trace["attention"].transpose("word", "layer", "step", "y", "x")
        _add_maps(block, factors, "layers", _floats(by_layer), LAYER_BUDGET)
        block.add("word_stats", word_statistics(trace))
    if "guidance" in trace:
        _add_maps(
            block,
            factors,
            "guidance",
            _floats(trace["guidance"].transpose("step", "y", "x")),
            GUIDANCE_BUDGET,
        )
        effort = summaries.guidance_effort(trace)
        peak = trace["guidance"].max(("y", "x"), skipna=False)
        block.add("guidance_stats", np.stack([_floats(effort), _floats(peak)], -1))
    if has_words(trace) and "information_rate" in trace:
        rates = _floats(trace["information_rate"].transpose("word", "step", "y", "x"))
        _add_maps(block, factors, "information", rates, WORD_BUDGET)
        block.add("information_stats", information_statistics(trace))
    words = [str(word) for word in trace["word"].values] if has_words(trace) else []
    layers = [str(layer) for layer in trace["layer"].values] if has_words(trace) else []
    return {
        "steps": {
            "index": [int(step) for step in trace["step"].values],
            "position": step_axis(trace).positions.tolist(),
            **{name: _numbers(trace, name) for name in ("timestep", "sigma", "logsnr") if name in trace},
        },
        "words": [{"label": word, "colour": word_line(index)[0]} for index, word in enumerate(words)],
        "layers": summaries.short_layer_names(layers),
        "first_word": first_word,
        "quantity": str(trace.attrs.get("information_quantity", "")),
        "grid": [int(trace.sizes.get("y", 1)), int(trace.sizes.get("x", 1))],
        "factors": factors,
        "pictures": {"sources": pictures.sources, "steps": pictures.steps},
        "colours": MAP_COLOURS,
        "on_dark": ON_DARK,
        "figures": {p.name: json.loads(p.figure.to_json()) for p in panels if p.figure is not None},
        "arrays": block.directory,
        "block": block.encode(),
    }


def word_statistics(trace: xr.Dataset) -> Floats:
    """Mass, peak and spread of each word's maps: (word, 1 + layer, step, 3); layer 0 is the layers' mean."""
    mean = summaries.word_maps(trace).expand_dims(layer=1, axis=1)
    by_layer = trace["attention"].transpose("word", "layer", "step", "y", "x")
    parts = [
        np.stack(
            [
                _floats(maps.mean(("y", "x"), skipna=False)),
                _floats(maps.max(("y", "x"), skipna=False)),
                _floats(summaries.spread(maps)),
            ],
            -1,
        )
        for maps in (mean, by_layer)
    ]
    return np.concatenate(parts, 1)


def information_statistics(trace: xr.Dataset) -> Floats:
    """Sum, peak and spread of what each word adds by place: (word, step, 3)."""
    rates = trace["information_rate"].transpose("word", "step", "y", "x")
    parts = (summaries.information_rates(trace), rates.max(("y", "x"), skipna=False), summaries.spread(rates))
    return np.stack([_floats(part) for part in parts], -1)


def first_choice(trace: xr.Dataset) -> int | None:
    """The word to show first: the one whose map is most gathered, so that there is something to see.

    Words of one or two letters stand back: articles often gather attention, but nobody asks about them first.
    """
    if not has_words(trace):
        return None
    gathered = summaries.spread(summaries.word_maps(trace)).mean("step").fillna(1.0).values
    short = np.array([len(str(word).split("#")[0]) < 3 for word in trace["word"].values])
    return int(np.lexsort((gathered, short))[0])


def safe_json(document: Json) -> str:
    """JSON that can stand inside ``<script>``: no character in it can end the element or a line of script.

    >>> safe_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _add_maps(block: ArrayBlock, factors: dict[str, Json], name: str, maps: Floats, budget: int) -> None:
    packed = pack_maps(maps, budget)
    block.add(name, packed.levels)
    block.add(f"{name}_scale", packed.scale)
    factors[name] = packed.factor


def _floats(array: xr.DataArray) -> Floats:
    return np.asarray(array.values, np.float32)


def _numbers(trace: xr.Dataset, name: str) -> list[Json]:
    """Numbers as JSON has them: an infinite one as "inf" or "-inf", a missing one as null."""
    values = [float(value) for value in trace[name].values]
    return [v if np.isfinite(v) else None if np.isnan(v) else "inf" if v > 0 else "-inf" for v in values]
