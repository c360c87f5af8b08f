"""Compares what a picture shows with what its caption says, and sums up many comparisons."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from denoscope.data.worlds.shapes.captions import Meaning, Mention, place_holds
from denoscope.data.worlds.shapes.reader import Reading, ReadThing, read, relation
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, Attribute

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a picture shows what its caption names; ``None`` where the caption names nothing of the kind.

    An attribute is right if every object shows the value named for it. In two-object captions the upper (or left)
    object is compared with the mention of the upper (or left) one. An attribute that could not be read, or a wrong
    number of objects, counts as wrong. ``relation`` asks that two objects stand along the caption's axis, and not with
    their roles exchanged. ``whole`` asks for the right number of objects and that everything named is right.
    """

    colour: bool | None
    shape: bool | None
    size: bool | None
    texture: bool | None
    relation: bool | None
    place: bool | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate with its Wilson 95 % interval; ``n`` counts the judgements. Without any, ``value`` is NaN."""

    value: float
    low: float
    high: float
    n: int


def judge(picture: NDArray[np.uint8] | Reading, meaning: Meaning) -> Judgement:
    """Compare a picture ``(64, 64, 3)`` uint8, or a reading of one, with a caption's meaning.

    The empty caption names nothing, so any picture that can be read is right as a whole.

    Raises ``ValueError`` for a picture of another shape or type.

    >>> from denoscope.data.worlds.shapes.captions import parse
    >>> from denoscope.data.worlds.shapes.rendering import render
    >>> from denoscope.data.worlds.shapes.scenes import Scene, Thing
    >>> picture = render(Scene("one", (Thing("red", "circle", "large", "plain", 12, 20),), 92))
    >>> judge(picture, parse("a red square on the left"))
    Judgement(colour=True, shape=False, size=None, texture=None, relation=None, place=True, whole=False)
    """
    reading = picture if isinstance(picture, Reading) else read(picture)
    if meaning.layout is None:
        return Judgement(None, None, None, None, None, None, whole=reading.problem is None)
    counted = reading.problem is None and len(reading.things) == len(meaning.mentions)
    things = reading.things if counted else ()
    if meaning.layout != "one":
        axis = "y" if meaning.layout == "vertical" else "x"
        things = tuple(sorted(things, key=lambda thing: getattr(thing, axis)))
    attributes = {name: _attribute_right(name, things, meaning.mentions) for name in ATTRIBUTES}
    stands = None if meaning.layout == "one" else counted and _stands(things, meaning)
    place = None
    if meaning.place is not None:
        place = counted and place_holds(meaning.place, things[0].x, things[0].y)
    whole = counted and False not in (*attributes.values(), stands, place)
    return Judgement(**attributes, relation=stands, place=place, whole=whole)


def _attribute_right(name: Attribute, things: Sequence[ReadThing], mentions: Sequence[Mention]) -> bool | None:
    if all(mention.value(name) is None for mention in mentions):
        return None
    pairs = zip(things, mentions, strict=False)
    return bool(things) and all(mention.value(name) in (None, thing.value(name)) for thing, mention in pairs)


def _stands(things: Sequence[ReadThing], meaning: Meaning) -> bool:
    """Whether two objects, in the order of the caption's axis, stand as the caption says."""
    stand = relation(things[0], things[1])
    straight, exchanged = (
        all(_attribute_right(name, order, meaning.mentions) is not False for name in ATTRIBUTES)
        for order in (things, things[::-1])
    )
    return stand is not None and stand[0] == meaning.layout and (straight or not exchanged)


def judge_many(pictures: Iterable[NDArray[np.uint8] | Reading], meanings: Iterable[Meaning]) -> list[Judgement]:
    """Judge each picture against its caption's meaning.

    Raises ``ValueError`` if there are not as many pictures as meanings.
    """
    return [judge(picture, meaning) for picture, meaning in zip(pictures, meanings, strict=True)]


def rates(judgements: Iterable[Judgement]) -> dict[str, Rate]:
    """The share of right pictures for each field of :class:`Judgement`, over those whose caption names it.

    >>> right = Judgement(True, None, None, None, None, None, whole=True)
    >>> rates([right] * 10)["colour"]
    Rate(value=1.0, low=0.72..., high=1.0, n=10)
    >>> rates([right] * 10)["relation"]
    Rate(value=nan, low=0.0, high=1.0, n=0)
    """
    judged = list(judgements)
    result = {}
    for field in fields(Judgement):
        outcomes = [getattr(judgement, field.name) for judgement in judged]
        told = [outcome for outcome in outcomes if outcome is not None]
        result[field.name] = wilson(sum(told), len(told))
    return result


def wilson(successes: int, n: int) -> Rate:
    """The rate of ``successes`` in ``n`` trials with its Wilson 95 % interval.

    Raises ``ValueError`` unless ``0 <= successes <= n``.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials")
    if n == 0:
        return Rate(math.nan, 0.0, 1.0, 0)
    share, extra = successes / n, _Z95**2 / n
    middle = (share + extra / 2) / (1 + extra)
    half = _Z95 / (1 + extra) * math.sqrt(share * (1 - share) / n + extra / (4 * n))
    # At the ends one bound is exact; rounding must not push it past.
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == n else middle + half
    return Rate(share, low, high, n)
