"""Reads the attributes off a picture of the shapes world, from any generator, and says when it cannot.

The reader judges what a model drew, so it must be independent of the exact posterior: it segments the picture and
measures what it finds. It knows how shapes look (:func:`rendering.coverage`), not which pictures are likely.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from denoscope.data.worlds.shapes.rendering import AREA, STRIPE_DARKNESS, STRIPE_PERIOD, coverage
from denoscope.data.worlds.shapes.scenes import (
    ATTRIBUTES,
    BACKGROUNDS,
    BOX,
    COLOURS,
    PICTURE_SIZE,
    SHAPES,
    Attribute,
    Layout,
)

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

# Thresholds in grey levels are Euclidean over the three channels. The faintest part of any object, the dark stripes of
# pink on dark grey, is 40 away from its background, and the two closest colours are 86 apart.
_BORDER_SPREAD = 20.0
_BORDER_TINT = 24.0
_BACKGROUND_TOLERANCE = 20.0
_FOREGROUND = 24.0
_COLOUR_TOLERANCE = 36.0
_UNEVEN = 40.0
"""Three quarters of an object's inner pixels are closer than this to its colour."""
_SPECK = 30
"""Marks of fewer pixels are dust, not objects: the smallest object has 125."""
_OBJECT_EXTENT = 28
"""Longest side of one object's mask: 24 pixels, and up to two at each end by blur."""
_STRIPED_BELOW, _PLAIN_ABOVE = 0.86, 0.92
"""Brightness of the dark rows over that of the bright rows: 0.45 by construction, more after a blur."""
_STRIPED_MEAN = (1 + STRIPE_DARKNESS) / 2
"""Mean brightness of a striped object over its colour's: no blur changes it."""
_ROW_RESIDUAL = 0.12
_AREA_TOLERANCE = 0.2
"""Relative; the two sizes differ by a factor of two, so readings between them are refused."""
_OVERLAP = 0.80
_OVERLAP_MARGIN = 0.025
"""The most alike shapes, circle and square, overlap by 0.82; half-way between them the margin vanishes."""
_BETWEEN = (
    ("circle", "cross"),
    ("square", "cross"),
    ("triangle", "cross"),
    ("square", "triangle"),
    ("circle", "triangle"),
)
"""Pairs whose middles are compared explicitly: near a third shape, or aligned unlike either, they keep a margin."""
_BETWEEN_MARGIN = 0.015
"""A middle that overlaps better by this much is believed; compression alone makes a difference of half of it."""
_WINDOW = 28
_SHIFTS = (-1.0, -0.5, 0.0, 0.5, 1.0)
_BLURS = (0.0, 0.9)
"""Standard deviations (pixels) at which shapes are compared: compression halves the resolution of colours."""
_APART = 12.0


@dataclass(frozen=True, slots=True)
class ReadThing:
    """One object as read: an attribute that cannot be told is ``None`` and ``reasons`` says why.

    ``x`` and ``y`` are the centre in pixels, measured as in :class:`scenes.Thing`.
    """

    colour: str | None
    shape: str | None
    size: str | None
    texture: str | None
    x: float
    y: float
    reasons: tuple[str, ...] = ()

    def value(self, attribute: Attribute) -> str | None:
        """The value read for one attribute, or ``None``."""
        value: str | None = getattr(self, attribute)
        return value


@dataclass(frozen=True, slots=True)
class Reading:
    """What a picture shows.

    ``things`` are in the order of the layout they stand in (top before bottom, left before right). ``background`` is
    one of ``BACKGROUNDS``, or ``None`` if the border has another grey. ``problem`` is a sentence if the picture is none
    of one or two objects on plain grey; then ``things`` is empty.
    """

    things: tuple[ReadThing, ...]
    background: int | None
    problem: str | None = None

    @property
    def complete(self) -> bool:
        """Whether everything was told: no problem, no attribute and no background left open."""
        told = all(thing.value(name) is not None for thing in self.things for name in ATTRIBUTES)
        return self.problem is None and self.background is not None and told


def relation(first: ReadThing, second: ReadThing) -> tuple[Layout, bool] | None:
    """How two objects stand: the layout, and whether the first one is in the layout's second region.

    ``None`` if their centres differ by less than 12 pixels along both axes, or equally along both.

    >>> def at(x: float, y: float) -> ReadThing:
    ...     return ReadThing("red", "circle", "small", "plain", x, y)
    >>> relation(at(30, 50), at(34, 14))
    ('vertical', True)
    >>> relation(at(30, 30), at(34, 36)) is None
    True
    """
    dx, dy = second.x - first.x, second.y - first.y
    if max(abs(dx), abs(dy)) < _APART or abs(dx) == abs(dy):
        return None
    return ("vertical", dy < 0) if abs(dy) > abs(dx) else ("horizontal", dx < 0)


