"""What ``denoscope attention`` measures in a watched generation."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import xarray as xr

    from denoscope.observer import Binding

_HEADS_TOLD: Final = 3


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much the maps of two words share, as soft and hard intersection over union."""

    words: tuple[str, str]
    soft: float
    hard: float


@dataclass(frozen=True, slots=True)
class SharpHead:
    """A head whose map of a word is narrow: its effective area, in (0, 1]."""

    layer: str
    head: int
    area: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured, of the words shown: areas at the first and the last step, masses, overlaps, bindings.

    ``heads`` are those that look most sharply for the first word shown, if heads were kept apart.
    """

    areas: dict[str, tuple[float, float]]
    masses: dict[str, float]
    overlaps: tuple[Overlap, ...]
    bindings: "tuple[Binding, ...]"
    heads: tuple[SharpHead, ...]


def measure(trace: "xr.Dataset") -> "xr.Dataset":
    """The maps of all words, averaged over layers, and their measures: what ``attention.nc`` holds.

    With heads apart also ``attention_heads``, averaged over steps: heads of different layers have nothing in common.
    """
    import xarray as xr

    from denoscope.observer import overlap, sharpening, word_maps

    apart = None
    if "head" in trace["attention"].dims:
        apart = trace["attention"].mean("step", skipna=True).transpose("word", "layer", "head", "y", "x")
        trace = trace.assign(attention=trace["attention"].mean("head", skipna=True))
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
    if apart is not None:
        table = table.assign(attention_heads=apart)
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


def found_in(trace: "xr.Dataset", table: "xr.Dataset", shown: Sequence[str]) -> Found:
    """What is told of the words shown; ``table`` is :func:`measure`'s or :func:`measure_region`'s of the trace."""
    from denoscope.observer import bindings

    areas = table["effective_area"]
    if "token_mass" not in table:
        return Found({word: (float(areas[0, 0]), float(areas[0, -1])) for word in shown}, {}, (), (), ())
    if "head" in trace["attention"].dims:
        trace = trace.assign(attention=trace["attention"].mean("head", skipna=True))
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
        sharpest_heads(table, shown[0]) if "attention_heads" in table else (),
    )


def sharpest_heads(table: "xr.Dataset", word: str) -> tuple[SharpHead, ...]:
    """The three heads of all layers whose map of the word, mean over steps, has the least effective area."""
    from denoscope.observer import effective_area

    areas = effective_area(table["attention_heads"].sel(word=word)).stack(place=("layer", "head")).dropna("place")
    least = areas.sortby(areas)[:_HEADS_TOLD]
    return tuple(
        SharpHead(str(layer), int(head), float(area))
        for (layer, head), area in zip(least["place"].values, least.values, strict=True)
    )
