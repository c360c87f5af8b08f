"""``denoscope.observe``: watch one call of a pipeline without changing it."""

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self, cast

import torch
import xarray as xr
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope._version import __version__
from denoscope.observer.attention import AttentionMode, groups_of, mass_of, mean_row
from denoscope.observer.choosing import attention_layers, feature_layers, refuse
from denoscope.observer.errors import ObserveError
from denoscope.observer.features import FeatureTally, Pooled, pool
from denoscope.observer.listening import listen
from denoscope.observer.predictions import Predicted, read_predictions
from denoscope.observer.records import StepRecord, Tally, to_dataset
from denoscope.observer.regions import Region, checked, inside
from denoscope.observer.words import Columns, select_words
from denoscope.pipelines.adapters import Adapter, Attends, Branch, DenoiserCall, PromptTokens, Section, adapter_for
from denoscope.schedules import logsnr_of

_WITHOUT_PROMPT: Final = ("uncond", "image")
"""Branches whose text is the negative prompt."""
_watched: set[int] = set()
_watched_lock = threading.Lock()


def _undisturbed(method: Callable[..., None]) -> Callable[..., None]:
    """Keep what goes wrong in the observer from the call that it watches: ``trace`` tells it, the call goes on."""

    @functools.wraps(method)
    def quiet(self: "Observer", *args: object, **kwargs: object) -> None:
        if self._problem is None:
            try:
                method(self, *args, **kwargs)
            except Exception as error:
                self._problem = error

    return quiet


