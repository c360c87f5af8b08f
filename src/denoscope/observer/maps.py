"""Measures of attention maps: how wide a map is, where it lies, and how much two of them share.

A map is a non-negative array over ``y, x``; all other dimensions (``word``, ``step`` …) are kept. NaN stays NaN, and a
map that is zero everywhere has no shape, so its measures are NaN.
"""

import math

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from denoscope.observer.errors import MapError

_PLACES = ("y", "x")


def word_maps(trace: xr.Dataset) -> xr.DataArray:
    """The map of each word: attention averaged over the layers in which it was seen.

    Returns ``(word, step, y, x)`` float64 in [0, 1], or ``(word, y, x)`` of a trace without steps. Raises
    :class:`MapError` for a trace without attention.

    >>> seen = xr.DataArray([[[[[0.1, 0.3]], [[0.3, np.nan]]]]], dims=("word", "step", "layer", "y", "x"))
    >>> word_maps(xr.Dataset({"attention": seen})).round(3).values.tolist()
    [[[[0.2, 0.3]]]]
    """
    if "attention" not in trace:
        raise MapError("this trace has no attention: observe with attention='cross' a model that attends to its prompt")
    maps = trace["attention"].astype(np.float64)
    if "layer" in maps.dims:
        maps = maps.mean("layer", skipna=True)
    return maps.transpose("word", ..., *_PLACES)


def entropy(maps: xr.DataArray) -> xr.DataArray:
    """Shannon entropy in nats of each map taken as a distribution over places: -Σ p ln p with p = map / Σ map.

    From 0 (one place) to ln(y·x) (everywhere alike).

    >>> even = xr.DataArray(np.ones((2, 2)), dims=("y", "x"))
    >>> float(entropy(even).round(4)), float(entropy(0 * even))
    (1.3863, nan)
    """
    maps = checked(maps)
    total = maps.sum(_PLACES, skipna=False)
    share = maps / total.where(total > 0)
    # p ln p with its limit 0 at p = 0; NaN stays NaN.
    terms = share * np.log(share.where(share != 0, 1.0))
    return abs(terms.sum(_PLACES, skipna=False)).rename("entropy")


def effective_area(maps: xr.DataArray) -> xr.DataArray:
    """Share of the picture that a map covers: exp(entropy) / (y·x), in (0, 1].

    A map even over a part of the picture, and zero elsewhere, has that part's area: 1 for an even map, 1/(y·x) for a
    single place. It is the perplexity of the map over the number of places.

    >>> half = xr.DataArray([[0.2, 0.2], [0.0, 0.0]], dims=("y", "x"))
    >>> float(effective_area(half).round(6))
    0.5
    """
    area = math.e ** entropy(maps) / (maps.sizes["y"] * maps.sizes["x"])
    return area.clip(max=1.0).rename("effective_area")  # rounding may go past 1 by an ulp


def sharpening(trace: xr.Dataset) -> xr.Dataset:
    """How each word's map narrows from noise to picture: ``entropy`` and ``effective_area`` over ``(word, step)``.

    Keeps the trace's ``logsnr`` (and ``timestep``, ``sigma``) along ``step``; plot over ``logsnr``, so that models and
    schedulers can be compared. Raises :class:`MapError` for a trace without attention or without steps.

    >>> seen = xr.DataArray([[[[[1.0, 1.0]]], [[[1.0, 0.0]]]]], dims=("word", "step", "layer", "y", "x"))
    >>> seen = seen.assign_coords(word=["cat"], logsnr=("step", [-9.0, 9.0]))
    >>> curve = sharpening(xr.Dataset({"attention": seen}))
    >>> curve.effective_area.sel(word="cat").round(6).values.tolist(), curve.logsnr.values.tolist()
    ([1.0, 0.5], [-9.0, 9.0])
    """
    maps = word_maps(trace)
    if "step" not in maps.dims:
        raise MapError("this trace has no steps, so nothing can narrow over them: observe with keep_steps=True")
    return xr.Dataset({"entropy": entropy(maps), "effective_area": effective_area(maps)})


