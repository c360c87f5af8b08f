"""Named protocols: how a picture becomes the numbers that a network sees. Scores compare under one name only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from denoscope.metrics.frechet import FeatureError

Protocol = Literal["tf1", "clean", "torch", "torchmetrics", "adm"]
"""``tf1``: torch-fidelity; ``clean``: clean-fid; ``torch``: pytorch-fid; ``torchmetrics`` (1.8 and later); ``adm``: as
``tf1``, with ADM's parts for the Inception score."""

PROTOCOLS: Final = get_args(Protocol)


@dataclass(frozen=True, slots=True)
class Preparation:
    """A picture's way into Inception: ``resize`` takes levels 0…255 ``(3, H, W)`` float32 to ``(3, 299, 299)``."""

    resize: Callable[[Tensor, int, int], Tensor]
    offset: float
    scale: float
    told: str

    def __call__(self, picture: Tensor, side: int = 299) -> Tensor:
        """``(3, H, W)`` uint8 to ``(3, side, side)`` float32, about −1 to 1."""
        return (self.resize(picture.float(), side, side) - self.offset) / self.scale


def preparation(protocol: Protocol) -> Preparation:
    """The preparation that a protocol stands for.

    Raises :class:`~denoscope.metrics.FeatureError` for an unknown name.

    >>> grey = torch.full((3, 32, 48), 128, dtype=torch.uint8)
    >>> {name: round(float(preparation(name)(grey).mean()), 4) for name in ("tf1", "torch")}
    {'tf1': 0.0, 'torch': 0.0039}
    """
    if protocol not in _PREPARATIONS:
        raise FeatureError(f"there is no protocol {protocol!r}; known are {', '.join(PROTOCOLS)}")
    return _PREPARATIONS[protocol]


def bilinear_from_corner(levels: Tensor, height: int, width: int) -> Tensor:
    """Bilinear between the four pixels around (i·h/H, j·w/W), as TensorFlow 1 has it: no half-pixel shift, no blur.

    ``(…, h, w)`` float to ``(…, height, width)``. Parmar et al. 2022 show what it does to scores.

    >>> bilinear_from_corner(torch.tensor([[0.0, 4.0]]), 1, 4)
    tensor([[0., 2., 4., 4.]])
    """
    for axis, size in ((-2, height), (-1, width)):
        old = levels.shape[axis]
        places = torch.arange(size, dtype=torch.float32, device=levels.device) * (old / size)
        before = places.floor().long().clamp(max=old - 1)
        after = (before + 1).clamp(max=old - 1)
        part = (places - before).to(levels.dtype)
        if axis == -2:
            part = part[:, None]
        first = levels.index_select(axis, before)
        levels = first + (levels.index_select(axis, after) - first) * part
    return levels


def bilinear(levels: Tensor, height: int, width: int) -> Tensor:
    """Bilinear between the middles of pixels, without blur when shrinking (pytorch-fid)."""
    return functional.interpolate(levels[None], (height, width), mode="bilinear", align_corners=False)[0]


def bilinear_antialiased(levels: Tensor, height: int, width: int) -> Tensor:
    """Bilinear, wide enough to cover what is shrunk away (torchmetrics)."""
    return functional.interpolate(levels[None], (height, width), mode="bilinear", align_corners=False, antialias=True)[
        0
    ]


def bicubic_antialiased(levels: Tensor, height: int, width: int) -> Tensor:
    """Pillow's bicubic of floats, cut to 0…255 and not rounded (clean-fid); equal to it within .002 levels."""
    found = functional.interpolate(levels[None], (height, width), mode="bicubic", align_corners=False, antialias=True)
    return found[0].clamp(0, 255)


_TF1: Final = Preparation(bilinear_from_corner, 128.0, 128.0, "bilinear from the corner, (x − 128)/128")
_PREPARATIONS: Final[dict[str, Preparation]] = {
    "tf1": _TF1,
    "adm": _TF1,
    "clean": Preparation(bicubic_antialiased, 128.0, 128.0, "antialiased bicubic of floats, (x − 128)/128"),
    "torch": Preparation(bilinear, 127.5, 127.5, "bilinear, 2x/255 − 1"),
    "torchmetrics": Preparation(bilinear_antialiased, 128.0, 128.0, "antialiased bilinear, (x − 128)/128"),
}
