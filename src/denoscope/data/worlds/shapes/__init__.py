"""The shapes world: captioned 64×64 pictures of one or two coloured shapes, every one of them known."""

from denoscope.data.worlds.shapes.captions import CaptionError, CaptionStyle, Meaning, Mention, describe, parse, word
from denoscope.data.worlds.shapes.rendering import render
from denoscope.data.worlds.shapes.scenes import Scene, Thing, sample_scene

__all__ = [
    "CaptionError",
    "CaptionStyle",
    "Meaning",
    "Mention",
    "Scene",
    "Thing",
    "describe",
    "parse",
    "render",
    "sample_scene",
    "word",
]
