"""How a network is told the noise level."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def sinusoidal_embedding(timesteps: Tensor, channels: int) -> Tensor:
    """Cosines, then sines of the timesteps at frequencies from 1 to 1/10000: ``(B, channels)`` float32.

    ``timesteps`` is ``(B,)`` of any dtype, in training steps, fractions allowed; ``channels`` must be even.
    Ho et al. 2020 (after Vaswani et al. 2017), in diffusers' order ``flip_sin_to_cos=True, freq_shift=0``.

    >>> sinusoidal_embedding(torch.tensor([0.0]), 4).tolist()
    [[1.0, 1.0, 0.0, 0.0]]
    """
    half = channels // 2
    exponents = torch.arange(half, dtype=torch.float32, device=timesteps.device) * (-math.log(10000) / half)
    angles = timesteps[:, None].float() * exponents.exp()
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class TimestepEmbedding(nn.Module):
    """Two linear layers with a SiLU between them: ``(B, channels)`` to ``(B, width)``."""

    def __init__(self, channels: int, width: int) -> None:
        """``channels`` sinusoids go in, ``width`` channels come out."""
        super().__init__()
        self.linear_1 = nn.Linear(channels, width)
        self.linear_2 = nn.Linear(width, width)

    def forward(self, sinusoids: Tensor) -> Tensor:
        """Map sinusoids ``(B, channels)`` to the embedding ``(B, width)``."""
        embedding: Tensor = self.linear_2(functional.silu(self.linear_1(sinusoids)))
        return embedding
