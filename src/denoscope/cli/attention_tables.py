"""What ``denoscope attention`` measures of a trace: its tables, and the few numbers that it prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr

    from denoscope.observer import Binding


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much the maps of two words share, as soft and hard intersection over union."""

    words: tuple[str, str]
    soft: float
    hard: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured, of the words shown: areas at the first and the last step, masses, overlaps, bindings."""

    areas: dict[str, tuple[float, float]]
    masses: dict[str, float]
    overlaps: tuple[Overlap, ...]
    bindings: "tuple[Binding, ...]"
    heads: tuple[str, str] | None = None
    """The word and the layer whose heads are drawn apart."""


def without_heads(trace: "xr.Dataset") -> "xr.Dataset":
    """The trace with maps averaged over heads, of those that a layer has."""
    if "attention" not in trace or "head" not in trace["attention"].dims:
        return trace
    return trace.assign(attention=trace["attention"].mean("head", skipna=True))


def heads_of(trace: "xr.Dataset", words: Sequence[str], steps: Sequence[int]) -> "xr.DataArray":
    """Maps of heads apart ``(shown_word, shown_step, layer, head, y, x)``, of some words and steps.

    Layers are not averaged, as head 2 of one layer has nothing to do with head 2 of another.
    """
    maps = trace["attention"].sel(word=list(words), step=list(steps)).drop_vars("word_tokens")
    renamed = maps.drop_vars(["timestep", "sigma", "logsnr"]).rename(word="shown_word", step="shown_step")
    return renamed.transpose("shown_word", "shown_step", "layer", "head", "y", "x").astype("float32")


def layer_of_heads(maps: "xr.DataArray", word: str) -> str:
    """The layer in which a word's map, mean over heads and steps, is the narrowest: where there is most to see."""
    from denoscope.observer import effective_area

    area = effective_area(maps.sel(shown_word=word).mean(("head", "shown_step"), skipna=True))
    return str(area["layer"].values[int(area.fillna(2.0).argmin("layer"))])


def measure(trace: "xr.Dataset") -> "xr.Dataset":
    """The maps of all words, averaged over layers, and their measures: what ``attention.nc`` holds."""
    import xarray as xr

    from denoscope.observer import overlap, sharpening, word_maps

    maps = word_maps(trace)
    mean = maps.mean("step", skipna=True)
    # One word against all at a time: all against all of a long prompt would take gigabytes.
    shared = xr.concat([overlap(mean, mean.sel(word=word, drop=True)) for word in mean["word"].values], "other_word")
    shared = shared.assign_coords(other_word=mean["word"].values)
    table = sharpening(trace).assign(
        attention=maps,
        token_mass=trace["token_mass"].mean("layer").transpose("token_kind", "step"),
        soft_overlap=shared["soft"],
        hard_overlap=shared["hard"],
    )
    table.attrs = dict(trace.attrs) | {"layers": " ".join(str(name) for name in trace["layer"].values)}
    return table.astype("float32")


def measure_region(trace: "xr.Dataset") -> "xr.Dataset":
    """Where the region looks, averaged over layers, under the name of a word, and how wide."""
    import xarray as xr

    from denoscope.observer import sharpening

    maps = trace["self_attention"].mean("layer").expand_dims(word=["the region"])
    table = sharpening(xr.Dataset({"attention": maps}, {"logsnr": trace["logsnr"]})).assign(attention=maps)
    table.attrs = dict(trace.attrs) | {"layers": " ".join(str(name) for name in trace["layer"].values)}
    return table.astype("float32")


def find(trace: "xr.Dataset", table: "xr.Dataset", shown: Sequence[str]) -> Found:
    """The numbers that are printed, of the words shown."""
    from denoscope.observer import bindings

    areas = table["effective_area"]
    if "token_mass" not in table:
        return Found({word: (float(areas[0, 0]), float(areas[0, -1])) for word in shown}, {}, (), ())
    masses = table["token_mass"].mean("step")
    return Found(
        {word: (float(areas.sel(word=word)[0]), float(areas.sel(word=word)[-1])) for word in shown},
        {str(kind): float(masses.sel(token_kind=kind)) for kind in masses["token_kind"].values},
        tuple(
            Overlap(
                pair,
                *(
                    float(table[name].sel(word=pair[0], other_word=pair[1]))
                    for name in ("soft_overlap", "hard_overlap")
                ),
            )
            for pair in combinations(shown, 2)
        ),
        tuple(found for found in bindings(trace) if found.modifier in shown),
    )
