"""The text's part of a denoiser call, for any family: recorded once, called again, put in another text's place.

A pipeline turns a prompt into arguments of its denoiser: embeddings, pooled embeddings, masks, sizes. Which they are is
the pipeline's own business, so its own call is run up to the first denoiser call, and what arrives there is kept.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final, cast

import torch
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope.information.errors import InformationError
from denoscope.observer.listening import listen
from denoscope.pipelines.adapters import Adapter, Branch, DenoiserCall, adapter_for
from denoscope.schedules import logsnr_of

_UNBATCHED: Final = ("txt_ids", "img_ids")
"""Arguments without a row for each picture where they have two axes: Flux's places."""
_NOT_TEXT: Final = ("guidance", "timestep_cond", "img_ids", "return_dict")
_WITH_PROMPT: Final[tuple[Branch, ...]] = ("cond", "perturbed")


class _Reached(BaseException):  # no error: it only ends the pipeline's call
    """The denoiser is about to be called."""


@dataclass(frozen=True, slots=True)
class Conditioning:
    """What a pipeline hands its denoiser for one prompt, beside latents and timestep.

    ``arguments`` are those of the conditional branch, tensors with one row. ``timestep_scale`` is what the pipeline
    multiplies the scheduler's timestep by (Flux: 1/1000), ``timestep_dtype`` how it hands it over; ``levels`` are the
    logsnr of all steps that the call would have made.
    """

    prompt: str
    arguments: Mapping[str, object]
    timestep_scale: float
    timestep_dtype: torch.dtype
    levels: tuple[float, ...]

    def with_states(self, states: Tensor) -> "Conditioning":
        """The same with other text embeddings ``(1, columns, features)``."""
        return replace(self, arguments={**self.arguments, "encoder_hidden_states": states})

    @property
    def states(self) -> Tensor:
        """The text embeddings ``(1, columns, features)``. Raises :class:`InformationError` where there are none."""
        found = self.arguments.get("encoder_hidden_states")
        if not isinstance(found, Tensor):
            raise InformationError("this model's denoiser is given no text embeddings: leave words out of the prompt")
        return found


