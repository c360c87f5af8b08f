"""Calls of a pipeline that do less: no guidance, frozen text, cached features, predictions taken over.

Each economy replaces ``forward`` of some modules of the denoiser while its block lasts, so what is left out costs
nothing; leaving the block puts them back, also after an exception.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import cast

from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope.information.conditioning import Count, arguments_of, changed_rows, counted
from denoscope.information.errors import InformationError
from denoscope.pipelines.adapters import Adapter, DenoiserCall, adapter_for

Forward = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Economy:
    """What a call leaves out; steps count from 0, noisiest first.

    ``guidance_off``: from this step on the branch without the prompt is not computed, and the prediction is the
    conditional one (adaptive guidance: Castillo et al. 2023). ``text_frozen``: from this step on cross-attention layers
    give what they gave at that step (T-GATE: Zhang et al. 2024, who average the branches; here each keeps its own).
    ``cached``: at these steps the inner blocks of a U-Net give what they gave last (DeepCache: Ma et al. 2024, eq. 7).
    ``taken_over``: at these steps the whole prediction is the last one. The last two never hold step 0.
    """

    guidance_off: int | None = None
    text_frozen: int | None = None
    cached: tuple[int, ...] = ()
    taken_over: tuple[int, ...] = ()


@dataclass(slots=True)
class Tally:
    """How many rows of its batch the denoiser has computed: two a step for a guided picture."""

    rows: int = 0


@contextmanager
def economised(pipe: DiffusionPipeline, economy: Economy) -> Iterator[Tally]:
    """Calls inside the block are economised; the tally counts what is computed all the same.

    Raises :class:`InformationError` for an economy that this family can't make: frozen text without cross-attention
    layers, cached features without U-Net blocks, guidance off where guidance is a call of its own, step 0 taken over,
    or guidance off together with what was kept of both branches.
    """
    adapter = adapter_for(pipe)
    denoiser = adapter.denoiser(pipe)
    if 0 in (*economy.cached, *economy.taken_over):
        raise InformationError("the first step has nothing to take over: leave step 0 out")
    if economy.guidance_off is not None and (economy.text_frozen is not None or economy.cached or economy.taken_over):
        raise InformationError("guidance off can't be combined: what the other economies keep is of both branches")
    tally = Tally()
    with ExitStack() as stack:
        stack.enter_context(_forward(denoiser, _counting(denoiser, tally, adapter.sample_name)))
        count = stack.enter_context(counted(pipe))
        if economy.text_frozen is not None:
            start = economy.text_frozen
            for layer in _text_layers(adapter, pipe):
                stack.enter_context(_forward(layer, _keeping(layer.forward, count, lambda step: step <= start)))
        if economy.cached:
            for block in _inner_blocks(denoiser):
                stack.enter_context(
                    _forward(block, _keeping(block.forward, count, lambda step: step not in economy.cached))
                )
        if economy.guidance_off is not None:
            stack.enter_context(_forward(denoiser, _conditional(adapter, pipe, count, economy.guidance_off)))
        if economy.taken_over:
            stack.enter_context(
                _forward(denoiser, _keeping(denoiser.forward, count, lambda step: step not in economy.taken_over))
            )
        yield tally


@contextmanager
def _forward(module: nn.Module, forward: Forward) -> Iterator[None]:
    had = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if had is None:
            del module.forward
        else:
            module.forward = had


def _counting(denoiser: nn.Module, tally: Tally, sample_name: str) -> Forward:
    forward = denoiser.forward

    @functools.wraps(forward)
    def instead(*args: object, **kwargs: object) -> object:
        tally.rows += len(cast(Tensor, arguments_of(denoiser, args, kwargs)[sample_name]))
        return forward(*args, **kwargs)

    return instead


def _keeping(forward: Forward, count: Count, computes: Callable[[int], bool]) -> Forward:
    """``forward`` at steps that compute, its last output at the others; calls of one step are kept apart."""
    kept: dict[int, object] = {}
    seen = {"step": -1, "calls": 0}

    @functools.wraps(forward)
    def instead(*args: object, **kwargs: object) -> object:
        if count.step != seen["step"]:
            seen.update(step=count.step, calls=0)
        call = seen["calls"]
        seen["calls"] += 1
        if computes(count.step):
            kept[call] = forward(*args, **kwargs)
        return kept[call]

    return instead


def _conditional(adapter: Adapter, pipe: DiffusionPipeline, count: Count, start: int) -> Forward:
    """From step ``start`` on the denoiser is called with the conditional rows alone, and all rows are given theirs."""
    denoiser = adapter.denoiser(pipe)
    forward = denoiser.forward

    @functools.wraps(forward)
    def instead(*args: object, **kwargs: object) -> object:
        if count.step < start:
            return forward(*args, **kwargs)
        arguments = arguments_of(denoiser, args, kwargs)
        rows = len(cast(Tensor, arguments[adapter.sample_name]))
        branches = adapter.branches(pipe, DenoiserCall(arguments, count.call - 1, count.guided), rows)
        if "uncond" not in branches or "cond" not in branches:
            raise InformationError(f"{type(pipe).__name__} has no guidance in one call that could be turned off")
        own = branches["cond"]
        less = {name: changed_rows(name, value, rows, lambda held: held[own]) for name, value in arguments.items()}
        return _spread(forward(**less), branches.values(), rows)

    return instead


def _spread(output: object, places: Iterable[slice], count: int) -> object:
    """The output with its rows in the place of every branch's."""
    found = cast(Tensor, output[0] if isinstance(output, tuple) else output.sample)  # type: ignore[attr-defined]
    whole = found.new_empty((count, *found.shape[1:]))
    for place in places:
        whole[place] = found
    if isinstance(output, tuple):
        return (whole, *output[1:])
    return cast("Callable[..., object]", type(output))(sample=whole)


def _text_layers(adapter: Adapter, pipe: DiffusionPipeline) -> list[nn.Module]:
    layers = [] if adapter.joint else list(adapter.layers(pipe, "cross").values())
    if not layers:
        raise InformationError(
            f"{type(pipe).__name__} has no layers of cross-attention alone, so its text can't be frozen in them"
        )
    return layers


def _inner_blocks(denoiser: nn.Module) -> list[nn.Module]:
    """All blocks of a U-Net but the first down and the last up one."""
    down, up = getattr(denoiser, "down_blocks", None), getattr(denoiser, "up_blocks", None)
    if not isinstance(down, nn.ModuleList) or not isinstance(up, nn.ModuleList) or len(down) < 2:
        raise InformationError(
            f"{type(denoiser).__name__} has no U-Net blocks to cache: take whole predictions over instead"
        )
    middle = getattr(denoiser, "mid_block", None)
    return [*down[1:], *([middle] if isinstance(middle, nn.Module) else []), *up[:-1]]
