"""From a scene to its picture.

Shapes have equal area at equal size. Edges are anti-aliased by supersampling, and the picture is rounded to eight bits,
so that a saved PNG is the template itself.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from denoscope.data.worlds.shapes.scenes import BOX, COLOURS, PICTURE_SIZE, Scene, Thing

_SUPERSAMPLING = 8
AREA = {"small": 125.0, "large": 249.0}
"""Area of a shape in square pixels; the largest that keeps the triangle inside its box."""
STRIPE_PERIOD = 4
STRIPE_DARKNESS = 0.45
"""Striped objects repeat two bright rows and two rows of this fraction of the colour."""


def _inside(shape: str, area: float, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether points (x right, y down, centre 0) lie in a shape of the given area."""
    if shape == "circle":
        return np.asarray(x**2 + y**2 <= area / np.pi)
    if shape == "square":
        half = np.sqrt(area) / 2
        return np.asarray((abs(x) <= half) & (abs(y) <= half))
    if shape == "triangle":  # equilateral, tip up, its bounding box centred
        side = np.sqrt(4 * area / np.sqrt(3))
        height = side * np.sqrt(3) / 2
        return np.asarray((abs(y) <= height / 2) & (abs(x) <= (y + height / 2) / np.sqrt(3)))
    if shape == "cross":  # five equal squares
        half = np.sqrt(area / 5) / 2
        return np.asarray(((abs(x) <= half) & (abs(y) <= 3 * half)) | ((abs(y) <= half) & (abs(x) <= 3 * half)))
    raise ValueError(f"unknown shape {shape!r}")


@cache
def coverage(shape: str, size: str) -> NDArray[np.float64]:
    """How much of each pixel of the object's box the shape covers: ``(24, 24)`` in [0, 1].

    >>> round(float(coverage("circle", "large").sum()))
    249
    """
    axis = (np.arange(BOX * _SUPERSAMPLING) + 0.5) / _SUPERSAMPLING - BOX / 2
    x, y = np.meshgrid(axis, axis)
    fine = _inside(shape, AREA[size], x, y).astype(np.float64)
    covered: NDArray[np.float64] = fine.reshape(BOX, _SUPERSAMPLING, BOX, _SUPERSAMPLING).mean(axis=(1, 3))
    covered.setflags(write=False)
    return covered


def paint(canvas: NDArray[np.float64], item: Thing) -> None:
    """Draw one object onto a canvas ``(64, 64, 3)`` of grey levels 0…255, in place."""
    alpha = coverage(item.shape, item.size)[:, :, None]
    tone = np.broadcast_to(np.array(COLOURS[item.colour], dtype=np.float64), (BOX, BOX, 3)).copy()
    if item.texture == "striped":
        dark = np.arange(BOX) % STRIPE_PERIOD >= STRIPE_PERIOD // 2
        tone[dark] *= STRIPE_DARKNESS
    rows = slice(item.y - BOX // 2, item.y + BOX // 2)
    columns = slice(item.x - BOX // 2, item.x + BOX // 2)
    canvas[rows, columns] = canvas[rows, columns] * (1 - alpha) + tone * alpha


def render(scene: Scene) -> NDArray[np.uint8]:
    """The picture of a scene: ``(64, 64, 3)`` uint8.

    >>> from denoscope.data.worlds.shapes.scenes import Scene, Thing
    >>> picture = render(Scene("one", (Thing("red", "circle", "large", "plain", 12, 20),), 92))
    >>> picture[20, 12].tolist(), picture[63, 63].tolist()
    ([214, 32, 38], [92, 92, 92])
    """
    canvas = np.full((PICTURE_SIZE, PICTURE_SIZE, 3), float(scene.background))
    for item in scene.things:
        paint(canvas, item)
    return np.rint(canvas).astype(np.uint8)
