"""Attention probabilities, read where the model hands its queries and keys to the attention kernel."""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

_NUMBERS_AT_ONCE: Final = 1 << 22
_FEW: Final = 1 << 20
"""Probabilities that are summed over heads before the columns are: quicker than the kernel, which does both a head."""


def column_mass(
    query: Tensor, key: Tensor, columns: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """How much attention each query gives to groups of keys, averaged over heads.

    ``query`` is ``(B, heads, N, d)``, ``key`` ``(B, heads, T, d)``, ``columns`` ``(T, C)`` with a 1 where a key belongs
    to a group. ``mask`` is as in ``scaled_dot_product_attention``: boolean (True takes part) or added to the scores.
    Returns ``(B, N, C)`` float32 in [0, 1].

    The kernel itself adds the columns up when they stand in the place of the values, so no matrix of probabilities
    above 4 MiB is formed. Softmax and sums are float32 at any dtype of the model, also under autocast: bfloat16 would
    be off by 2 %. Heads are taken so many at a time that each copy holds 16 MiB at most, or one head.

    >>> q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 3, 8)
    >>> mass = column_mass(q, k, torch.eye(3))
    >>> mass.shape, bool(torch.allclose(mass.sum(-1), torch.ones(1, 4)))
    (torch.Size([1, 4, 3]), True)
    """
    return mass_of(query, key, groups_of(columns, query.shape[-1], query.shape[1]), mask, scale)[
        ..., : columns.shape[1]
    ]


def groups_of(columns: Tensor, width: int, heads: int) -> tuple[Tensor, ...]:
    """Columns as values for :func:`mass_of`: ``(T, width)`` each, as some kernels want values as wide as keys.

    Padded with zeros, and divided by the number of heads, so that their sum over heads is the mean.
    """
    padded = functional.pad(columns.float() / heads, (0, -columns.shape[1] % width))
    return torch.split(padded, width, dim=1)


def mass_of(
    query: Tensor,
    key: Tensor,
    groups: Sequence[Tensor],
    mask: Tensor | None = None,
    scale: float | None = None,
    *,
    heads_apart: bool = False,
) -> Tensor:
    """:func:`column_mass` with columns made ready once by :func:`groups_of`; ``(B, N, groups · width)``.

    ``heads_apart`` gives what each head adds to that mean, ``(B, heads, N, groups · width)``.
    """
    device = query.device.type
    few = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2] <= _FEW
    if few and mask is None and not heads_apart:
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        with torch.autocast(device, enabled=False):
            shares = (query.float() @ key.float().transpose(-1, -2) * factor).softmax(-1).sum(1)
            return torch.cat([shares @ values for values in groups], dim=-1)
    parts: list[Tensor] = []
    for heads in _portions(query.shape[1], query.shape[0] * max(query.shape[2], key.shape[2]) * query.shape[3]):
        some, others, added = query[:, heads].float(), key[:, heads].float(), _mask_of(mask, heads)
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            found = [
                functional.scaled_dot_product_attention(
                    some, others, values.expand(*others.shape[:2], *values.shape), attn_mask=added, scale=scale
                )
                for values in groups
            ]
        whole = found[0] if len(found) == 1 else torch.cat(found, dim=-1)
        parts.append(whole if heads_apart else whole.sum(1))
    if heads_apart:
        return torch.cat(parts, dim=1)
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def mean_row(query: Tensor, key: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Where some queries look on average: the mean over queries and heads of their attention to each key.

    Shapes as in :func:`column_mass`; returns ``(B, T)`` float32, which sums to 1. At most 16 MiB of probabilities, or
    those of one query, are held at a time.

    >>> q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 3, 8)
    >>> bool(torch.allclose(mean_row(q, k).sum(-1), torch.ones(1)))
    True
    """
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    keys = key.float().transpose(-1, -2)
    summed = query.new_zeros(len(query), key.shape[2], dtype=torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        for rows in _portions(query.shape[2], len(query) * query.shape[1] * key.shape[2]):
            scores = query[:, :, rows].float() @ keys * factor
            if mask is not None:
                part = mask[..., rows, :] if mask.shape[-2] > 1 else mask
                scores = scores.masked_fill(~part, -math.inf) if mask.dtype == torch.bool else scores + part.float()
            summed += scores.softmax(-1).sum((1, 2))
    return summed / (query.shape[1] * query.shape[2])


def _portions(count: int, numbers: int) -> Iterator[slice]:
    """Runs of ``count`` things of so many numbers each, as many at a time as may be held."""
    size = max(1, _NUMBERS_AT_ONCE // max(numbers, 1))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _mask_of(mask: Tensor | None, heads: slice) -> Tensor | None:
    if mask is None:
        return None
    held = mask[:, heads] if mask.dim() == 4 and mask.shape[1] > 1 else mask
    return held if held.dtype == torch.bool else held.float()
