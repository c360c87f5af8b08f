"""One level of the U-Net on its way down, at the bottom, and on its way up."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from denoscope.networks.attention import SpatialTransformer
from denoscope.networks.blocks import Downsample, ResnetBlock, Upsample


@dataclass(frozen=True, slots=True)
class Bricks:
    """Makes the bricks of one level; ``heads`` is the number of attention heads there."""

    time_width: int
    context_channels: int
    heads: int
    groups: int
    eps: float
    dropout: float
    linear: bool

    def resnet(self, in_channels: int, out_channels: int) -> ResnetBlock:
        """A residual block."""
        return ResnetBlock(in_channels, out_channels, self.time_width, self.groups, self.eps, self.dropout)

    def attention(self, channels: int) -> SpatialTransformer:
        """A transformer on the map."""
        return SpatialTransformer(channels, self.context_channels, self.heads, self.groups, self.linear)


class DownBlock(nn.Module):
    """``layers`` residual blocks, each followed by attention if ``attends``, then halving if ``halves``."""

    def __init__(
        self, bricks: Bricks, in_channels: int, channels: int, layers: int, *, attends: bool, halves: bool
    ) -> None:
        """``in_channels`` come from the level above."""
        super().__init__()
        inputs = [in_channels] + [channels] * (layers - 1)
        self.resnets = nn.ModuleList([bricks.resnet(count, channels) for count in inputs])
        self.attentions = nn.ModuleList([bricks.attention(channels) for _ in inputs]) if attends else None
        self.downsamplers = nn.ModuleList([Downsample(channels)]) if halves else None

    def forward(self, x: Tensor, time: Tensor, context: Tensor) -> list[Tensor]:
        """The maps ``(B, C, H, W)`` after each layer, which are the skips; the last one goes on down."""
        skips: list[Tensor] = []
        for index, resnet in enumerate(self.resnets):
            x = resnet(x, time)
            if self.attentions is not None:
                x = self.attentions[index](x, context)
            skips.append(x)
        if self.downsamplers is not None:
            skips.append(self.downsamplers[0](x))
        return skips


class MidBlock(nn.Module):
    """Residual block, attention, residual block at the coarsest size."""

    def __init__(self, bricks: Bricks, channels: int) -> None:
        """As many channels come out as go in."""
        super().__init__()
        self.resnets = nn.ModuleList([bricks.resnet(channels, channels) for _ in range(2)])
        self.attentions = nn.ModuleList([bricks.attention(channels)])

    def forward(self, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        """``(B, C, H, W)`` to the same."""
        x = self.attentions[0](self.resnets[0](x, time), context)
        out: Tensor = self.resnets[1](x, time)
        return out


class UpBlock(nn.Module):
    """One residual block a skip, each followed by attention if ``attends``, then enlarging if ``enlarges``.

    ``skip_channels`` are the channels of the skips in the order in which they are taken.
    """

    def __init__(
        self,
        bricks: Bricks,
        in_channels: int,
        channels: int,
        skip_channels: Sequence[int],
        *,
        attends: bool,
        enlarges: bool,
    ) -> None:
        """``in_channels`` come from the level below."""
        super().__init__()
        inputs = [in_channels] + [channels] * (len(skip_channels) - 1)
        self.resnets = nn.ModuleList(
            [bricks.resnet(count + skip, channels) for count, skip in zip(inputs, skip_channels, strict=True)]
        )
        self.attentions = nn.ModuleList([bricks.attention(channels) for _ in inputs]) if attends else None
        self.upsamplers = nn.ModuleList([Upsample(channels)]) if enlarges else None

    def forward(self, x: Tensor, skips: list[Tensor], time: Tensor, context: Tensor) -> Tensor:
        """Take this block's skips off the end of ``skips``; enlarge to the size of the one after them."""
        for index, resnet in enumerate(self.resnets):
            x = resnet(torch.cat([x, skips.pop()], dim=1), time)
            if self.attentions is not None:
                x = self.attentions[index](x, context)
        if self.upsamplers is not None:
            height, width = skips[-1].shape[2:]
            x = self.upsamplers[0](x, (height, width))
        return x
