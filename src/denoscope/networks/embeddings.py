"""How a network is told the noise level."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def sinusoidal_embedding(timesteps: Tensor, channels: int, freq_shift: int = 0) -> Tensor:
    """Cosines, then sines of the timesteps at frequencies from 1 to 1/10000: ``(B, channels)`` float32.

    ``timesteps`` is ``(B,)`` of any dtype, in training steps, fractions allowed; ``channels`` must be even.
    Ho et al. 2020 (after Vaswani et al. 2017), in diffusers' order ``flip_sin_to_cos=True``. The last frequency is
    1/10000 with ``freq_shift`` 1, and the one before it with 0.

    >>> sinusoidal_embedding(torch.tensor([0.0]), 4).tolist()
    [[1.0, 1.0, 0.0, 0.0]]
    """
    half = channels // 2
    # Multiplied first, divided then, as diffusers does it: another order differs in the last bit, times the timestep.
    exponents = torch.arange(half, dtype=torch.float32, device=timesteps.device) * -math.log(10000)
    exponents = exponents / (half - freq_shift)
    angles = timesteps[:, None].float() * exponents.exp()
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def grid_embedding(rows: int, columns: int, base: int, channels: int, device: torch.device | str = "cpu") -> Tensor:
    """Where each patch of a grid lies, row by row: ``(rows·columns, channels)`` float32.

    A half of the channels tells the column, the other the row, each as sines, then cosines at frequencies from 1 to
    1/10000 (the last one left out); ``channels`` must be a multiple of 4. Both are measured so that any grid is as wide
    and as high as one of ``base`` by ``base`` patches. Dosovitskiy et al. 2021, as in diffusers.

    >>> (100 * grid_embedding(1, 2, 2, 4)).round().tolist()
    [[0.0, 100.0, 0.0, 100.0], [84.0, 54.0, 0.0, 100.0]]
    """
    # Rounded from float64, as diffusers does it, where the device has it.
    dtype = torch.float32 if torch.device(device).type == "mps" else torch.float64
    quarter = channels // 4
    frequencies = 10000 ** (-torch.arange(quarter, dtype=dtype, device=device) / quarter)

    def along(count: int) -> Tensor:
        places = torch.arange(count, dtype=torch.float32, device=device) / (count / base)
        angles = places.to(dtype)[:, None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=1).float()

    across, down = along(columns), along(rows)
    return torch.cat([across.repeat(rows, 1), down.repeat_interleave(columns, 0)], dim=1)


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
