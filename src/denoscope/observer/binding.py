"""Binding: does the map of "red" lie where the map of its own noun lies, or where another noun's does?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from denoscope.observer.errors import MapError
from denoscope.observer.maps import checked, word_maps

_WORDS: Final = """
    a an the this that these those some any each every no one two three four five six seven eight nine ten
    my your his her its our their
    and or but nor with without
    above across after against along among around as at before behind below beneath beside besides between beyond by
    down during for from in inside into like near next of off on onto out outside over past per through to toward
    towards under underneath until up upon within
    is are was were be being been has have having
    left right top bottom front back middle center centre side
"""
STOP_WORDS: Final = frozenset(_WORDS.split())
"""Articles, determiners, numerals, conjunctions, prepositions, forms of to be and to have, and words for places.

The last are here for phrases such as "to the left of", where they are no object.
"""

WARNS_BELOW: Final = -0.45
"""Of 384 scores of pictures that ``shapes`` drew rightly 12 % are below it, 44 % below 0 (docs/attention.md)."""


class Pair(NamedTuple):
    """A word that modifies a noun, both as the trace labels them ("red", "cube#2")."""

    modifier: str
    noun: str


@dataclass(frozen=True, slots=True)
class Binding:
    """How a modifier's map lies between its own noun's and another's.

    ``own`` and ``other`` are :func:`similarity` in [-1, 1] to its noun and to ``rival``, the most alike of the other
    nouns; ``score`` is half their difference, in [-1, 1].
    """

    modifier: str
    noun: str
    rival: str
    own: float
    other: float
    score: float

    @property
    def warning(self) -> str | None:
        """One sentence where the map lies on another noun (score below :data:`WARNS_BELOW`), else ``None``."""
        if not self.score < WARNS_BELOW:
            return None
        return f"the map of {self.modifier!r} lies on {self.rival!r} rather than on {self.noun!r} ({self.score:+.2f})"


def runs_of(words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The runs of words between stop words and signs; the last of each run is taken as a noun.

    Labels are looked up without case and without the count of :func:`~denoscope.observer.select_words`.

    >>> runs_of(["a", "large", "red", "ball", ",", "a#2", "dog"])
    (('large', 'red', 'ball'), ('dog',))
    """
    runs: list[list[str]] = [[]]
    for label in words:
        plain = label.split("#")[0].lower() or label
        if plain in STOP_WORDS or not any(character.isalnum() for character in plain):
            runs.append([])
        else:
            runs[-1].append(label)
    return tuple(tuple(run) for run in runs if run)


def pairs_of(words: Sequence[str]) -> tuple[Pair, ...]:
    """Guess which word modifies which noun, for prompts of the form "adjective(s) noun".

    The rule: a run of words ends at an article, preposition, conjunction or another of :data:`STOP_WORDS`, and at a
    sign; its last word is the noun and the rest modify it. It knows no grammar: "the ball is red" makes no pair, and in
    "a dog running fast" it takes "fast" for the noun. ``words`` must be all the words of the prompt, in their order.

    >>> pairs_of(["a", "striped", "red", "ball", "above", "a#2", "blue", "cube"])
    (Pair(modifier='striped', noun='ball'), Pair(modifier='red', noun='ball'), Pair(modifier='blue', noun='cube'))
    """
    return tuple(Pair(modifier, run[-1]) for run in runs_of(words) for modifier in run[:-1])


def similarity(maps: xr.DataArray, first: str, second: str) -> xr.DataArray:
    """Cosine in [-1, 1] of two words' maps, each made to sum to 1 and less the mean of all words' maps so made.

    Maps of one picture are alike whatever their words mean: object and ground differ in each. The mean of the words'
    maps takes that away. Making each sum to 1 first is what keeps the measure to *place*. Measured on 50 two-object
    pictures of the embedded model ``shapes``: without it, a colour word prefers its own noun in 89 % of cases, but in
    90 % also when its map is replaced by one without any place (the mean map, scaled to the word's total), as words of
    one phrase have similar totals. With it the real map gives 57 % and that control 52 %, and a shape word's map still
    points to its own object in 100 % (95 % with the stop words' maps in the mean, so leave them out). Dividing by the
    mean instead gives 61 % for the control. ``benchmarks/binding_auc.py`` repeats the control.

    ``maps`` is ``(word, …, y, x)``; other dimensions are kept. NaN for a map without any variation left. Raises
    :class:`MapError` for a word that is not there.

    >>> maps = xr.DataArray([[[4.0, 1.0]], [[8.0, 2.0]], [[1.0, 4.0]]], dims=("word", "y", "x"))
    >>> maps = maps.assign_coords(word=["red", "ball", "cube"])
    >>> float(similarity(maps, "red", "ball").round(6)), float(similarity(maps, "red", "cube").round(6))
    (1.0, -1.0)
    """
    maps = checked(maps)
    known = [str(word) for word in maps["word"].values]
    for word in (first, second):
        if word not in known:
            raise MapError(f"the word {word!r} has no map here; there are maps of {', '.join(map(repr, known))}")
    total = maps.sum(("y", "x"), skipna=False)
    shares = maps / total.where(total > 0)
    # A word that was zero everywhere says nothing about what the words share: skipped, not spread as NaN.
    rest = shares - shares.mean("word", skipna=True)
    one, two = rest.sel(word=first, drop=True), rest.sel(word=second, drop=True)
    length = ((one**2).sum(("y", "x"), skipna=False) * (two**2).sum(("y", "x"), skipna=False)) ** 0.5
    # Equal maps leave rounding errors, whose direction means nothing; shares are of the order of 1 / places.
    return ((one * two).sum(("y", "x"), skipna=False) / length.where(length > 1e-18)).clip(-1.0, 1.0)


