"""Feature information dynamics: what a model knows of each word, when, in which layer, and how surely."""

from denoscope.information.errors import InformationError

__all__ = ["InformationError"]
