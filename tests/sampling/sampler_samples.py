"""The sample and the made-up network of diffusers' public scheduler tests."""

from collections.abc import Sequence

import torch
from torch import Tensor

from denoscope.sampling import NoiseSource


def golden_sample() -> Tensor:
    """Four samples ``(4, 3, 8, 8)`` of evenly rising numbers, float32."""
    return (torch.arange(768) / 768).reshape(3, 8, 8, 4).permute(3, 0, 1, 2).contiguous()


def golden_network(z: Tensor, timestep: Tensor) -> Tensor:
    """z·t/(t + 1)."""
    t = timestep.reshape(-1, *[1] * (z.dim() - 1)).to(z.dtype)
    return z * t / (t + 1)


class SharedNoise(NoiseSource):
    """One stream for the whole batch, as diffusers draws it."""

    def __init__(self, seed: int, seeds: Sequence[int]) -> None:
        super().__init__(seeds)
        self.shared = torch.Generator().manual_seed(seed)

    def draw(self, like: Tensor) -> Tensor:
        """Noise of the shape and dtype of ``like``, as diffusers draws it."""
        return torch.randn(like.shape, generator=self.shared, dtype=like.dtype)
