"""The captions of the shapes world: a small grammar, its parser, and what a caption says about the scene.

    caption  :=  object [place]  |  object relation object
    object   :=  "a" [size] [texture] [colour] shape
    place    :=  "on the left" | "on the right" | "at the top" | "at the bottom"
    relation :=  "above" | "below" | "to the left of" | "to the right of"

The noun "shape" leaves the shape open. Which attributes a caption names is drawn independently of their values, so
p(scene | caption) is uniform over the scenes that the caption allows.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, VALUES, Attribute, Layout, Scene, Thing

Place = Literal["left", "right", "top", "bottom"]

SYNONYMS: dict[str, str] = {
    "crimson": "red",
    "emerald": "green",
    "azure": "blue",
    "golden": "yellow",
    "violet": "purple",
    "amber": "orange",
    "turquoise": "cyan",
    "rosy": "pink",
    "disc": "circle",
    "box": "square",
    "pyramid": "triangle",
    "plus": "cross",
    "tiny": "small",
    "big": "large",
    "solid": "plain",
    "lined": "striped",
}
"""Rare words and what they mean; every attribute value has one."""

PLACES: dict[str, Place] = {
    "on the left": "left",
    "on the right": "right",
    "at the top": "top",
    "at the bottom": "bottom",
}
RELATIONS: dict[str, tuple[Layout, bool]] = {
    "above": ("vertical", False),
    "below": ("vertical", True),
    "to the left of": ("horizontal", False),
    "to the right of": ("horizontal", True),
}
"""Relation phrase to (layout, whether the object named first stands in the layout's second region)."""

GENERIC_NOUN = "shape"
_FILLERS = {"a", "an", "the", "and", "of", "picture"}
_ATTRIBUTE_OF: dict[str, Attribute] = {value: attribute for attribute in ATTRIBUTES for value in VALUES[attribute]}


class CaptionError(ValueError):
    """A text that is no caption of the shapes world; the message names the word or the form that is wrong."""


@dataclass(frozen=True, slots=True)
class Mention:
    """What a caption says about one object; ``None`` leaves an attribute open."""

    colour: str | None = None
    shape: str | None = None
    size: str | None = None
    texture: str | None = None

    def value(self, attribute: Attribute) -> str | None:
        """The named value of one attribute, or ``None``."""
        value: str | None = getattr(self, attribute)
        return value


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a caption says about the scene. The empty caption has no layout: it allows every scene.

    ``mentions`` are in the order of the layout's regions, not of the words: "a red circle below a blue square" and
    "a blue square above a red circle" have the same meaning.
    """

    layout: Layout | None = None
    mentions: tuple[Mention, ...] = ()
    place: Place | None = None

    def allows(self, scene: Scene) -> bool:
        """Whether the scene is one that the caption describes."""
        if self.layout is None:
            return True
        return (
            scene.layout == self.layout
            and all(_fits(mention, item) for mention, item in zip(self.mentions, scene.things, strict=True))
            and (self.place is None or place_holds(self.place, scene.things[0].x, scene.things[0].y))
        )


def _fits(mention: Mention, item: Thing) -> bool:
    return all(mention.value(name) in (None, item.value(name)) for name in ATTRIBUTES)


def place_holds(place: Place, x: float, y: float) -> bool:
    """Whether a centre (pixels) lies in the half of the picture that a place phrase names."""
    return {"left": x < 32, "right": x > 32, "top": y < 32, "bottom": y > 32}[place]


@dataclass(frozen=True, slots=True)
class CaptionStyle:
    """How captions are worded: probabilities that a part is named or replaced.

    ``synonym`` is per word; ``swap`` is the chance that the object of the layout's second region is named first.
    """

    colour: float = 0.93
    shape: float = 0.93
    size: float = 0.5
    texture: float = 0.4
    place: float = 0.5
    synonym: float = 0.06
    swap: float = 0.5
    rare: dict[str, str] = field(default_factory=lambda: {value: rare for rare, value in SYNONYMS.items()})


def describe(scene: Scene, rng: np.random.Generator, style: CaptionStyle | None = None) -> tuple[str, Meaning]:
    """Draw a caption of a scene: its words and its meaning.

    >>> from denoscope.data.worlds.shapes.scenes import sample_scene
    >>> rng = np.random.default_rng(0)
    >>> scene = sample_scene(rng)
    >>> text, meaning = describe(scene, rng)
    >>> meaning.allows(scene) and parse(text) == meaning
    True
    """
    style = style or CaptionStyle()
    mentions = []
    for item in scene.things:
        named = {name: item.value(name) if rng.random() < getattr(style, name) else None for name in ATTRIBUTES}
        mentions.append(Mention(**named))
    place: Place | None = None
    if scene.layout == "one" and rng.random() < style.place:
        x, y = scene.things[0].x, scene.things[0].y
        # The axis is drawn before looking at the position, so that the place named never biases the position.
        place = ("left" if x < 32 else "right") if rng.random() < 0.5 else ("top" if y < 32 else "bottom")
    meaning = Meaning(scene.layout, tuple(mentions), place)
    return word(meaning, rng, style), meaning


def word(meaning: Meaning, rng: np.random.Generator | None = None, style: CaptionStyle | None = None) -> str:
    """Put a meaning into words; without ``rng`` in the plainest way.

    >>> word(Meaning("vertical", (Mention("red", "circle"), Mention("blue", "square"))))
    'a red circle above a blue square'
    """
    style = style or CaptionStyle()
    if meaning.layout is None:
        return ""
    phrases = [_object_phrase(mention, rng, style) for mention in meaning.mentions]
    if meaning.layout == "one":
        places = {place: phrase for phrase, place in PLACES.items()}
        return phrases[0] if meaning.place is None else f"{phrases[0]} {places[meaning.place]}"
    swapped = rng is not None and rng.random() < style.swap
    relation = {what: phrase for phrase, what in RELATIONS.items()}[meaning.layout, swapped]
    first, second = reversed(phrases) if swapped else phrases
    return f"{first} {relation} {second}"


def _object_phrase(mention: Mention, rng: np.random.Generator | None, style: CaptionStyle) -> str:
    words = []
    for name in ("size", "texture", "colour", "shape"):
        value = mention.value(name)
        if value is None and name == "shape":
            value = GENERIC_NOUN
        if value is None:
            continue
        rare = style.rare.get(value)
        words.append(rare if rare and rng is not None and rng.random() < style.synonym else value)
    article = "an" if words[0][0] in "aeiou" else "a"
    return " ".join([article, *words])


_RELATION_PATTERN = re.compile(r"\b(above|below|(?:to the )?left of|(?:to the )?right of)\b")
_PLACE_PATTERN = re.compile(r"\b(on the left|on the right|at the top|at the bottom)\b")


def parse(text: str) -> Meaning:
    """Read a caption.

    Raises :class:`CaptionError` for a word outside the vocabulary, an object without a noun, an attribute named twice,
    or more than one relation or place.

    >>> parse("A crimson disc below a blue square").mentions
    (Mention(colour='blue', shape='square', ...), Mention(colour='red', shape='circle', ...))
    >>> parse("a red dog")
    Traceback (most recent call last):
    ...
    denoscope.data.worlds.shapes.captions.CaptionError: 'dog' is not a word of the shapes world
    """
    plain = " ".join(re.sub(r"[,.;!]", " ", text.lower()).split())
    if not plain:
        return Meaning()
    relations = list(_RELATION_PATTERN.finditer(plain))
    if len(relations) > 1:
        raise CaptionError(f"a caption has at most one relation, this one has {len(relations)}")
    if relations:
        found = relations[0]
        phrase = found[1] if found[1] in RELATIONS else f"to the {found[1]}"
        layout, swapped = RELATIONS[phrase]
        mentions = [_parse_object(plain[: found.start()]), _parse_object(plain[found.end() :])]
        return Meaning(layout, tuple(reversed(mentions) if swapped else mentions))
    places = _PLACE_PATTERN.findall(plain)
    if len(places) > 1:
        raise CaptionError(f"a caption has at most one place, this one has {len(places)}")
    mention = _parse_object(_PLACE_PATTERN.sub(" ", plain))
    return Meaning("one", (mention,), PLACES[places[0]] if places else None)


def _parse_object(phrase: str) -> Mention:
    found: dict[Attribute, str] = {}
    has_noun = False
    for raw in phrase.split():
        value = SYNONYMS.get(raw, raw)
        if value == GENERIC_NOUN:
            has_noun = True
        elif value in _ATTRIBUTE_OF:
            attribute = _ATTRIBUTE_OF[value]
            if found.get(attribute, value) != value:
                raise CaptionError(f"an object has one {attribute}, not {found[attribute]!r} and {raw!r}")
            found[attribute] = value
            has_noun = has_noun or attribute == "shape"
        elif value not in _FILLERS:
            raise CaptionError(f"{raw!r} is not a word of the shapes world")
    if not has_noun:
        raise CaptionError(f"no noun in {phrase.strip()!r}: say 'circle', 'square', 'triangle', 'cross' or 'shape'")
    return Mention(**found)
