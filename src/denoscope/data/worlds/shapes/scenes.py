"""The scenes of the shapes world: what there is, where it may stand, and how likely it is.

A scene is a grey background with one object, or with two objects in disjoint halves of the picture. Every attribute
is drawn uniformly and independently, so that the world is a finite set with a known prior.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Layout = Literal["one", "vertical", "horizontal"]
Region = Literal["whole", "top", "bottom", "left", "right"]
Attribute = Literal["colour", "shape", "size", "texture"]

PICTURE_SIZE = 64
BOX = 24
"""Side of the square (pixels) that holds any object; objects stand at integer centres."""

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 32, 38),
    "green": (38, 158, 60),
    "blue": (36, 74, 214),
    "yellow": (244, 216, 40),
    "purple": (132, 44, 172),
    "orange": (246, 132, 24),
    "cyan": (44, 204, 218),
    "pink": (248, 128, 184),
}
SHAPES = ("circle", "square", "triangle", "cross")
SIZES = ("small", "large")
TEXTURES = ("plain", "striped")
BACKGROUNDS = (92, 172)
"""Grey levels of the background; no caption mentions them."""

VALUES: dict[Attribute, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "shape": SHAPES,
    "size": SIZES,
    "texture": TEXTURES,
}
ATTRIBUTES: tuple[Attribute, ...] = ("colour", "shape", "size", "texture")

LAYOUTS: dict[Layout, tuple[Region, ...]] = {
    "one": ("whole",),
    "vertical": ("top", "bottom"),
    "horizontal": ("left", "right"),
}
LAYOUT_PRIOR: dict[Layout, float] = {"one": 0.5, "vertical": 0.25, "horizontal": 0.25}

_WHOLE = (12, 20, 28, 36, 44, 52)
_NEAR, _MIDDLE, _FAR = (12, 20), (28, 36), (44, 52)
POSITIONS: dict[Region, tuple[tuple[int, int], ...]] = {
    "whole": tuple(product(_WHOLE, _WHOLE)),
    "top": tuple(product(_MIDDLE, _NEAR)),
    "bottom": tuple(product(_MIDDLE, _FAR)),
    "left": tuple(product(_NEAR, _MIDDLE)),
    "right": tuple(product(_FAR, _MIDDLE)),
}
"""Centres (x, y) in pixels. Steps of 8 pixels, the stride of the autoencoder. In two-object scenes the distance along
the layout's axis is at least 24 and across it at most 8, so no picture belongs to two layouts."""


@dataclass(frozen=True, slots=True)
class Thing:
    """One object: its four attributes and its centre in pixels."""

    colour: str
    shape: str
    size: str
    texture: str
    x: int
    y: int

    def value(self, attribute: Attribute) -> str:
        """The value of one attribute, for instance ``"red"`` for ``"colour"``."""
        value: str = getattr(self, attribute)
        return value


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture's content. ``things`` are in the order of the layout's regions (top before bottom, left before right).

    >>> scene = Scene("one", (Thing("red", "circle", "large", "plain", 12, 20),), 92)
    >>> scene.things[0].colour
    'red'
    """

    layout: Layout
    things: tuple[Thing, ...]
    background: int


def table(region: Region) -> NDArray[np.int64]:
    """Every object that may stand in a region, one row each.

    Returns ``(K, 5)`` indices: colour, shape, size, texture (into :data:`VALUES`) and position (into
    ``POSITIONS[region]``). K is 4,608 for the whole picture and 512 for a half.

    >>> table("top").shape
    (512, 5)
    """
    counts = [len(VALUES[attribute]) for attribute in ATTRIBUTES] + [len(POSITIONS[region])]
    return np.stack(np.unravel_index(np.arange(int(np.prod(counts))), counts), axis=1).astype(np.int64)


def thing(row: NDArray[np.int64], region: Region) -> Thing:
    """The object that one row of :func:`table` stands for."""
    colour, shape, size, texture = (
        VALUES[attribute][int(index)] for attribute, index in zip(ATTRIBUTES, row, strict=False)
    )
    x, y = POSITIONS[region][int(row[4])]
    return Thing(colour, shape, size, texture, x, y)


def things(region: Region) -> Iterator[Thing]:
    """Every object that may stand in a region, in the order of :func:`table`."""
    for row in table(region):
        yield thing(row, region)


def sample_scene(rng: np.random.Generator, layout: Layout | None = None) -> Scene:
    """Draw a scene from the world's prior, or from one layout of it.

    >>> sample_scene(np.random.default_rng(0), "vertical").layout
    'vertical'
    """
    if layout is None:
        names = list(LAYOUTS)
        layout = names[int(rng.choice(len(names), p=[LAYOUT_PRIOR[name] for name in names]))]
    drawn = []
    for region in LAYOUTS[layout]:
        row = [int(rng.integers(len(VALUES[attribute]))) for attribute in ATTRIBUTES]
        row.append(int(rng.integers(len(POSITIONS[region]))))
        drawn.append(thing(np.array(row), region))
    return Scene(layout, tuple(drawn), BACKGROUNDS[int(rng.integers(len(BACKGROUNDS)))])
