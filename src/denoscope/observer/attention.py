"""Attention probabilities, read where the model hands its queries and keys to the attention kernel."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_QUERIES_AT_ONCE = 2048

OnAttention = Callable[[Tensor, Tensor, Tensor | None, float | None], None]


def column_mass(
    query: Tensor, key: Tensor, columns: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """How much attention each query gives to groups of keys, averaged over heads.

    ``query`` is ``(B, heads, N, d)``, ``key`` ``(B, heads, T, d)``, ``columns`` ``(T, C)`` with a 1 where a key belongs
    to a group. ``mask`` is as in ``scaled_dot_product_attention``: boolean (True takes part) or added to the scores.
    Returns ``(B, N, C)`` float32 in [0, 1].

    Softmax and sums are float32 at any dtype of the model, also under autocast: bfloat16 would be off by 2 %. Memory is
    ``B · heads · 2048 · T`` floats at most, whatever N is.

    >>> q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 3, 8)
    >>> mass = column_mass(q, k, torch.eye(3))
    >>> mass.shape, bool(torch.allclose(mass.sum(-1), torch.ones(1, 4)))
    (torch.Size([1, 4, 3]), True)
    """
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    keys = key.float().transpose(-1, -2)
    parts = []
    with torch.autocast(query.device.type, enabled=False):
        for start in range(0, query.shape[-2], _QUERIES_AT_ONCE):
            rows = slice(start, start + _QUERIES_AT_ONCE)
            scores = query[..., rows, :].float() @ keys * factor
            if mask is not None:
                part = mask[..., rows, :] if mask.shape[-2] > 1 else mask
                scores = scores.masked_fill(~part, -math.inf) if mask.dtype == torch.bool else scores + part.float()
            parts.append((scores.softmax(-1) @ columns.to(scores)).mean(1))
    return torch.cat(parts, dim=1)


class AttentionMode(TorchFunctionMode):
    """Calls ``on_attention(query, key, mask, scale)`` before every ``scaled_dot_product_attention`` of this thread.

    The call itself goes through untouched, so the output is bit-identical. Attention that does not go through that
    function (sliced or classic processors, other kernels) is not seen.
    """

    def __init__(self, on_attention: OnAttention) -> None:
        super().__init__()
        self._on_attention = on_attention

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Report attention, then do what was asked."""
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            named = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | dict(kwargs)
            self._on_attention(
                cast(Tensor, named["query"]),
                cast(Tensor, named["key"]),
                cast("Tensor | None", named.get("attn_mask")),
                cast("float | None", named.get("scale")),
            )
        return func(*args, **kwargs)
