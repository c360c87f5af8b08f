"""Attention between the places of a map, and from the places to the words."""

from torch import Tensor, nn
from torch.nn import functional

from denoscope.networks.blocks import zero

_TRANSFORMER_GROUP_NORM_EPS = 1e-6
"""Not the config's ``norm_eps``: diffusers fixes it in its transformer."""


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017) of N places to M places or words."""

    def __init__(self, channels: int, context_channels: int, heads: int, *, bias: bool = False) -> None:
        """``heads`` must divide ``channels``; ``bias``: of queries, keys and values."""
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(channels, channels, bias=bias)
        self.to_k = nn.Linear(context_channels, channels, bias=bias)
        self.to_v = nn.Linear(context_channels, channels, bias=bias)
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])  # a list because diffusers' key is to_out.0

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Let every row of ``x``, ``(B, N, channels)``, read ``context``, ``(B, M, context_channels)``."""
        query, key, value = (
            rows.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for rows in (self.to_q(x), self.to_k(context), self.to_v(context))
        )
        read = functional.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.to_out[0](read.transpose(1, 2).flatten(2))
        return out


class GEGLU(nn.Module):
    """A linear layer gated by the GELU of another (Shazeer 2020): ``(…, channels)`` to ``(…, width)``."""

    def __init__(self, channels: int, width: int) -> None:
        """``width`` channels come out."""
        super().__init__()
        self.proj = nn.Linear(channels, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Both layers at once, then the gate."""
        values: Tensor
        gate: Tensor
        values, gate = self.proj(x).chunk(2, dim=-1)
        return values * functional.gelu(gate)


class FeedForward(nn.Module):
    """GEGLU of four times the width, then a linear layer: ``(…, channels)`` to the same."""

    def __init__(self, channels: int) -> None:
        """As many channels come out as go in."""
        super().__init__()
        # The middle place is diffusers' dropout, kept so that the last layer is net.2.
        self.net = nn.Sequential(GEGLU(channels, 4 * channels), nn.Identity(), nn.Linear(4 * channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Each row on its own."""
        out: Tensor = self.net(x)
        return out


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention, feed-forward, each on a normed copy and added back."""

    def __init__(self, channels: int, context_channels: int, heads: int) -> None:
        """``heads`` must divide ``channels``."""
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attn1 = Attention(channels, channels, heads)
        self.norm2 = nn.LayerNorm(channels)
        self.attn2 = Attention(channels, context_channels, heads)
        self.norm3 = nn.LayerNorm(channels)
        self.ff = FeedForward(channels)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """``x`` is ``(B, N, channels)``; ``context`` is ``(B, M, context_channels)``."""
        normed = self.norm1(x)
        x = x + self.attn1(normed, normed)
        x = x + self.attn2(self.norm2(x), context)
        fed: Tensor = self.ff(self.norm3(x))
        return x + fed


class SpatialTransformer(nn.Module):
    """A transformer block on the places of a map (Rombach et al. 2022): ``(B, C, H, W)`` to the same.

    The projection out starts at zero, so a new network starts without attention.
    """

    def __init__(self, channels: int, context_channels: int, heads: int, groups: int, linear: bool) -> None:
        """``heads`` and ``groups`` must divide ``channels``; ``linear``: project by linear layers."""
        super().__init__()
        self.linear = linear
        self.norm = nn.GroupNorm(groups, channels, _TRANSFORMER_GROUP_NORM_EPS)
        # Same mathematics, but the weights of published models have one shape or the other.
        self.proj_in = nn.Linear(channels, channels) if linear else nn.Conv2d(channels, channels, 1)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(channels, context_channels, heads)])
        self.proj_out = nn.Linear(channels, channels) if linear else nn.Conv2d(channels, channels, 1)
        zero(self.proj_out)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """``x`` is ``(B, C, H, W)``; ``context`` is ``(B, M, context_channels)``."""
        hidden: Tensor = self.norm(x)
        if self.linear:
            hidden = self.proj_in(hidden.flatten(2).transpose(1, 2).contiguous())
        else:
            hidden = self.proj_in(hidden).flatten(2).transpose(1, 2).contiguous()
        for block in self.transformer_blocks:
            hidden = block(hidden, context)
        out: Tensor
        if self.linear:
            out = self.proj_out(hidden).transpose(1, 2).reshape(x.shape)
        else:
            out = self.proj_out(hidden.transpose(1, 2).reshape(x.shape).contiguous())
        return x + out


class MapAttention(nn.Module):
    """Self-attention between the places of a map, added back: ``(B, C, H, W)`` to the same (Ho et al. 2020).

    The projection out starts at zero. diffusers' layout of unconditional U-Nets: norm inside, biases everywhere.
    """

    def __init__(self, channels: int, heads: int, groups: int, eps: float) -> None:
        """``heads`` and ``groups`` must divide ``channels``."""
        super().__init__()
        self.heads = heads
        self.group_norm = nn.GroupNorm(groups, channels, eps)
        self.to_q, self.to_k, self.to_v = (nn.Linear(channels, channels) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])
        zero(self.to_out[0])  # type: ignore[arg-type]

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """``x`` is ``(B, C, H, W)``; there are no words, and ``context`` is not looked at."""
        rows = self.group_norm(x).flatten(2).transpose(1, 2)
        query, key, value = (
            layer(rows).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.to_q, self.to_k, self.to_v)
        )
        read = functional.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.to_out[0](read.transpose(1, 2).flatten(2))
        return x + out.transpose(1, 2).reshape(x.shape)
