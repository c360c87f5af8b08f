"""Hearing the attention kernel: one listener a thread, only while a watched layer runs."""

import threading
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

OnAttention = Callable[[Tensor, Tensor, Tensor | None, float | None], None]

_lock = threading.Lock()
_here = threading.local()
_plain: Callable[..., Tensor] = functional.scaled_dot_product_attention
_listeners = 0


def hear(on_attention: OnAttention) -> None:
    """Call ``on_attention(query, key, mask, scale)`` ahead of every ``scaled_dot_product_attention`` of this thread.

    The call itself goes through untouched, so the output is bit-identical. The function in ``torch.nn.functional`` is
    replaced until :func:`stop_hearing`; other threads' calls pass through. A mode for torch functions would do without,
    but slows each of a layer's twenty functions by some microseconds, which a small network feels. Attention that does
    not look the function up there (sliced or classic processors, other kernels) is not heard.
    """
    global _listeners, _plain
    _here.listener = on_attention
    with _lock:
        if _listeners == 0:
            _plain = functional.scaled_dot_product_attention
            functional.scaled_dot_product_attention = _heard
        _listeners += 1


def stop_hearing() -> None:
    """Undo :func:`hear` in this thread; what others have put in the function's place meanwhile stays."""
    global _listeners
    if getattr(_here, "listener", None) is None:
        return
    _here.listener = None
    with _lock:
        _listeners -= 1
        if _listeners == 0 and functional.scaled_dot_product_attention is _heard:
            functional.scaled_dot_product_attention = _plain


def _heard(*args: object, **kwargs: object) -> Tensor:
    listener: OnAttention | None = getattr(_here, "listener", None)
    if listener is None:
        return _plain(*args, **kwargs)
    # The listener may use the kernel itself; and whoever compares functions (torch-function modes) must find torch's.
    stop_hearing()
    try:
        named = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
        query, key = cast(Tensor, named["query"]), cast(Tensor, named["key"])
        mask = cast("Tensor | None", named.get("attn_mask"))
        if named.get("is_causal"):
            mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        listener(query, key, mask, cast("float | None", named.get("scale")))
        return _plain(*args, **kwargs)
    finally:
        hear(listener)