def read(picture: NDArray[np.uint8]) -> Reading:
    """Read a picture ``(64, 64, 3)`` uint8.

    Slight blur, noise, compression and shifts of colour or place are read through. What is between two values, such as
    a colour half-way between red and blue, is left open rather than guessed.

    Raises ``ValueError`` for another shape or type.

    >>> from denoscope.data.worlds.shapes.rendering import render
    >>> from denoscope.data.worlds.shapes.scenes import Scene, Thing
    >>> read(render(Scene("one", (Thing("red", "circle", "large", "striped", 12, 20),), 92)))
    Reading(things=(ReadThing(colour='red', shape='circle', size='large', texture='striped', x=12.0, y=20.0,
    reasons=()),), background=92, problem=None)
    >>> read(np.full((64, 64, 3), 92, dtype=np.uint8)).problem
    'no object stands out from the background'
    """
    if picture.shape != (PICTURE_SIZE, PICTURE_SIZE, 3) or picture.dtype != np.uint8:
        raise ValueError(f"a picture is (64, 64, 3) uint8, not {picture.shape} {picture.dtype}")
    image = picture.astype(np.float32)
    border = np.concatenate([image[:2].reshape(-1, 3), image[-2:].reshape(-1, 3), *image[2:-2, [0, 1, -2, -1]]])
    ground: Floats = np.median(border, axis=0).astype(np.float32)
    spread = 1.4826 * float(np.median(abs(border - ground), axis=0).max())
    if spread > _BORDER_SPREAD:
        return Reading((), None, f"the background is not plain: its grey levels spread by {spread:.0f}")
    if np.ptp(ground) > _BORDER_TINT:
        return Reading((), None, f"the background is not grey but {[round(float(level)) for level in ground]}")
    background = min(BACKGROUNDS, key=lambda level: abs(level - float(ground.mean())))
    known = background if abs(background - float(ground.mean())) <= _BACKGROUND_TOLERANCE else None

    masks, problem = _marks(image - ground)
    if problem is not None:
        return Reading((), known, problem)
    # Room around the picture for the windows of objects at its edge.
    room = _WINDOW // 2 + 4
    padded = np.pad(image - ground, ((room, room), (room, room), (0, 0)))
    things = [_read_thing(padded, np.pad(mask, room), ground, room) for mask in masks]
    if len(things) == 2:
        stand = relation(*things)
        things.sort(key=lambda thing: thing.x if stand is not None and stand[0] == "horizontal" else thing.y)
    return Reading(tuple(things), known)


def _marks(contrast: Floats) -> tuple[list[Mask], str | None]:
    """The masks of one or two objects in a picture without its background, or why there are none."""
    smooth = np.pad(contrast, ((1, 1), (1, 1), (0, 0)), mode="edge")
    smooth = smooth[:-2] + 2 * smooth[1:-1] + smooth[2:]
    smooth = (smooth[:, :-2] + 2 * smooth[:, 1:-1] + smooth[:, 2:]) / np.float32(16)
    labels, _ = ndimage.label(np.einsum("ijk,ijk->ij", smooth, smooth) > _FOREGROUND**2, structure=np.ones((3, 3)))
    masks: list[Mask] = []
    for index in np.flatnonzero(np.bincount(labels.ravel()) >= _SPECK):
        if index == 0:
            continue
        mask = labels == index
        tall, wide = (int(np.ptp(np.flatnonzero(mask.any(axis=axis)))) + 1 for axis in (1, 0))
        if max(tall, wide) <= _OBJECT_EXTENT:
            masks.append(mask)
        elif min(tall, wide) > _OBJECT_EXTENT + 8:
            return [], f"one mark is {wide} by {tall} pixels, too large for an object"
        else:
            masks.extend(_split(mask, axis=1 if wide > tall else 0))
    if not masks:
        return [], "no object stands out from the background"
    if len(masks) > 2:
        return [], f"{len(masks)} objects are seen where one or two were expected"
    return masks, None