def conditioning(pipe: DiffusionPipeline, prompt: str, **call: object) -> Conditioning:
    """What the denoiser is given for a prompt.

    ``call`` are further arguments of the pipeline's call (``negative_prompt``, ``guidance_scale``, ``width`` …): give
    those of the generation, for sizes are among what the denoiser is told. The call is run with a scheduler of its
    own up to the first denoiser call and stopped there; pipeline, scheduler and random state are as before.

    Raises :class:`InformationError` for a pipeline that isn't called with a prompt; ``ModelError`` for one that
    isn't supported.
    """
    adapter = adapter_for(pipe)
    if "prompt" not in inspect.signature(type(pipe).__call__).parameters or not adapter.parts:
        raise InformationError(f"{type(pipe).__name__} reads no prompt, so no word of it can be followed")
    denoiser = adapter.denoiser(pipe)
    found: dict[str, object] = {}

    def stop(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        found.update(arguments_of(module, args, kwargs))
        raise _Reached

    before = dict(vars(pipe))
    scheduler = _fresh(adapter.scheduler(pipe))
    hook = denoiser.register_forward_pre_hook(stop, with_kwargs=True, prepend=True)
    try:
        vars(pipe)[adapter.scheduler_name] = scheduler
        vars(pipe)["_progress_bar_config"] = {"disable": True}
        own = {**call, "generator": torch.Generator("cpu").manual_seed(0)}
        with counted(pipe) as count:
            pipe(prompt=prompt, **own)
    except _Reached:
        # Here, as some pipelines tell their branches by what their call has set.
        sample = cast(Tensor, found[adapter.sample_name])
        call_seen = DenoiserCall(found, 0, count.guided)
        branch = adapter.branches(pipe, call_seen, len(sample))["cond"]
    finally:
        hook.remove()
        vars(pipe).clear()
        vars(pipe).update(before)
        pipe.maybe_free_model_hooks()
    if not found:
        raise InformationError(f"{type(pipe).__name__} drew a picture without calling its {adapter.denoiser_name}")
    told = torch.as_tensor(found["timestep"]).reshape(-1)[0]
    timesteps = cast(Tensor, getattr(scheduler, "timesteps"))  # noqa: B009  # schedulers have no common type
    levels = tuple(logsnr_of(scheduler, timesteps).logsnr.tolist())
    kept = {name: value for name, value in found.items() if name not in (adapter.sample_name, "timestep")}
    row = slice(branch.start, branch.start + 1)
    arguments = {name: changed_rows(name, value, len(sample), lambda held: held[row]) for name, value in kept.items()}
    scale = float(told) / float(timesteps[0]) if float(timesteps[0]) else 1.0
    return Conditioning(prompt, arguments, scale, told.dtype, levels)


def predict(pipe: DiffusionPipeline, z: Tensor, timestep: Tensor | float, given: Conditioning) -> Tensor:
    """The denoiser's prediction for given latents under a conditioning, the conditional branch alone.

    ``z`` is ``(B, …)`` as the denoiser takes it: after the scheduler's ``scale_model_input``, which makes unit
    variance of the Euler family's latents (what a hook on the denoiser sees is scaled already). ``timestep`` is the
    scheduler's, a number or ``(B,)``. Returns the prediction, in the model's own kind, like ``z``; without what some
    models predict beside it, the variance. Gradients flow if they are enabled.
    """
    adapter = adapter_for(pipe)
    steps = torch.as_tensor(timestep, dtype=torch.float64).reshape(-1).expand(len(z)) * given.timestep_scale
    dtype = given.timestep_dtype if given.timestep_dtype.is_floating_point else torch.float32
    arguments = {
        name: changed_rows(name, value, 1, lambda held: held.expand(len(z), *held.shape[1:]))
        for name, value in given.arguments.items()
    }
    arguments |= {adapter.sample_name: z, "timestep": steps.to(z.device, dtype)}
    return predicted(adapter, adapter.denoiser(pipe)(**arguments), z)


def predicted(adapter: Adapter, output: object, z: Tensor) -> Tensor:
    """The prediction in what a denoiser returns for ``z``."""
    found = output[0] if isinstance(output, tuple | list) else getattr(output, "sample", output)
    prediction, axis = cast(Tensor, found), adapter.channel_axis
    return prediction.narrow(axis, 0, min(z.shape[axis], prediction.shape[axis]))


@contextmanager
def replaced(pipe: DiffusionPipeline, schedule: Conditioning | Mapping[int, Conditioning | None]) -> Iterator[None]:
    """Another text in the place of the prompt's, from some step on, for calls inside the block.

    ``schedule`` maps a scheduler step (from 0) to the conditioning that holds from there; ``None`` is the call's own
    prompt, which also holds before the first entry. One conditioning alone holds throughout. Only the conditional
    branch is changed; latents, timestep and the negative prompt's branch stay.

    Inside, a call raises :class:`InformationError` when the text's embeddings have another shape than the prompt's
    (families whose text isn't padded).
    """
    adapter = adapter_for(pipe)
    entries = {0: schedule} if isinstance(schedule, Conditioning) else dict(sorted(schedule.items()))
    with counted(pipe) as count:

        def swap(
            module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
        ) -> tuple[tuple[object, ...], dict[str, object]] | None:
            passed = [start for start in entries if start <= count.step]
            new = entries[passed[-1]] if passed else None
            if new is None:
                return None
            arguments = arguments_of(module, args, kwargs)
            rows = len(cast(Tensor, arguments[adapter.sample_name]))
            call = DenoiserCall(arguments, count.call - 1, count.guided)
            branches = adapter.branches(pipe, call, rows)
            for name in _WITH_PROMPT:
                if name in branches:
                    arguments = _swapped(arguments, new, rows, branches[name])
            return (), arguments

        hook = adapter.denoiser(pipe).register_forward_pre_hook(swap, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()


@dataclass(slots=True)
class Count:
    """Where a pipeline's call is: scheduler steps made, denoiser calls begun since the last of them, guidance."""

    pipe: DiffusionPipeline
    step: int = 0
    call: int = 0
    encoded_guided: bool = False

    @property
    def guided(self) -> bool:
        """Whether the call in progress is guided without a classifier."""
        return bool(getattr(self.pipe, "do_classifier_free_guidance", self.encoded_guided))


@contextmanager
def counted(pipe: DiffusionPipeline) -> Iterator[Count]:
    """Count the steps of the calls inside the block."""
    adapter = adapter_for(pipe)
    count = Count(pipe)

    def begin(*args: object, **kwargs: object) -> None:
        count.step = count.call = 0

    def finish(*args: object, **kwargs: object) -> None:
        count.step, count.call = count.step + 1, 0

    def called(module: nn.Module, args: object, kwargs: object) -> None:
        count.call += 1

    def encode(*args: object, **kwargs: object) -> None:
        # Not every pipeline tells as a property whether it guides; how it encodes the prompt tells it.
        method = getattr(type(pipe), str(adapter.encode_method))
        told = inspect.signature(method).bind(pipe, *args, **kwargs).arguments.get("do_classifier_free_guidance")
        count.encoded_guided = told if isinstance(told, bool) else count.encoded_guided

    with ExitStack() as stack:
        scheduler = adapter.scheduler(pipe)
        stack.callback(listen(scheduler, "set_timesteps", begin))
        stack.callback(listen(scheduler, "step", finish))
        if adapter.encode_method is not None:
            stack.callback(listen(pipe, adapter.encode_method, encode))
        stack.callback(adapter.denoiser(pipe).register_forward_pre_hook(called, with_kwargs=True).remove)
        yield count


def arguments_of(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
    """A denoiser's arguments by name."""
    signature = inspect.signature(type(module).forward)
    bound = signature.bind_partial(module, *args, **kwargs).arguments
    found: dict[str, object] = {}
    for name, value in list(bound.items())[1:]:
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def _fresh(scheduler: object) -> object:
    """A scheduler of the same settings and without a past."""
    cls = type(scheduler)
    return cls.from_config(getattr(scheduler, "config"))  # type: ignore[attr-defined]  # noqa: B009


def changed_rows(name: str, value: object, rows: int, change: Callable[[Tensor], Tensor]) -> object:
    """A denoiser's argument with every tensor changed that has a row for each picture, also in lists and mappings."""
    if isinstance(value, Mapping):
        return {key: changed_rows(str(key), held, rows, change) for key, held in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(changed_rows(name, held, rows, change) for held in value)
    if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != rows:
        return value
    return value if name in _UNBATCHED and value.dim() == 2 else change(value)


def _is_text(name: str) -> bool:
    kwargs = name.endswith("kwargs") and name != "added_cond_kwargs"
    return name not in _NOT_TEXT and not kwargs and "residual" not in name and "controlnet" not in name


def _swapped(arguments: Mapping[str, object], new: Conditioning, rows: int, where: slice) -> dict[str, object]:
    return {
        name: _put(name, value, new.arguments.get(name), rows, where) if _is_text(name) else value
        for name, value in arguments.items()
    }


def _put(name: str, old: object, new: object, rows: int, where: slice) -> object:
    """``old`` with ``new`` in the rows ``where``."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {key: _put(str(key), held, new.get(key), rows, where) for key, held in old.items()}
    if isinstance(old, tuple | list) and isinstance(new, tuple | list):
        return type(old)(_put(name, mine, other, rows, where) for mine, other in zip(old, new, strict=True))
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return old
    if name in _UNBATCHED and old.dim() == 2:
        return new
    if old.shape[1:] != new.shape[1:]:
        raise InformationError(
            f"the texts' {name} have {tuple(old.shape[1:])} and {tuple(new.shape[1:])} numbers, so one can't take the "
            "other's place; use prompts with equally many tokens"
        )
    changed = old.clone()
    changed[where] = new.to(old)
    return changed
