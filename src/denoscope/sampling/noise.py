"""Noise that belongs to its sample: the same seed, the same noise, in any batch and on any device."""

from collections.abc import Sequence

import torch
from torch import Tensor


class NoiseSource:
    """One stream of standard normal noise for each sample, drawn on the CPU in float32 and moved where it is needed.

    >>> alone, together = NoiseSource([7]), NoiseSource([3, 7])
    >>> like = torch.zeros(1, 2)
    >>> bool(torch.equal(alone.draw(like)[0], together.draw(like.expand(2, 2))[1]))
    True
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.generators)

    def draw(self, like: Tensor) -> Tensor:
        """Noise of the shape ``(B, …)``, dtype and device of ``like``.

        Raises ``ValueError`` when there is not one sample for each stream.
        """
        if len(like) != len(self):
            raise ValueError(f"{len(self)} streams of noise for {len(like)} samples")
        drawn = [torch.randn(like.shape[1:], generator=generator) for generator in self.generators]
        return torch.stack(drawn).to(like)
