"""Maps by which features are weighted."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from denoscope.observer.errors import ObserveError


def checked_weights(weights: Mapping[str, ArrayLike] | None) -> dict[str, NDArray[np.float64]]:
    """The maps as float64 ``(y, x)``, by name; none for ``None``.

    Raises :class:`ObserveError` for one that is not two-dimensional, finite, at least 0 and somewhere above it.
    """
    found = {name: np.array(value, dtype=np.float64) for name, value in (weights or {}).items()}
    for name, value in found.items():
        if value.ndim != 2 or not np.isfinite(value).all() or (value < 0).any() or not value.sum() > 0:
            raise ObserveError(
                f"the feature weight {name!r} is no map: give an array (y, x) of finite numbers, none below 0 and some "
                "above"
            )
    return found


def by_area(weights: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
    """A map on another grid of the same picture, summing to 1: each place gets the weight of the area it covers.

    >>> by_area(np.array([[3.0, 1.0]]), (2, 1)).tolist()
    [[0.5], [0.5]]
    >>> by_area(np.array([[1.0, 0.0, 2.0]]), (1, 2)).round(3).tolist()
    [[0.333, 0.667]]
    """
    rows, columns = (_shares(new, old) for new, old in zip(size, weights.shape, strict=True))
    spread: NDArray[np.float64] = rows @ weights @ columns.T
    return spread / spread.sum()


def _shares(new: int, old: int) -> NDArray[np.float64]:
    """How much of each of ``old`` equal parts of a line lies in each of ``new``: ``(new, old)``."""
    starts, others = np.arange(new)[:, None] / new, np.arange(old)[None] / old
    overlap: NDArray[np.float64] = np.minimum(starts + 1 / new, others + 1 / old) - np.maximum(starts, others)
    return overlap.clip(0) * old
