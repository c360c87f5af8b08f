"""Plain drawings described once and drawn twice: by Pillow as a picture, and as SVG text.

Positions and sizes are in pixels of the SVG, x to the right and y down. Texts may come from anybody: in SVG they are
escaped, and characters that XML does not allow are replaced.
"""

import base64
import io
import itertools
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Point = tuple[float, float]
SCALE: Final = 2
"""Pixels of a Pillow picture for each of the SVG, so that lines and letters are smooth on fine screens."""

_DASHES: Final = {"solid": (), "dash": (7.0, 4.0), "dot": (1.5, 3.0), "dashdot": (7.0, 3.0, 1.5, 3.0)}
_NOT_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text; ``x`` is where ``anchor`` says, ``y`` the middle of its height."""

    x: float
    y: float
    text: str
    size: float = 12.0
    anchor: Literal["start", "middle", "end"] = "start"
    colour: str = "#333333"


@dataclass(frozen=True, slots=True)
class Picture:
    """Pixels ``(h, w, 3)`` uint8 stretched over a rectangle, without smoothing."""

    x: float
    y: float
    width: float
    height: float
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Line:
    """A line through two or more points."""

    points: tuple[Point, ...]
    colour: str = "#DDDDDD"
    width: float = 1.0
    dash: str = "solid"


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    radius: float
    colour: str


Item = Text | Picture | Line | Dot


@dataclass(frozen=True, slots=True)
class Drawing:
    """What to draw on white, later items over earlier ones; ``title`` is read out to those who can't see it."""

    width: int
    height: int
    title: str
    items: tuple[Item, ...]


def xml_text(text: str) -> str:
    """Any text as XML shows it literally, in elements and attributes.

    >>> xml_text('<b onload="x">&' + chr(7))
    '&lt;b onload=&quot;x&quot;&gt;&amp;�'
    """
    return escape(_NOT_IN_XML.sub("\ufffd", text), quote=True)


def to_svg(drawing: Drawing) -> str:
    """The drawing as one SVG document; pictures are embedded, nothing is loaded from elsewhere.

    >>> to_svg(Drawing(10, 10, "a & b", (Dot(5, 5, 2, "#000000"),))).splitlines()[1:3]
    ['<title>a &amp; b</title>', '<rect width="100%" height="100%" fill="#FFFFFF"/>']
    """
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawing.width}" height="{drawing.height}" '
        f'viewBox="0 0 {drawing.width} {drawing.height}" role="img" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">"
    )
    ground = '<rect width="100%" height="100%" fill="#FFFFFF"/>'
    body = [_svg_item(item) for item in drawing.items]
    return "\n".join([head, f"<title>{xml_text(drawing.title)}</title>", ground, *body, "</svg>", ""])


def _svg_item(item: Item) -> str:
    if isinstance(item, Text):
        # A shift by part of the letter's size: not all viewers know dominant-baseline.
        return (
            f'<text x="{item.x:g}" y="{item.y:g}" dy=".35em" font-size="{item.size:g}" text-anchor="{item.anchor}" '
            f'fill="{item.colour}">{xml_text(item.text)}</text>'
        )
    if isinstance(item, Picture):
        file = io.BytesIO()
        Image.fromarray(item.pixels).save(file, "PNG", optimize=True)
        address = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
        return (
            f'<image x="{item.x:g}" y="{item.y:g}" width="{item.width:g}" height="{item.height:g}" '
            f'preserveAspectRatio="none" style="image-rendering:pixelated" href="{address}"/>'
        )
    if isinstance(item, Dot):
        return f'<circle cx="{item.x:.2f}" cy="{item.y:.2f}" r="{item.radius:g}" fill="{item.colour}"/>'
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in item.points)
    dash = f' stroke-dasharray="{" ".join(f"{each:g}" for each in _DASHES[item.dash])}"' if _DASHES[item.dash] else ""
    return f'<polyline points="{points}" fill="none" stroke="{item.colour}" stroke-width="{item.width:g}"{dash}/>'


def to_image(drawing: Drawing) -> Image.Image:
    """The drawing as an RGB picture, :data:`SCALE` times the drawing's size.

    Texts are set in Pillow's own letters, which are those of ASCII: accents are dropped, and letters of other scripts
    come out as boxes. The SVG has them all.

    >>> to_image(Drawing(10, 6, "", (Dot(5, 3, 2, "#FF0000"),))).size
    (20, 12)
    """
    image = Image.new("RGB", (drawing.width * SCALE, drawing.height * SCALE), "#FFFFFF")
    pen = ImageDraw.Draw(image)
    for item in drawing.items:
        if isinstance(item, Text):
            font = ImageFont.load_default(item.size * SCALE)
            place = {"start": "lm", "middle": "mm", "end": "rm"}[item.anchor]
            pen.text(
                (item.x * SCALE, item.y * SCALE),
                _in_plain_letters(item.text),
                fill=item.colour,
                font=font,
                anchor=place,
            )
        elif isinstance(item, Picture):
            size = (round(item.width * SCALE), round(item.height * SCALE))
            image.paste(
                Image.fromarray(item.pixels).resize(size, Image.Resampling.NEAREST),
                (round(item.x * SCALE), round(item.y * SCALE)),
            )
        elif isinstance(item, Dot):
            at = [(item.x - item.radius) * SCALE, (item.y - item.radius) * SCALE]
            pen.ellipse([*at, at[0] + 2 * item.radius * SCALE, at[1] + 2 * item.radius * SCALE], fill=item.colour)
        else:
            width = max(1, round(item.width * SCALE))
            for part in dashed(item.points, _DASHES[item.dash]):
                pen.line([(x * SCALE, y * SCALE) for x, y in part], fill=item.colour, width=width, joint="curve")
    return image


def _in_plain_letters(text: str) -> str:
    text = unicodedata.normalize("NFKD", text.replace("−", "-").replace("∞", "inf"))
    return " ".join("".join(character for character in text if not unicodedata.combining(character)).split())


def dashed(points: Sequence[Point], pattern: Sequence[float]) -> Iterator[list[Point]]:
    """The drawn parts of a line through ``points``; ``pattern`` is lengths drawn and left out in turn.

    >>> list(dashed([(0, 0), (5, 0)], (2, 1)))
    [[(0, 0), (2.0, 0.0)], [(3.0, 0.0), (5.0, 0.0)]]
    """
    if not pattern:
        yield list(points)
        return
    index, left = 0, pattern[0]
    part = [points[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        length, done = math.hypot(x1 - x0, y1 - y0), 0.0
        while length - done >= left:
            done += left
            here = (x0 + (x1 - x0) * done / length, y0 + (y1 - y0) * done / length)
            if index % 2 == 0:
                yield [*part, here]
            index, part = index + 1, [here]
            left = pattern[index % len(pattern)]
        left -= length - done
        if done < length and index % 2 == 0:
            part.append((x1, y1))
    if index % 2 == 0 and len(part) > 1:
        yield part
