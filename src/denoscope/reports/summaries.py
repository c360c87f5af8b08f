"""The numbers that figures and the report show, taken from a trace.

Every function leaves NaN where a step was not observed, and never averages over it.
"""

import re
from typing import NamedTuple

import numpy as np
import xarray as xr


class WordEffort(NamedTuple):
    """What a word tells of one generation: ``total`` in nats, log-SNR by which half of it is told, and of most."""

    word: str
    total: float
    half: float | None
    peak: float | None


def word_mass(trace: xr.Dataset) -> xr.DataArray:
    """Attention mass of each word, ``(word, layer, step)``: the mean over the picture, in [0, 1].

    >>> maps = xr.DataArray([[[[[0.1, 0.3]]]]], dims=("word", "step", "layer", "y", "x"))
    >>> word_mass(xr.Dataset({"attention": maps})).round(3).values.tolist()
    [[[0.2]]]
    """
    return trace["attention"].mean(("y", "x")).transpose("word", "layer", "step")


def word_maps(trace: xr.Dataset) -> xr.DataArray:
    """The map of each word, ``(word, step, y, x)``: attention averaged over layers, in [0, 1]."""
    return trace["attention"].mean("layer").transpose("word", "step", "y", "x")


def spread(maps: xr.DataArray) -> xr.DataArray:
    """Normalised entropy of maps over ``y, x``: 0 is all in one place, 1 is evenly everywhere.

    The map is taken as a distribution over the picture: -sum(p log p) / log(number of places). NaN for a map
    that is zero everywhere, which has no distribution.

    >>> even = xr.DataArray([[1.0, 1.0], [1.0, 1.0]], dims=("y", "x"))
    >>> float(spread(even)), float(spread(even.where(even.cumsum("x").cumsum("y") == 1, 0.0)))
    (1.0, 0.0)
    """
    places = maps.sizes["y"] * maps.sizes["x"]
    total = maps.sum(("y", "x"), skipna=False)
    share = maps / total.where(total > 0)
    # x log x with its limit 0 at 0; NaN stays NaN.
    terms = share * np.log(share.where(share != 0, 1.0))
    entropy = abs(terms.sum(("y", "x"), skipna=False))
    return entropy / float(np.log(max(places, 2)))


def guidance_effort(trace: xr.Dataset) -> xr.DataArray:
    """Guidance effort, ``(step,)``: ||eps_cond - eps_uncond||^2 summed over channels and pixels, >= 0."""
    return trace["guidance"].sum(("y", "x"), skipna=False)


def information_rates(trace: xr.Dataset) -> xr.DataArray:
    """What each word adds to the prediction, ``(word, step)``: nats per unit of log-SNR, summed over places."""
    return trace["information_rate"].sum(("y", "x"), skipna=False).transpose("word", "step")


def information_so_far(trace: xr.Dataset) -> xr.DataArray:
    """The running integral of :func:`information_rates` over log-SNR, ``(word, step)``, in nats."""
    return trace["information_written"].sum(("y", "x"), skipna=False).transpose("word", "step")


def word_effort(trace: xr.Dataset) -> list[WordEffort]:
    """A row a word of a trace with ``information_total``, otherwise none.

    A word that adds nothing has no ``half`` and no ``peak``; between steps ``half`` is interpolated.
    """
    if "information_total" not in trace:
        return []
    rates, so_far, levels = information_rates(trace), information_so_far(trace), trace["logsnr"].values
    rows = []
    for index, word in enumerate(trace["word"].values):
        total = float(trace["information_total"][index])
        sums = so_far[index].values
        half = peak = None
        if total > 0:
            finite = np.isfinite(levels)
            half = float(np.interp(total / 2, sums[finite], levels[finite]))
            peak = float(levels[int(np.where(finite, rates[index].values, -np.inf).argmax())])
        rows.append(WordEffort(str(word), total, half, peak))
    return rows


def token_shares(trace: xr.Dataset) -> xr.DataArray:
    """Attention mass by kind of token, ``(token_kind, step)``: the mean over layers; sums to 1 over kinds."""
    return trace["token_mass"].mean("layer").transpose("token_kind", "step")


def short_layer_names(names: list[str]) -> list[str]:
    """Short names of diffusers' layers, unique where the names are.

    What all names end with is dropped, and the words that say nothing are shortened.

    >>> short_layer_names(["down_blocks.0.attentions.0.transformer_blocks.0.attn2",
    ...                    "mid_block.attentions.0.transformer_blocks.0.attn2"])
    ['down 0.0', 'mid 0']
    """
    several = any(re.search(r"transformer_blocks\.[1-9]", name) for name in names)
    shorts = []
    for name in names:
        stem, block = name, ""
        if found := re.match(r"(.+)\.transformer_blocks\.(\d+)\.\w+$", name):
            # The number of the block matters only where some attention module has more than one.
            stem, block = found[1], f"/{found[2]}" if several else ""
        side, *rest = [part for part in stem.split(".") if part != "attentions"]
        shorts.append(" ".join([re.sub(r"_blocks?$", "", side), ".".join(rest)]).strip() + block)
    return shorts if len(set(shorts)) == len(set(names)) else list(names)