def _split(mask: Mask, axis: int) -> list[Mask]:
    """Cut a mark in two where it is thinnest: two large triangles side by side touch at their corners."""
    profile = mask.sum(axis=1 - axis)
    seen = np.flatnonzero(profile)
    third = (seen[-1] - seen[0]) // 3
    middle = np.arange(seen[0] + third, seen[-1] - third + 1)
    thinnest = middle[profile[middle] == profile[middle].min()]
    cut = int(np.median(thinnest) + 0.5)
    before = np.arange(PICTURE_SIZE) < cut
    before = before[None, :] if axis == 1 else before[:, None]
    return [mask & before, mask & ~before]


class _Tones(NamedTuple):
    """What the inside of a mark looks like, and why some of it cannot be told."""

    colour: Floats  # (3,): what the object would have without stripes
    rows: Floats  # (window rows, 3): what each row has
    texture: str | None
    doubts: dict[Attribute, str]


def _read_thing(padded: Floats, mask: Mask, ground: Floats, room: int) -> ReadThing:
    """Read one object; ``padded`` and ``mask`` have ``room`` pixels around the picture."""
    middle_y, middle_x = _middle(np.flatnonzero(mask.any(axis=1))), _middle(np.flatnonzero(mask.any(axis=0)))
    top, left = int(middle_y) - _WINDOW // 2, int(middle_x) - _WINDOW // 2
    window = slice(top, top + _WINDOW), slice(left, left + _WINDOW)
    contrast, inside = padded[window], mask[window]
    tones = _tones(contrast + ground, inside)
    doubts = dict(tones.doubts)

    step = tones.rows - ground
    alpha = np.einsum("ijk,ik->ij", contrast, step) / np.maximum(np.einsum("ik,ik->i", step, step), 1)[:, None]
    alpha = np.clip(alpha, 0, 1) * ~_erode(~inside)  # only on the mark and the pixels that touch it

    area = float(alpha.sum())
    size = min(AREA, key=lambda name: abs(np.log(AREA[name] / area)) if area else 0.0)
    size_told = abs(area / AREA[size] - 1) <= _AREA_TOLERANCE
    if not size_told:
        doubts["size"] = f"its area of {area:.0f} square pixels is neither small nor large"

    shape, doubt, (shift_x, shift_y) = _match(alpha.astype(np.float32), size)
    if doubt is not None:
        doubts["shape"] = doubt
    if size_told:
        middle_y, middle_x = top + _WINDOW / 2 + shift_y, left + _WINDOW / 2 + shift_x

    colour = min(COLOURS, key=lambda name: _distance(tones.colour, COLOURS[name]))
    distance = _distance(tones.colour, COLOURS[colour])
    if distance > _COLOUR_TOLERANCE:
        doubts["colour"] = f"its colour is {distance:.0f} grey levels from the nearest one, {colour}"
    return ReadThing(
        colour=None if "colour" in doubts else colour,
        shape=None if "shape" in doubts else shape,
        size=None if "size" in doubts else size,
        texture=tones.texture,
        x=middle_x - room,
        y=middle_y - room,
        reasons=tuple(f"{name}: {doubts[name]}" for name in ATTRIBUTES if name in doubts),
    )


def _middle(places: NDArray[np.intp]) -> float:
    return float(places[0] + places[-1] + 1) / 2


def _tones(window: Floats, inside: Mask) -> _Tones:
    doubts: dict[Attribute, str] = {}
    core = _erode(_erode(inside, diagonal=True), diagonal=True)
    if core.sum() < _SPECK // 2:
        core = inside
    counts = core.sum(axis=1)
    rows = np.flatnonzero(counts)
    sums = np.where(core[:, :, None], window, 0).sum(axis=1)[rows]
    profile, weights = sums.sum(axis=1) / counts[rows], counts[rows]
    best_ratio, dark, residual = np.inf, np.zeros(len(window), dtype=bool), 0.0
    for phase in range(STRIPE_PERIOD):
        down = (np.arange(len(window)) - phase) % STRIPE_PERIOD >= STRIPE_PERIOD // 2
        here = down[rows]
        if here.all() or not here.any():
            continue
        low = float(np.average(profile[here], weights=weights[here]))
        high = float(np.average(profile[~here], weights=weights[~here]))
        ratio = low / max(high, 1.0)
        if ratio < best_ratio:
            fit = np.where(here, low, high)
            residual = float(np.sqrt(np.average((profile - fit) ** 2, weights=weights))) / max(high, 1.0)
            best_ratio, dark = ratio, down
    texture: str | None = "striped" if best_ratio <= _STRIPED_BELOW else "plain"
    if _STRIPED_BELOW < best_ratio < _PLAIN_ABOVE:
        doubts["texture"] = f"its dark rows have {best_ratio:.2f} of the brightness of its bright rows"
    elif residual > _ROW_RESIDUAL:
        doubts["texture"] = f"its rows differ, but not as stripes of period {STRIPE_PERIOD}"
    if best_ratio >= _PLAIN_ABOVE:
        dark = np.zeros_like(dark)
    colour: Floats = np.median(window[core & ~dark[:, None]], axis=0)
    tone: Floats = np.broadcast_to(colour, (len(window), 3))
    if dark[rows].any():
        shade: Floats = np.median(window[core & dark[:, None]], axis=0)
        tone = np.where(dark[:, None], shade, colour)
        colour = (colour + shade) / np.float32(2 * _STRIPED_MEAN)
    uneven = float(np.quantile(np.linalg.norm((window - tone[:, None])[core], axis=1), 0.75))
    if uneven > _UNEVEN:
        doubts["colour"] = doubts["texture"] = f"its colour varies by {uneven:.0f} grey levels inside"
    return _Tones(colour, tone, None if "texture" in doubts else texture, doubts)


