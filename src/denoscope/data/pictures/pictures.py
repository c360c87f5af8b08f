"""A set of pictures in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from denoscope.data.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class PictureSet:
    """N pictures of one size, ``(N, C, H, W)`` uint8, with what is known of each.

    ``labels`` ``(N,)`` int64 number the ``classes``; ``captions`` are free text. ``names`` say where each came from.
    ``skipped`` holds the files that were left out and why. Takes N·C·H·W bytes.

    Raises :class:`DataError` when there are fewer than two pictures, or not as many labels, captions or names.
    """

    pictures: Tensor
    names: tuple[str, ...]
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    captions: tuple[str, ...] | None = None
    skipped: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        if self.pictures.dtype != torch.uint8 or self.pictures.dim() != 4:
            raise DataError(f"pictures must be (N, C, H, W) of uint8, not {tuple(self.pictures.shape)}")
        n = len(self.pictures)
        if n < 2:
            raise DataError(f"{n} picture{'s' * (n != 1)} can't be learnt from; at least two are needed")
        for name, found in (("names", self.names), ("labels", self.labels), ("captions", self.captions)):
            if found is not None and len(found) != n:
                raise DataError(f"{len(found)} {name} for {n} pictures")
        if self.labels is not None and not bool(((self.labels >= 0) & (self.labels < len(self.classes))).all()):
            raise DataError(f"labels must number {len(self.classes)} classes, from 0")

    def __len__(self) -> int:
        """N."""
        return len(self.pictures)


def to_model_range(pictures: Tensor) -> Tensor:
    """uint8 to float32 in [−1, 1].

    >>> to_model_range(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([-1.,  1.])
    """
    return pictures.float() / 127.5 - 1


def from_model_range(samples: Tensor) -> Tensor:
    """Floats in [−1, 1] to uint8, rounded: cutting off would lose 63 of 256 levels on the way there and back.

    Raises ``ValueError`` for what is not finite, which would turn black.

    >>> every = torch.arange(256, dtype=torch.uint8)
    >>> bool(torch.equal(from_model_range(to_model_range(every)), every))
    True
    """
    if not bool(torch.isfinite(samples).all()):
        raise ValueError("samples that are not finite can't be pictures")
    return (samples.float() * 127.5 + 127.5).round().clamp(0, 255).to(torch.uint8)