class Observer:
    """Watches the calls made inside its ``with`` block; use it through :func:`observe`.

    While it watches there are forward hooks on the denoiser, its attention layers and the text encoders, listeners on
    the pipeline's way to encode prompts and the scheduler's ``set_timesteps`` and ``step``, and a torch-function mode
    in this thread. They read; leaving the block takes them away, also after an exception.
    """

    def __init__(
        self,
        pipe: DiffusionPipeline,
        *,
        attention: Attends | None,
        guidance: bool,
        x0: bool,
        words: Sequence[str] | None,
        layers: str,
        branch: Branch,
        region: Region | None,
        heads: bool,
        features: bool | Sequence[str],
        feature_grid: int,
        keep_steps: bool,
        prompt: str | None,
    ) -> None:
        self._pipe = pipe
        self._adapter: Adapter = adapter_for(pipe)
        self._denoiser = self._adapter.denoiser(pipe)
        self._guidance, self._x0 = guidance, x0 and keep_steps
        self._asked_words, self._branch, self._attention = words, branch, attention
        self._region, self._cells, self._heads = checked(region), feature_grid, heads
        refuse(pipe, self._adapter, self._denoiser)
        self._layers: dict[str, nn.Module] = {}
        if attention is not None:
            self._layers = attention_layers(self._adapter, pipe, attention, layers)
        self._feature_layers = feature_layers(self._adapter, self._denoiser, features, feature_grid)
        self._kinds = self._adapter.kinds
        self._tally, self._features = Tally(keep_steps), FeatureTally()
        self._columns: Columns | None = None
        self._groups: dict[tuple[int, ...], tuple[Tensor, ...]] = {}
        self._layer: str | None = None
        self._mode = AttentionMode(self._on_attention)
        self._signature = inspect.signature(type(self._denoiser).forward)
        self._call: DenoiserCall | None = None
        self._calls = 0
        self._encoded_guided: bool | None = None
        self._inputs: dict[Branch, Tensor] = {}
        self._predictions: dict[Branch, Tensor] = {}
        self._step = StepRecord(0.0, 0.0, 0.0)
        self._pooled: dict[tuple[Branch, str], Pooled] = {}
        self._size = (0, 0)
        self._problem: Exception | None = None
        self._reached: set[str] = set()
        self._seen_layers: set[str] = set()
        self._mismatch = ""
        self._ids: dict[str, list[int]] = {}
        self._awaited: set[str] = set()
        self._round = 0
        self._call_over = False
        self._thread = 0
        self._open: ExitStack | None = None
        self._told = None if prompt is None else self._adapter.tokenize(pipe, prompt)
        if self._told is not None or not self._adapter.parts:
            self._learn_prompt(self._told or [])

    # -- entering and leaving ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with _watched_lock:
            if id(self._denoiser) in _watched:
                raise ObserveError("this pipeline is being observed already; leave the other observe block first")
            _watched.add(id(self._denoiser))
        with ExitStack() as stack:
            stack.callback(_watched.discard, id(self._denoiser))

            def before(module: nn.Module, hook: Callable[..., None]) -> None:
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

            def after(module: nn.Module, hook: Callable[..., None], always: bool = False) -> None:
                stack.callback(module.register_forward_hook(hook, with_kwargs=True, always_call=always).remove)

            before(self._denoiser, self._before_denoiser)
            after(self._denoiser, self._after_denoiser)
            for name, encoder in self._adapter.text_encoders(self._pipe).items():
                before(encoder, functools.partial(self._before_text, name))
            for name, module in self._layers.items():
                before(module, functools.partial(self._enter_layer, name))
                after(module, self._leave_layer, always=True)
            for name, module in self._feature_layers.items():
                after(module, functools.partial(self._after_feature_layer, name))
            if self._adapter.encode_method is not None:
                stack.callback(listen(self._pipe, self._adapter.encode_method, self._before_encoding))
            # The scheduler is where a call and its steps begin and end, and where the guided prediction arrives.
            scheduler = self._adapter.scheduler(self._pipe)
            stack.callback(listen(scheduler, "set_timesteps", self._before_timesteps))
            stack.callback(listen(scheduler, "step", self._finish_step))
            self._thread = threading.get_ident()
            stack.callback(self._listen, None)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- the prompt ----------------------------------------------------------------------------------------------

    @_undisturbed
    def _before_encoding(self, *args: object, **kwargs: object) -> None:
        method = getattr(type(self._pipe), str(self._adapter.encode_method))
        given = inspect.signature(method).bind(self._pipe, *args, **kwargs).arguments
        encoders = set(self._adapter.text_encoders(self._pipe))
        if self._adapter.encodes_twice and self._columns is not None and not self._tally.levels:
            self._awaited, self._round = encoders, 2  # the negative prompt, by a call of its own
            return
        if self._told is None:
            self._columns = None
        guided = given.get("do_classifier_free_guidance")
        self._encoded_guided = guided if isinstance(guided, bool) else None
        # The prompt is encoded first, the negative prompt after it; of a prompt given as embeddings the latter only.
        embedded = given.get("prompt_embeds") is not None or given.get("text_model_output") is not None
        self._ids, self._round = {}, 1
        self._awaited = set() if embedded else encoders

    @_undisturbed
    def _before_text(self, name: str, module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        ids = args[0] if args else kwargs.get("input_ids")
        if name not in self._awaited or not isinstance(ids, Tensor) or ids.dim() != 2:
            return
        self._awaited.discard(name)
        if not bool((ids == ids[:1]).all()):
            raise ObserveError("observe watches one prompt per call; call the pipeline once for each prompt")
        self._ids[name] = ids[0].tolist()
        if self._awaited:
            return
        read = [self._ids.get(part.encoder, []) for part in self._adapter.parts]
        if self._round == 2:
            if self._branch in _WITHOUT_PROMPT:
                self._learn_prompt(read)
            return
        if self._told is None:
            self._learn_prompt(read)
        elif any(there[: len(told)] != told[: len(there)] for there, told in zip(read, self._told, strict=True)):
            raise ObserveError("the pipeline was called with another prompt than observe(..., prompt=TEXT) was told")
        if not self._adapter.encodes_twice:
            self._awaited, self._round = set(self._adapter.text_encoders(self._pipe)), 2

    def _learn_prompt(self, ids: list[list[int]]) -> None:
        tokens = self._adapter.prompt_tokens(self._pipe, ids)
        if self._branch in _WITHOUT_PROMPT and self._round != 2 and self._adapter.parts:
            # Until a negative prompt is read: embeddings of zero (SDXL), or none at all.
            tokens = PromptTokens((), tuple("padding" for _ in tokens.kinds))
        words = select_words(tokens, self._asked_words) if self._adapter.parts and tokens.words else ()
        self._columns, self._groups = Columns(words, tokens.kinds), {}

    # -- what happens during the call ----------------------------------------------------------------------------

    @_undisturbed
    def _before_timesteps(self, *args: object, **kwargs: object) -> None:
        self._call_over = bool(self._tally.levels)

    @_undisturbed
    def _before_denoiser(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if self._call_over:
            raise ObserveError("observe watches one call of the pipeline; open another observe block for the next one")
        if self._layers and threading.get_ident() != self._thread:
            raise ObserveError("attention can only be seen in the thread of the observe block; call the pipeline there")
        arguments = self._signature.bind_partial(module, *args, **kwargs).arguments
        guided = getattr(self._pipe, "do_classifier_free_guidance", self._encoded_guided)
        self._call = DenoiserCall(arguments, self._calls, bool(guided))
        self._calls += 1
        self._size = self._adapter.grid(self._pipe, self._call)
        self._listen(None)
        self._reached = set()

    @_undisturbed
    def _after_denoiser(self, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        if self._call is None:
            return
        found = output[0] if isinstance(output, tuple | list) else getattr(output, "sample", output)
        found = getattr(found, "predicted_image_embedding", found)
        prediction, sample = cast(Tensor, found), self._call.tensor(self._adapter.sample_name)
        for name, rows in self._adapter.branches(self._pipe, self._call, len(prediction)).items():
            self._predictions[name], self._inputs[name] = prediction[rows], sample[rows]

    @_undisturbed
    @torch.no_grad()
    def _after_feature_layer(self, name: str, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        if self._call is None:
            return
        if isinstance(output, tuple | list):
            # Joint blocks give (text, picture), others their map first.
            two = self._adapter.joint and len(output) == 2 and (output[0] is None or output[0].dim() == 3)
            output = output[1] if two else output[0]
        held = cast(Tensor, output)
        places = self._adapter.token_places(self._pipe, self._call, held.shape[1]) if held.dim() == 3 else None
        held = held if places is None else held[:, places[0]]
        for branch, rows in self._adapter.branches(self._pipe, self._call, len(held)).items():
            self._pooled[branch, name] = pool(held[rows], None if places is None else places[1], self._cells)

    def _enter_layer(self, name: str, module: nn.Module, args: object, kwargs: object) -> None:
        self._listen(name)

    def _leave_layer(self, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        self._listen(None)

    def _listen(self, layer: str | None) -> None:
        """The mode slows each torch function by some microseconds, so it is on inside of watched layers alone."""
        if threading.get_ident() != self._thread:
            return
        if layer is not None and self._layer is None:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        elif layer is None and self._layer is not None:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._layer = layer

    @_undisturbed
    @torch.no_grad()
    def _on_attention(self, query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> None:
        name, call = self._layer, self._call
        if name is None or call is None:
            return
        self._seen_layers.add(name)
        # Further attention of the layer in this call is to something else: pictures, by an IP-Adapter.
        if name in self._reached:
            return
        section = self._adapter.section(call, self._layers[name], query.shape[-2], key.shape[-2])
        rows = self._adapter.branches(self._pipe, call, len(query)).get(self._branch)
        if section is None:
            self._mismatch = self._mismatch or f"{name} attends from {query.shape[-2]} to {key.shape[-2]} places"
            return
        self._reached.add(name)
        if rows is None:
            return
        mask = mask[rows] if mask is not None and mask.dim() == 4 and len(mask) == len(query) else mask
        if self._attention == "self":
            self._read_places(name, section, query[rows], key[rows], mask, scale)
        else:
            self._read_words(name, section, query[rows], key[rows], mask, scale)

    def _read_words(
        self, name: str, section: Section, query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None
    ) -> None:
        if self._columns is None:
            raise ObserveError(
                "the prompt's words are unknown (it was given as embeddings); pass observe(..., prompt=TEXT)"
            )
        count = section.text.stop - section.text.start
        columns = self._columns.fitted(count)
        if columns is None:
            raise ObserveError(
                f"the prompt has {len(self._columns.kinds)} tokens but {name} attends to {count}; "
                "prompts lengthened by other tools can't be mapped to words"
            )
        place = (*key.shape[1:], section.text.start)
        if place not in self._groups:
            matrix = columns.matrix(self._kinds, key.shape[-2], section.text).to(query.device)
            self._groups[place] = groups_of(matrix, query.shape[-1], query.shape[1])
        mask = mask[..., section.queries, :] if mask is not None and mask.shape[-2] > 1 else mask
        asking, words = query[..., section.queries, :], len(columns.words)
        height, width = self._adapter.map_size(self._size, asking.shape[-2])
        mass = mass_of(asking, key, self._groups[place], mask, scale, heads_apart=self._heads).cpu()
        if self._heads:
            apart = mass[..., :words].permute(0, 3, 1, 2) * mass.shape[1]  # (S, words, heads, places)
            self._step.attention[name] = apart.reshape(*apart.shape[:3], height, width)
            mass = mass.sum(1)
        else:
            self._step.attention[name] = mass[..., :words].transpose(1, 2).reshape(len(mass), -1, height, width)
        self._step.token_mass[name] = mass[..., words : words + len(self._kinds)].mean(1)

    def _read_places(
        self, name: str, section: Section, query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None
    ) -> None:
        height, width = self._adapter.map_size(self._size, section.places.stop - section.places.start)
        there = inside(self._region, height, width).flatten().to(query.device)
        mask = mask[..., section.queries, :][..., there, :] if mask is not None and mask.shape[-2] > 1 else mask
        found = mean_row(query[..., section.queries, :][..., there, :], key, mask, scale)
        self._step.self_attention[name] = found[:, section.places].reshape(len(found), height, width).cpu()

    @_undisturbed
    @torch.no_grad()
    def _finish_step(self, model_output: Tensor, *args: object, **kwargs: object) -> None:
        if self._call is None or "cond" not in self._predictions:
            return
        scheduler = self._adapter.scheduler(self._pipe)
        timestep = args[0] if args else kwargs["timestep"]
        held = cast(Tensor, args[1] if len(args) > 1 else kwargs["sample"])
        level = logsnr_of(scheduler, torch.as_tensor(timestep).reshape(-1)[:1])
        record = self._step
        record.timestep = float(torch.as_tensor(timestep).reshape(-1)[0])
        record.sigma, record.logsnr = float(level.sigma[0]), float(level.logsnr[0])
        if self._guidance or self._x0:
            told = Predicted(self._inputs, self._predictions, model_output, held)
            record.guidance, record.x0 = read_predictions(self._adapter, scheduler, level, told, self._size)
            record.guidance = record.guidance if self._guidance else None
            record.x0 = record.x0 if self._x0 else None
        self._tally.add(record)
        if self._feature_layers:
            self._features.steps.append(self._pooled)
        self._step, self._pooled = StepRecord(0.0, 0.0, 0.0), {}
        self._call, self._calls, self._inputs, self._predictions = None, 0, {}, {}

    # -- the result ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if isinstance(self._problem, ObserveError):
            raise ObserveError(str(self._problem))
        if self._problem is not None:
            raise ObserveError(f"the call can't be observed: {self._problem}") from self._problem
        if not self._tally.levels:
            raise ObserveError("no call of the pipeline was seen: call it inside the observe block")

    @property
    def features(self) -> dict[str, xr.Dataset]:
        """What layers gave out, by dotted name: ``mean``, ``std`` and ``grid`` by sample, branch, step and channel.

        Raises :class:`ObserveError` when nothing was called, or when the call could not be observed as asked.
        """
        self._check()
        return self._features.datasets(self._tally.levels)

    @property
    def trace(self) -> xr.Dataset:
        """What was seen, with named axes ``word, step, layer, y, x`` (see docs/trace.md).

        Raises :class:`ObserveError` when nothing was called, or when the call could not be observed as asked.
        """
        self._check()
        unseen = [name for name in self._layers if name not in self._seen_layers]
        if unseen:
            processor = type(getattr(self._layers[unseen[0]], "processor", None)).__name__
            raise ObserveError(
                f"{unseen[0]} uses {processor}, which does not go through scaled_dot_product_attention, so its "
                f"attention can't be seen; first call {self._adapter.way_to_show}"
            )
        recorded = self._tally.recorded()
        missing = [name for name in self._layers if name not in recorded]
        if missing and self._mismatch:
            raise ObserveError(f"{self._mismatch}, which are not those of this model's text and picture")
        if missing:
            raise ObserveError(f"no call had the branch {self._branch!r}; observe with branch='cond'")
        attrs: dict[str, str | float] = {"denoscope_version": __version__, "branch": self._branch}
        words = self._columns.words if self._columns is not None else ()
        return to_dataset(self._tally, words, self._kinds, list(self._layers), self._size, attrs)
