"""The convolutional bricks: residual block, down- and upsampling. Of maps, or with ``dims`` 1 of sequences."""

from collections.abc import Mapping
from typing import Final, Literal

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
        self.conv_shortcut = None if in_channels == out_channels else convolution(in_channels, out_channels, 1)
        zero(self.conv2)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """``x`` is ``(B, in, H, W)``; ``time`` is ``(B, time_width)``, already through its SiLU."""
        hidden: Tensor = self.conv1(functional.silu(self.norm1(x)))
        hidden = hidden + self.time_emb_proj(time)[(..., *(None,) * self.dims)]
        hidden = self.conv2(self.dropout(functional.silu(self.norm2(hidden))))
        skip: Tensor = x if self.conv_shortcut is None else self.conv_shortcut(x)
        return skip + hidden


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
        enlarged: Tensor = self.conv(functional.interpolate(x, size=size, mode="nearest"))
        return enlarged


def zero(layer: nn.Conv1d | nn.Conv2d | nn.Linear) -> None:
    """Start a layer at zero, weight and bias."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
