"""A set of sounds in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from denoscope.data.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class SoundSet:
    """N sounds of one length, ``waves`` ``(N, samples)`` float32 in [−1, 1], with what is known of each.

    ``labels`` ``(N,)`` int64 number the ``classes``. ``names`` say where each came from; ``skipped`` holds the files
    that were left out and why.

    Raises :class:`DataError` when there are fewer than two sounds, not as many labels or names, or waves aren't finite.
    """

    waves: Tensor
    sample_rate: int
    names: tuple[str, ...]
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        if self.waves.dtype != torch.float32 or self.waves.dim() != 2:
            raise DataError(f"waves must be (N, samples) of float32, not {tuple(self.waves.shape)}")
        n = len(self.waves)
        if n < 2:
            raise DataError(f"{n} sound{'s' * (n != 1)} can't be learnt from; at least two are needed")
        if not bool(torch.isfinite(self.waves).all()):
            raise DataError("waves must be finite")
        for name, found in (("names", self.names), ("labels", self.labels)):
            if found is not None and len(found) != n:
                raise DataError(f"{len(found)} {name} for {n} sounds")
        if self.labels is not None and not bool(((self.labels >= 0) & (self.labels < len(self.classes))).all()):
            raise DataError(f"labels must number {len(self.classes)} classes, from 0")

    def __len__(self) -> int:
        """N."""
        return len(self.waves)