def overlap(maps: xr.DataArray, other: xr.DataArray) -> xr.Dataset:
    """How much maps share, as intersection over union, each map first divided by its own maximum.

    ``soft`` is Σ min / Σ max of the two; ``hard`` is that of the places where each is at least half its maximum. Both
    are in [0, 1], symmetric, and 1 for maps that differ by a factor only. Other dimensions are broadcast by name:
    rename one to compare all with all. Two wide maps share much whatever they mean: ``soft`` of even maps is 1.

    Raises :class:`MapError` for grids of different sizes.

    >>> maps = xr.DataArray([[[1.0, 1.0, 0.0]], [[0.0, 3.0, 3.0]]], dims=("word", "y", "x"))
    >>> overlap(maps, maps.rename(word="other")).soft.round(3).values.tolist()
    [[1.0, 0.333], [0.333, 1.0]]
    """
    maps, other = checked(maps), checked(other)
    _same_grid(maps, other)
    first, second = _to_maximum(maps), _to_maximum(other)
    # Σ min and Σ max of a and b are half of Σ (a + b) ∓ Σ |a - b|.
    both_sums, apart = (first + second).sum(_PLACES, skipna=False), abs(first - second).sum(_PLACES, skipna=False)
    soft = (both_sums - apart) / (both_sums + apart)
    known = first.notnull() & second.notnull()
    both = ((first >= 0.5) & (second >= 0.5)).where(known).sum(_PLACES, skipna=False)
    either = ((first >= 0.5) | (second >= 0.5)).where(known).sum(_PLACES, skipna=False)
    return xr.Dataset({"soft": soft, "hard": both / either})


def pointing(maps: xr.DataArray, mask: xr.DataArray | NDArray[np.bool_]) -> xr.Dataset:
    """Does a map lie on a region? ``mask`` is boolean ``(y, x)`` on the maps' own grid.

    ``hit`` is 1 if the map's maximum lies inside (of several equal maxima, the share of them inside; the pointing game
    of Zhang et al. 2016, arXiv:1608.00507, without its tolerance), ``mass`` the share of the map's sum inside, and
    ``area`` the mask's share of the picture, which is what an even map would get for both.

    Raises :class:`MapError` for a mask of another size, not boolean, or without any place.

    >>> maps = xr.DataArray([[0.5, 0.3], [0.1, 0.1]], dims=("y", "x"))
    >>> found = pointing(maps, np.array([[True, False], [False, False]]))
    >>> float(found.hit), float(found.mass), float(found.area)
    (1.0, 0.5, 0.25)
    """
    maps = checked(maps)
    region = mask if isinstance(mask, xr.DataArray) else xr.DataArray(mask, dims=_PLACES)
    if region.dtype != np.bool_:
        raise MapError(f"the mask is {region.dtype}, not boolean: compare it with a threshold first")
    _same_grid(maps, region)
    if not bool(region.any()):
        raise MapError("the mask is empty, so no map can lie on it: mark at least one place of the maps' grid")
    # By place, not by label: the maps' grid has no coordinates, a caller's mask may have some.
    region = xr.DataArray(region.transpose(*_PLACES).values, dims=_PLACES)
    total = maps.sum(_PLACES, skipna=False)
    known = total > 0
    peaks = maps == maps.max(_PLACES)
    hit = (peaks & region).sum(_PLACES) / peaks.sum(_PLACES)
    mass = maps.where(region, 0.0).sum(_PLACES, skipna=False) / total.where(known)
    return xr.Dataset({"hit": hit.where(known), "mass": mass, "area": region.mean()})


def _to_maximum(maps: xr.DataArray) -> xr.DataArray:
    peak = maps.max(_PLACES, skipna=False)
    return maps / peak.where(peak > 0)


def checked(maps: xr.DataArray) -> xr.DataArray:
    """The maps in float64, which must have ``y`` and ``x`` and no negative value."""
    for name in _PLACES:
        if name not in maps.dims:
            raise MapError(f"maps have the dimensions y and x, these have {', '.join(map(str, maps.dims)) or 'none'}")
    if bool((maps < 0).any()):
        raise MapError("attention maps have no negative values, these do: give probabilities, not differences")
    return maps.astype(np.float64)


def _same_grid(maps: xr.DataArray, other: xr.DataArray) -> None:
    sizes = [tuple(each.sizes.get(name, 0) for name in _PLACES) for each in (maps, other)]
    if sizes[0] != sizes[1]:
        (height, width), (other_height, other_width) = sizes
        raise MapError(
            f"maps of {height}×{width} places can't be compared with {other_height}×{other_width}: "
            "bring both to one grid first"
        )
