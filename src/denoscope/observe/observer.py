"""``denoscope.observe``: watch one call of a pipeline without changing it."""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Literal, Self, cast

import torch
import xarray as xr
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope._version import __version__
from denoscope.observe.attention import AttentionMode, column_mass
from denoscope.observe.errors import ObserveError
from denoscope.observe.records import KINDS, StepRecord, Tally, to_dataset
from denoscope.pipelines.adapters import Adapter, Word, adapter_for
from denoscope.pipelines.adapters.base import PromptTokens
from denoscope.schedules import PredictionType, convert_prediction, logsnr_of

_watched: set[int] = set()
_watched_lock = threading.Lock()


def select_words(tokens: PromptTokens, words: Sequence[str] | None) -> tuple[Word, ...]:
    """The words asked for, in the prompt's order; ``None`` asks for all.

    "red" finds every occurrence, "red#2" the second alone. Raises :class:`ObserveError` for a word that is not in the
    prompt, naming those that are.
    """
    if words is None:
        return tokens.words
    wanted = {word.strip().lower() for word in words}
    chosen = tuple(
        word for word in tokens.words if word.label.lower() in wanted or word.label.split("#")[0].lower() in wanted
    )
    found = {form for word in chosen for form in (word.label.lower(), word.label.split("#")[0].lower())}
    for word in words:
        if word.strip().lower() not in found:
            known = ", ".join(repr(known.label) for known in tokens.words) or "none (the prompt is empty)"
            raise ObserveError(f"the word {word!r} is not in the prompt; its words are {known}")
    return chosen


