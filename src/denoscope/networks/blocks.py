"""The convolutional bricks: residual block, down- and upsampling. Of maps, or with ``dims`` 1 of sequences."""

from collections.abc import Mapping
from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Dims = Literal[1, 2]
"""How many dimensions a sample has, beside its channels: a sequence has one, a picture two."""

CONVOLUTIONS: Final[Mapping[Dims, type[nn.Conv1d] | type[nn.Conv2d]]] = {1: nn.Conv1d, 2: nn.Conv2d}


class ResnetBlock(nn.Module):
    """x + conv(SiLU(norm(conv(SiLU(norm(x))) + time))): ``(B, in, H, W)`` to ``(B, out, H, W)``.

    The second convolution starts at zero, so a new network is the identity along its skips (Ho et al. 2020,
    Goyal et al. 2017), which lets deep stacks train from the first step.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        time_width: int,
        groups: int,
        eps: float,
        dropout: float,
        dims: Dims = 2,
    ) -> None:
        """``groups`` must divide both numbers of channels."""
        super().__init__()
        convolution = CONVOLUTIONS[dims]
        self.dims = dims
        self.norm1 = nn.GroupNorm(groups, in_channels, eps)
        self.conv1 = convolution(in_channels, out_channels, 3, padding=1)
        self.time_emb_proj = nn.Linear(time_width, out_channels)
        self.norm2 = nn.GroupNorm(groups, out_channels, eps)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = convolution(out_channels, out_channels, 3, padding=1)
        pointwise = nn.Conv1d if dims == 1 else Pointwise
        self.conv_shortcut = None if in_channels == out_channels else pointwise(in_channels, out_channels, 1)
        zero(self.conv2)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """``x`` is ``(B, in, H, W)``; ``time`` is ``(B, time_width)``, already through its SiLU."""
        hidden: Tensor = self.conv1(functional.silu(self.norm1(x)))
        # In place, here and below: no convolution needs its own output to be differentiated.
        hidden += self.time_emb_proj(time)[(..., *(None,) * self.dims)]
        hidden = self.conv2(self.dropout(functional.silu(self.norm2(hidden))))
        skip: Tensor = x if self.conv_shortcut is None else self.conv_shortcut(x)
        hidden += skip
        return hidden


class Pointwise(nn.Conv2d):
    """A 1×1 convolution; of a map with channels innermost it is a matrix product, and taken as one.

    >>> layer, x = Pointwise(2, 3, 1), torch.randn(1, 2, 4, 4)
    >>> torch.allclose(layer(x), layer(x.contiguous(memory_format=torch.channels_last)), atol=1e-6)
    True
    """

    def forward(self, x: Tensor) -> Tensor:
        """``(B, in, H, W)`` to ``(B, out, H, W)``."""
        if not x.is_contiguous(memory_format=torch.channels_last):
            return super().forward(x)
        return functional.linear(x.permute(0, 2, 3, 1), self.weight[..., 0, 0], self.bias).permute(0, 3, 1, 2)


class Downsample(nn.Module):
    """A convolution of stride 2: ``(B, C, H, W)`` to ``(B, C, ⌈H/2⌉, ⌈W/2⌉)``."""

    def __init__(self, channels: int, dims: Dims = 2) -> None:
        """As many channels come out as go in."""
        super().__init__()
        self.conv = CONVOLUTIONS[dims](channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Halve the size of ``x``, rounding up."""
        halved: Tensor = self.conv(x)
        return halved


class Upsample(nn.Module):
    """Nearest neighbour to a given size, then a convolution: ``(B, C, h, w)`` to ``(B, C, H, W)``.

    The size is that of the skip connection to come, so odd sizes need no padding.
    """

    def __init__(self, channels: int, dims: Dims = 2) -> None:
        """As many channels come out as go in."""
        super().__init__()
        self.conv = CONVOLUTIONS[dims](channels, channels, 3, padding=1)

    def forward(self, x: Tensor, size: tuple[int, ...]) -> Tensor:
        """Enlarge ``x`` to ``size``, height and width, or length."""
        # Measured on the CPU alone; elsewhere libraries have their own ways.
        if x.device.type == "cpu" and len(size) == 2 and tuple(size) == (2 * x.shape[2], 2 * x.shape[3]):
            return doubled(x, self.conv.weight, self.conv.bias)
        enlarged: Tensor = self.conv(functional.interpolate(x, size=size, mode="nearest"))
        return enlarged


def doubled(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a 3×3 convolution makes of ``x`` doubled by nearest neighbour: ``(B, in, H, W)`` to ``(B, out, 2H, 2W)``.

    A place of the doubled map has but 2×2 different ones around it, so 4 products do where 9 were. Written as one
    transposed convolution of stride 2, whose 4×4 kernel is the 3×3 one, turned, spread over squares of 2×2.

    >>> doubled(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 3), None)[0, 0, 0].tolist()
    [4.0, 6.0, 6.0, 4.0]
    """
    # Row 2 - d of the turned kernel adds to rows 2 - d and 3 - d of the spread one.
    spread = weight.new_tensor([[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]])
    kernel = torch.einsum("pi,qj,ocij->copq", spread, spread, weight)
    return functional.conv_transpose2d(x, kernel, bias, stride=2, padding=1)


def zero(layer: nn.Conv1d | nn.Conv2d | nn.Linear) -> None:
    """Start a layer at zero, weight and bias."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
