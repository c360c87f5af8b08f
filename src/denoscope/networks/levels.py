"""One level of the U-Net on its way down, at the bottom, and on its way up."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from denoscope.networks.attention import MapAttention, SpatialTransformer
from denoscope.networks.blocks import CONVOLUTIONS, Dims, Downsample, ResnetBlock, Upsample, zero
from denoscope.networks.embeddings import TimestepEmbedding, sinusoidal_embedding


@dataclass(frozen=True, slots=True)
class Bricks:
    """Makes the bricks of one level; ``heads`` is the number of attention heads there.

    Without ``context_channels`` there are no words, and attention is between places alone. With ``dims`` 1 the bricks
    are those of sequences ``(B, C, L)``, which know no words.
    """

    time_width: int
    context_channels: int | None
    heads: int
    groups: int
    eps: float
    dropout: float
    linear: bool = False
    dims: Dims = 2

    def resnet(self, in_channels: int, out_channels: int) -> ResnetBlock:
        """A residual block."""
        return ResnetBlock(in_channels, out_channels, self.time_width, self.groups, self.eps, self.dropout, self.dims)

    def attention(self, channels: int) -> SpatialTransformer | MapAttention:
        """A transformer on the map, or attention between its places."""
        if self.context_channels is None:
            return MapAttention(channels, self.heads, self.groups, self.eps)
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
        self.downsamplers = nn.ModuleList([Downsample(channels, bricks.dims)]) if halves else None

    def forward(self, x: Tensor, time: Tensor, context: Tensor | None) -> list[Tensor]:
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

    def __init__(self, bricks: Bricks, channels: int, *, attends: bool = True) -> None:
        """As many channels come out as go in."""
        super().__init__()
        self.resnets = nn.ModuleList([bricks.resnet(channels, channels) for _ in range(2)])
        self.attentions = nn.ModuleList([bricks.attention(channels)] if attends else [])

    def forward(self, x: Tensor, time: Tensor, context: Tensor | None) -> Tensor:
        """``(B, C, H, W)`` to the same."""
        x = self.resnets[0](x, time)
        for attention in self.attentions:
            x = attention(x, context)
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
        self.upsamplers = nn.ModuleList([Upsample(channels, bricks.dims)]) if enlarges else None

    def forward(self, x: Tensor, skips: list[Tensor], time: Tensor, context: Tensor | None) -> Tensor:
        """Take this block's skips off the end of ``skips``; enlarge to the size of the one after them."""
        for index, resnet in enumerate(self.resnets):
            x = resnet(torch.cat([x, skips.pop()], dim=1), time)
            if self.attentions is not None:
                x = self.attentions[index](x, context)
        if self.upsamplers is not None:
            x = self.upsamplers[0](x, skips[-1].shape[2:])
        return x


class Levels(nn.Module):
    """The U itself: down, middle, up, with skips between both sides. Finest level first.

    ``downs`` and ``ups`` say of each level whether its blocks attend, on the way down and on the way up.
    """

    conv_in: nn.Conv1d | nn.Conv2d
    time_embedding: TimestepEmbedding
    down_blocks: nn.ModuleList
    mid_block: MidBlock
    up_blocks: nn.ModuleList
    conv_norm_out: nn.GroupNorm
    conv_out: nn.Conv1d | nn.Conv2d
    first: int
    """Channels of the finest level, which are the width of sinusoidal embeddings."""

    def begin(self, in_channels: int, channels: int, dims: Dims = 2) -> int:
        """Make the first convolution to the finest level's ``channels`` and the time embedding; returns its width."""
        self.first = channels
        self.conv_in = CONVOLUTIONS[dims](in_channels, channels, 3, padding=1)
        self.time_embedding = TimestepEmbedding(channels, 4 * channels)
        return 4 * channels

    def end(self, out_channels: int, groups: int, eps: float, dims: Dims = 2) -> None:
        """Make the last norm and convolution, which starts at zero: a new network returns zero."""
        self.conv_norm_out = nn.GroupNorm(groups, self.first, eps)
        last = CONVOLUTIONS[dims](self.first, out_channels, 3, padding=1)
        zero(last)
        self.conv_out = last

    def sinusoids(self, numbers: Tensor | float, sample: Tensor) -> Tensor:
        """One number for all samples ``(B, …)`` or one each, as sines and cosines ``(B, first)`` of their dtype."""
        each = torch.as_tensor(numbers, device=sample.device).reshape(-1).expand(len(sample))
        return sinusoidal_embedding(each, self.first).to(sample.dtype)

    def last(self, x: Tensor) -> Tensor:
        """The finest level's map to the prediction."""
        out: Tensor = self.conv_out(functional.silu(self.conv_norm_out(x)))
        return out

    def build(
        self,
        bricks: Sequence[Bricks],
        channels: Sequence[int],
        layers: int,
        downs: Sequence[bool],
        ups: Sequence[bool],
        *,
        middle: bool = True,
    ) -> None:
        """Draw the blocks as modules of this one, so that their keys are diffusers'."""
        last = len(channels) - 1
        self.down_blocks = nn.ModuleList()
        skip_channels = [channels[0]]
        for level, attends in enumerate(downs):
            into, halves = skip_channels[-1], level < last
            block = DownBlock(bricks[level], into, channels[level], layers, attends=attends, halves=halves)
            self.down_blocks.append(block)
            skip_channels += [channels[level]] * (layers + halves)
        self.mid_block = MidBlock(bricks[last], channels[last], attends=middle)
        self.up_blocks = nn.ModuleList()
        below = channels[last]
        for level in range(last, -1, -1):
            taken = [skip_channels.pop() for _ in range(layers + 1)]
            up = UpBlock(bricks[level], below, channels[level], taken, attends=ups[level], enlarges=level > 0)
            self.up_blocks.append(up)
            below = channels[level]

    def through(self, x: Tensor, time: Tensor, context: Tensor | None) -> Tensor:
        """``(B, C, H, W)`` of the finest level's channels, down and up again: the same shape."""
        skips: list[Tensor] = [x]
        for block in self.down_blocks:
            skips += block(skips[-1], time, context)
        x = self.mid_block(skips[-1], time, context)
        for block in self.up_blocks:
            x = block(x, skips, time, context)
        return x
