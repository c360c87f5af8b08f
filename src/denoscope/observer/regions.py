"""Parts of a picture, and the places of a map that lie in them."""

import torch
from torch import Tensor

from denoscope.observer.errors import ObserveError

Region = tuple[float, float, float, float]
"""Left, top, right and bottom of a part of the picture, as shares of its width and height."""


def checked(region: Region | None) -> Region | None:
    """The region itself. Raises :class:`ObserveError` when it is none."""
    if region is not None and not (0 <= region[0] < region[2] <= 1 and 0 <= region[1] < region[3] <= 1):
        raise ObserveError(f"the region {region} is none: give left, top, right, bottom from 0 to 1, in that order")
    return region


def inside(region: Region | None, height: int, width: int) -> Tensor:
    """Places of a map whose middle lies in the region, at least the one at its own middle: ``(height, width)`` bool.

    >>> inside((0.5, 0.0, 1.0, 0.5), 2, 4).tolist()
    [[False, False, True, True], [False, False, False, False]]
    """
    there = torch.zeros(height, width, dtype=torch.bool)
    left, top, right, bottom = region or (0.0, 0.0, 1.0, 1.0)
    y, x = (torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width
    there |= ((y >= top) & (y < bottom))[:, None] & ((x >= left) & (x < right))
    there[min(int((top + bottom) / 2 * height), height - 1), min(int((left + right) / 2 * width), width - 1)] = True
    return there