def binding(maps: xr.DataArray, modifier: str, noun: str, other_nouns: Sequence[str]) -> xr.DataArray:
    """How much more a modifier's map is like its own noun's than like any other noun's: in [-1, 1].

    Half of :func:`similarity` to the noun less the greatest similarity to another noun: 1 if it lies exactly where its
    own does and opposite to all others, below 0 if another noun is nearer. NaN without another noun. The baseline is
    the mean over all words in ``maps``: give maps of the words with a meaning, without "a" and "above".

    ``maps`` is ``(word, …, y, x)``; the other dimensions are kept. Raises :class:`MapError` for an unknown word.

    >>> maps = xr.DataArray([[[4.0, 1.0]], [[8.0, 2.0]], [[1.0, 4.0]]], dims=("word", "y", "x"))
    >>> maps = maps.assign_coords(word=["red", "ball", "cube"])
    >>> float(binding(maps, "red", "ball", ["cube"]).round(6)), float(binding(maps, "red", "cube", ["ball"]).round(6))
    (1.0, -1.0)
    """
    own = similarity(maps, modifier, noun)
    others = [similarity(maps, modifier, other) for other in other_nouns if other != noun]
    if not others:
        return own * np.nan
    return (own - xr.concat(others, "noun").max("noun", skipna=True)) / 2


def bindings(
    trace: xr.Dataset, pairs: Sequence[tuple[str, str]] | None = None, nouns: Sequence[str] | None = None
) -> tuple[Binding, ...]:
    """The binding of every pair of a trace, its maps averaged over layers and steps.

    ``pairs`` of (modifier, noun) default to the guess of :func:`pairs_of`, for which the trace must hold all words of
    the prompt. ``nouns`` are what a modifier could lie on wrongly: by default the last words of all runs and the nouns
    of the pairs. Only these words make the common baseline. Without two different nouns there is nothing to tell apart,
    and the result is empty.

    Raises :class:`MapError` for a trace without attention, or a word that it does not hold.

    >>> seen = xr.DataArray([[[1.0, 4.0]], [[4.0, 1.0]], [[1.0, 4.0]]], dims=("word", "y", "x"))
    >>> trace = xr.Dataset({"attention": seen.assign_coords(word=["red", "ball", "cube"])})
    >>> for found in bindings(trace, [("red", "ball")], nouns=["ball", "cube"]):
    ...     print(found.warning)
    the map of 'red' lies on 'cube' rather than on 'ball' (-1.00)
    """
    maps = word_maps(trace)
    if "step" in maps.dims:
        maps = maps.mean("step", skipna=True)
    words = [str(word) for word in maps["word"].values]
    chosen = [Pair(*pair) for pair in pairs] if pairs is not None else list(pairs_of(words))
    guessed = [run[-1] for run in runs_of(words)] if nouns is None else list(nouns)
    things = list(dict.fromkeys([*guessed, *(pair.noun for pair in chosen)]))
    for word in [*things, *(pair.modifier for pair in chosen)]:
        if word not in words:
            raise MapError(f"the word {word!r} has no map here; there are maps of {', '.join(map(repr, words))}")
    meant = [word for word in words if word in things or any(word == pair.modifier for pair in chosen)]
    maps = maps.sel(word=meant)
    found = []
    for pair in chosen:
        own = float(similarity(maps, *pair))
        others = {thing: float(similarity(maps, pair.modifier, thing)) for thing in things if thing not in pair}
        others = {thing: value for thing, value in others.items() if not np.isnan(value)}
        if others:
            rival = max(others, key=lambda thing: others[thing])
            found.append(Binding(*pair, rival, own, others[rival], (own - others[rival]) / 2))
    return tuple(found)
