"""Estimators by name."""

from collections.abc import Callable
from typing import Final

from denoscope.information.errors import InformationError
from denoscope.information.estimators.probe import Estimate, probe

Estimator = Callable[..., Estimate]

_KNOWN: Final[dict[str, Estimator]] = {"probe": probe}


def estimator_named(name: str) -> Estimator:
    """An estimator of the command line. Raises :class:`InformationError` for a name that is none, naming those."""
    if name not in _KNOWN:
        raise InformationError(f"there is no estimator {name!r}: {', '.join(_KNOWN)}")
    return _KNOWN[name]