class Observer:
    """Watches the calls made inside its ``with`` block; use it through :func:`observe`.

    While it watches there are forward hooks on the denoiser, its cross-attention layers and the text encoder, a
    wrapper around the scheduler's ``step``, and a torch-function mode in this thread. They read; leaving the block
    takes them away, also after an exception.
    """

    def __init__(
        self,
        pipe: DiffusionPipeline,
        *,
        attention: Literal["cross"] | None,
        guidance: bool,
        x0: bool,
        words: Sequence[str] | None,
        layers: str,
        keep_steps: bool,
        prompt: str | None,
    ) -> None:
        self._pipe = pipe
        self._adapter: Adapter = adapter_for(pipe)
        self._guidance, self._x0 = guidance, x0
        self._asked_words = words
        self._layers: dict[str, nn.Module] = {}
        if attention is not None:
            found = self._adapter.cross_attention(pipe)
            self._layers = {name: module for name, module in found.items() if fnmatchcase(name, layers)}
            if not found:
                raise ObserveError(
                    f"{type(self._adapter.denoiser(pipe)).__name__} has no cross-attention; observe with attention=None"
                )
            if not self._layers:
                raise ObserveError(f"no cross-attention layer matches {layers!r}; there are {', '.join(found)}")
        self._tally = Tally(keep_steps)
        self._tokens: PromptTokens | None = None
        self._words: tuple[Word, ...] = ()
        self._columns: Tensor | None = None
        self._layer: str | None = None
        self._call: tuple[Tensor, object, Tensor | None] | None = None
        self._step = StepRecord(0.0, 0.0, 0.0)
        self._problem: str | None = None
        self._seen_layers: set[str] = set()
        self._open: ExitStack | None = None
        if prompt is not None:
            self._learn_prompt(self._adapter.tokenize(pipe, prompt))

    # -- entering and leaving ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        denoiser = self._adapter.denoiser(self._pipe)
        with _watched_lock:
            if id(denoiser) in _watched:
                raise ObserveError("this pipeline is being observed already; leave the other observe block first")
            _watched.add(id(denoiser))
        with ExitStack() as stack:
            stack.callback(_watched.discard, id(denoiser))
            handles = [
                denoiser.register_forward_pre_hook(self._before_denoiser, with_kwargs=True),
                denoiser.register_forward_hook(self._after_denoiser, with_kwargs=True),
                self._adapter.text_encoder(self._pipe).register_forward_pre_hook(self._before_text, with_kwargs=True),
            ]
            for name, module in self._layers.items():
                handles.append(module.register_forward_pre_hook(functools.partial(self._enter_layer, name)))
                handles.append(module.register_forward_hook(self._leave_layer, always_call=True))
            for handle in handles:
                stack.callback(handle.remove)
            stack.callback(self._wrap_scheduler_step())
            if self._layers:
                stack.enter_context(AttentionMode(self._on_attention))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _wrap_scheduler_step(self) -> Callable[[], None]:
        """Listen to ``scheduler.step``; returns what undoes it.

        The scheduler is where a step begins and ends, and where the guided prediction arrives. The wrapper is an
        attribute of this one object, and keeps the signature, which pipelines inspect.
        """
        scheduler = self._pipe.scheduler
        original = scheduler.step

        @functools.wraps(original)
        def step(model_output: Tensor, *args: object, **kwargs: object) -> object:
            self._finish_step(model_output)
            return original(model_output, *args, **kwargs)

        scheduler.step = step

        def undo() -> None:
            # The user may have put something of their own there meanwhile: that stays.
            if vars(scheduler).get("step") is step:
                del scheduler.step

        return undo

    # -- what happens during the call ----------------------------------------------------------------------------

    def _before_text(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        ids = args[0] if args else kwargs.get("input_ids")
        # The prompt is encoded first, the negative prompt after it.
        if self._tokens is not None or not isinstance(ids, Tensor) or ids.dim() != 2:
            return
        if not bool((ids == ids[:1]).all()):
            self._refuse("observe watches one prompt per call; call the pipeline once for each prompt")
            return
        try:
            self._learn_prompt(ids[0].tolist())
        except ObserveError as error:
            self._refuse(str(error))

    def _learn_prompt(self, ids: list[int]) -> None:
        self._tokens = self._adapter.prompt_tokens(self._pipe, ids)
        self._words = select_words(self._tokens, self._asked_words)
        columns = torch.zeros(len(ids), len(self._words) + len(KINDS))
        for column, word in enumerate(self._words):
            columns[list(word.positions), column] = 1
        for position, kind in enumerate(self._tokens.kinds):
            columns[position, len(self._words) + KINDS.index(kind)] = 1
        self._columns = columns

    def _before_denoiser(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        sample = args[0] if args else kwargs["sample"]
        timestep = args[1] if len(args) > 1 else kwargs["timestep"]
        self._call = (cast(Tensor, sample), timestep, None)

    def _after_denoiser(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        if self._call is not None:
            prediction = output[0] if isinstance(output, tuple | list) else getattr(output, "sample", output)
            self._call = (self._call[0], self._call[1], cast(Tensor, prediction))

    def _enter_layer(self, name: str, module: nn.Module, args: tuple[object, ...]) -> None:
        self._layer = name

    def _leave_layer(self, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        self._layer = None

    @torch.no_grad()
    def _on_attention(self, query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> None:
        if self._layer is None or self._call is None or self._problem is not None:
            return
        self._seen_layers.add(self._layer)
        if self._columns is None:
            self._refuse("the prompt's words are unknown (it was given as embeddings); pass observe(..., prompt=TEXT)")
            return
        if key.shape[-2] != len(self._columns):
            self._refuse(
                f"the prompt has {len(self._columns)} tokens but {self._layer} attends to {key.shape[-2]}; "
                "prompts lengthened by other tools can't be mapped to words"
            )
            return
        sample = self._call[0]
        rows = self._adapter.branches(self._pipe, query)["cond"]
        height, width = self._adapter.map_size(sample, query.shape[-2])
        mask = mask[rows] if mask is not None and mask.dim() == 4 and len(mask) == len(query) else mask
        mass = column_mass(query[rows], key[rows], self._columns.to(query.device), mask, scale).cpu()
        maps, kinds = mass.split([len(self._words), len(KINDS)], dim=-1)
        self._step.attention[self._layer] = maps.transpose(1, 2).unflatten(2, (height, width)).contiguous()
        self._step.token_mass[self._layer] = kinds.mean(1)

    @torch.no_grad()
    def _finish_step(self, guided: Tensor) -> None:
        if self._call is None or self._call[2] is None:
            return
        sample, timestep, prediction = self._call
        assert prediction is not None
        level = logsnr_of(self._pipe.scheduler, torch.as_tensor(timestep).reshape(-1)[:1])
        record = self._step
        record.timestep = float(torch.as_tensor(timestep).reshape(-1)[0])
        record.sigma, record.logsnr = float(level.sigma[0]), float(level.logsnr[0])
        kind = cast(PredictionType, getattr(self._pipe.scheduler.config, "prediction_type", "epsilon"))
        alpha, sigma = float(level.logsnr.sigmoid().sqrt()), float((-level.logsnr).sigmoid().sqrt())
        branches = self._adapter.branches(self._pipe, prediction)
        channels = sample.shape[1]
        # Also for the Euler family: what the denoiser is given is scaled to unit variance, whatever the sampler holds.
        z = sample[branches["cond"]].float()
        if self._guidance and "uncond" in branches:
            predicted = (prediction[branches[name]][:, :channels].float() for name in ("cond", "uncond"))
            cond, uncond = (convert_prediction(p, kind, "epsilon", z, alpha, sigma) for p in predicted)
            record.guidance = (cond - uncond).square().sum(1).cpu()
        if self._x0:
            clean = convert_prediction(guided[:, :channels].float(), kind, "sample", z, alpha, sigma)
            record.x0 = clean.cpu()
        self._tally.add(record)
        self._step = StepRecord(0.0, 0.0, 0.0)
        self._call = None

    def _refuse(self, problem: str) -> None:
        """Remember why the call can't be observed; the call itself goes on undisturbed."""
        self._problem = self._problem or problem

    # -- the result ----------------------------------------------------------------------------------------------

    @property
    def trace(self) -> xr.Dataset:
        """What was seen, with named axes ``word, step, layer, y, x`` (see docs/trace.md).

        Raises :class:`ObserveError` when nothing was called, or when the call could not be observed as asked.
        """
        if self._problem is not None:
            raise ObserveError(self._problem)
        if not self._tally.levels:
            raise ObserveError("no call of the pipeline was seen: call it inside the observe block, in the same thread")
        unseen = [name for name in self._layers if name not in self._seen_layers]
        if unseen:
            processor = type(getattr(self._layers[unseen[0]], "processor", None)).__name__
            raise ObserveError(
                f"{unseen[0]} uses {processor}, which does not go through scaled_dot_product_attention (or ran in "
                "another thread), so its attention can't be seen; call pipe.unet.set_default_attn_processor() or "
                "pipe.unet.set_attention_backend('native') first"
            )
        attrs: dict[str, str | float] = {"denoscope_version": __version__}
        return to_dataset(self._tally, self._words, list(self._layers), attrs)


def observe(
    pipe: DiffusionPipeline,
    *,
    attention: Literal["cross"] | None = "cross",
    guidance: bool = True,
    x0: bool = True,
    words: Sequence[str] | None = None,
    layers: str = "*",
    keep_steps: bool = True,
    prompt: str | None = None,
) -> Observer:
    """Watch the next call of a diffusers pipeline. The picture, the random numbers, processors and hooks stay the same.

        with denoscope.observe(pipe, words=["dog"]) as watch:
            image = pipe("a dog on a mat", generator=generator).images[0]
        watch.trace.attention.sel(word="dog").mean("layer")  # (step, y, x)

    ``attention="cross"`` records how much each picture location attends to each word, mean over heads, in the
    conditional branch. ``guidance`` records ‖ε_cond − ε_uncond‖² summed over channels, ``x0`` the predicted clean
    latent of each step under guidance. ``words`` limits the words, ``layers`` the layers (a glob on dotted names).
    ``keep_steps=False`` keeps means over steps instead of every step, so that memory does not grow with their number.
    ``prompt`` tells the words when the pipeline is called with ``prompt_embeds``.

    Raises :class:`ObserveError` on entering when the pipeline is being observed already, and from ``trace`` when the
    call could not be observed as asked.
    """
    return Observer(
        pipe,
        attention=attention,
        guidance=guidance,
        x0=x0,
        words=words,
        layers=layers,
        keep_steps=keep_steps,
        prompt=prompt,
    )