def _match(alpha: Floats, size: str) -> tuple[str, str | None, tuple[float, float]]:
    """The shape that overlaps a coverage best, why it may not be it, and the place (x, y) from the window's middle."""
    bank, areas = _bank(size)
    common = np.minimum(alpha, bank).sum(axis=(-2, -1))
    overlaps = common / (alpha.sum() + areas - common)
    best = overlaps.max(axis=1)
    first, second = np.argsort(-best[: len(SHAPES)])[:2]
    _, y, x = np.unravel_index(overlaps[first].argmax(), (len(_BLURS), len(_SHIFTS), len(_SHIFTS)))
    doubt = None
    if best[first] < _OVERLAP:
        doubt = f"it overlaps the nearest shape, {SHAPES[first]}, by only {best[first]:.2f}"
    elif best[first] - best[second] < _OVERLAP_MARGIN:
        doubt = f"it is between {SHAPES[first]} and {SHAPES[second]}"
    elif best.max() - best[first] > _BETWEEN_MARGIN:
        one, other = _BETWEEN[(int(best.argmax()) - len(SHAPES)) // 2]
        doubt = f"it is between {one} and {other}"
    return SHAPES[first], doubt, (_SHIFTS[x], _SHIFTS[y])


@cache
def _bank(size: str) -> tuple[Floats, Floats]:
    """Masks to compare with, and their areas: every shape, then the shapes half-way between ``_BETWEEN``.

    ``(10, 50, 28, 28)`` in [0, 1] and ``(10, 50)``; the second axis is blur × shift along y × shift along x.
    """
    sharp = [coverage(shape, size) for shape in SHAPES]
    for pair in _BETWEEN:
        one, other = (coverage(shape, size) for shape in pair)
        sharp.extend([(one + other) / 2, _morph(one, other)])
    masks: list[NDArray[np.float64]] = []
    for mask in sharp:
        for blur in _BLURS:
            soft = ndimage.gaussian_filter(np.pad(mask, (_WINDOW - BOX) // 2), blur)
            masks.extend(ndimage.shift(soft, (y, x), order=1) for y in _SHIFTS for x in _SHIFTS)
    bank = np.stack(masks).reshape(len(sharp), -1, _WINDOW, _WINDOW).astype(np.float32)
    areas: Floats = bank.sum(axis=(-2, -1))
    return bank, areas


def _morph(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The coverage of the outline half-way between those of two coverages."""
    fine = 4
    edt = ndimage.distance_transform_edt
    inside = [np.kron(mask, np.ones((fine, fine))) > 0.5 for mask in (one, other)]
    heights = sum(edt(mask) - edt(~mask) for mask in inside)
    return np.asarray(heights > 0).reshape(BOX, fine, BOX, fine).mean(axis=(1, 3))


def _distance(tone: Floats, colour: tuple[int, int, int]) -> float:
    return float(np.linalg.norm(tone - np.array(colour)))


def _erode(mask: Mask, diagonal: bool = False) -> Mask:
    """The pixels whose four (or eight) neighbours, too, belong to a mask; beyond the edge counts as inside."""
    result = mask.copy()
    result[1:] &= mask[:-1]
    result[:-1] &= mask[1:]
    across = result.copy() if diagonal else mask
    result[:, 1:] &= across[:, :-1]
    result[:, :-1] &= across[:, 1:]
    return result
