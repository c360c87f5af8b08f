"""Build, measure and look inside diffusion models."""

from importlib import import_module
from typing import TYPE_CHECKING

from denoscope._version import __version__

if TYPE_CHECKING:
    from denoscope.observer import ObserveError, observe
    from denoscope.pipelines import ModelError, load

__all__ = ["ModelError", "ObserveError", "__version__", "load", "observe"]

_ROOMS = {
    "ModelError": "denoscope.pipelines",
    "ObserveError": "denoscope.observer",
    "load": "denoscope.pipelines",
    "observe": "denoscope.observer",
}


def __getattr__(name: str) -> object:
    """Import on first use: torch and diffusers take seconds, and ``denoscope --help`` needs neither."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'denoscope' has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)
