"""``denoscope.observe``: watch one call of a pipeline without changing it."""

import functools
import inspect
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
from denoscope.observer.attention import AttentionMode, column_mass
from denoscope.observer.errors import ObserveError
from denoscope.observer.listening import listen
from denoscope.observer.records import KINDS, StepRecord, Tally, to_dataset
from denoscope.pipelines.adapters import Adapter, Word, adapter_for
from denoscope.pipelines.adapters.base import PromptTokens
from denoscope.schedules import PredictionType, convert_prediction, logsnr_of

_watched: set[int] = set()
_watched_lock = threading.Lock()


def select_words(tokens: PromptTokens, words: Sequence[str] | None) -> tuple[Word, ...]:
    """The words asked for, in the prompt's order; ``None`` asks for all.

    "red" finds every occurrence, "red#2" the second alone; a single word need not stand in a list. Raises
    :class:`ObserveError` for a word that is not in the prompt, naming those that are.
    """
    if words is None:
        return tokens.words
    words = [words] if isinstance(words, str) else words
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

    While it watches there are forward hooks on the denoiser, its cross-attention layers and the text encoder, listeners
    on the pipeline's ``encode_prompt`` and the scheduler's ``set_timesteps`` and ``step``, and a torch-function mode in
    this thread. They read; leaving the block takes them away, also after an exception.
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
        self._guidance, self._x0 = guidance, x0 and keep_steps
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
        self._words: tuple[Word, ...] = ()
        self._columns: Tensor | None = None
        self._layer: str | None = None
        self._call: tuple[Tensor, object, Tensor | None] | None = None
        self._step = StepRecord(0.0, 0.0, 0.0)
        self._size = (0, 0)
        self._problem: Exception | None = None
        self._seen_layers: set[str] = set()
        self._awaits_prompt = False
        self._call_over = False
        self._thread = 0
        self._open: ExitStack | None = None
        self._told = None if prompt is None else self._adapter.tokenize(pipe, prompt)
        if self._told is not None:
            self._learn_prompt(self._told)

    # -- entering and leaving ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        denoiser = self._adapter.denoiser(self._pipe)
        with _watched_lock:
            if id(denoiser) in _watched:
                raise ObserveError("this pipeline is being observed already; leave the other observe block first")
            _watched.add(id(denoiser))
        with ExitStack() as stack:
            stack.callback(_watched.discard, id(denoiser))

            def before(module: nn.Module, hook: Callable[..., None]) -> None:
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

            def after(module: nn.Module, hook: Callable[..., None], always: bool = False) -> None:
                stack.callback(module.register_forward_hook(hook, with_kwargs=True, always_call=always).remove)

            before(denoiser, self._before_denoiser)
            after(denoiser, self._after_denoiser)
            encoder = self._adapter.text_encoder(self._pipe)
            if encoder is not None:
                before(encoder, self._before_text)
            for name, module in self._layers.items():
                before(module, functools.partial(self._enter_layer, name))
                after(module, self._leave_layer, always=True)
            stack.callback(listen(self._pipe, "encode_prompt", self._before_encoding))
            # The scheduler is where a call and its steps begin and end, and where the guided prediction arrives.
            stack.callback(listen(self._pipe.scheduler, "set_timesteps", self._before_timesteps))
            stack.callback(listen(self._pipe.scheduler, "step", self._finish_step))
            if self._layers:
                self._thread = threading.get_ident()
                stack.enter_context(AttentionMode(self._on_attention))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- what happens during the call ----------------------------------------------------------------------------

    @_undisturbed
    def _before_encoding(self, *args: object, **kwargs: object) -> None:
        if self._told is None:
            self._words, self._columns = (), None
        given = inspect.signature(type(self._pipe).encode_prompt).bind(self._pipe, *args, **kwargs).arguments
        # The prompt is encoded first, the negative prompt after it; of a prompt given as embeddings the latter only.
        self._awaits_prompt = given.get("prompt_embeds") is None

    @_undisturbed
    def _before_text(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        ids = args[0] if args else kwargs.get("input_ids")
        if not self._awaits_prompt or not isinstance(ids, Tensor) or ids.dim() != 2:
            return
        self._awaits_prompt = False
        if not bool((ids == ids[:1]).all()):
            raise ObserveError("observe watches one prompt per call; call the pipeline once for each prompt")
        if self._told is None:
            self._learn_prompt(ids[0].tolist())
        elif self._told != ids[0].tolist():
            raise ObserveError("the pipeline was called with another prompt than observe(..., prompt=TEXT) was told")

    def _learn_prompt(self, ids: list[int]) -> None:
        tokens = self._adapter.prompt_tokens(self._pipe, ids)
        self._words = select_words(tokens, self._asked_words)
        columns = torch.zeros(len(ids), len(self._words) + len(KINDS))
        for column, word in enumerate(self._words):
            columns[list(word.positions), column] = 1
        for position, kind in enumerate(tokens.kinds):
            columns[position, len(self._words) + KINDS.index(kind)] = 1
        self._columns = columns

    @_undisturbed
    def _before_timesteps(self, *args: object, **kwargs: object) -> None:
        self._call_over = bool(self._tally.levels)

    @_undisturbed
    def _before_denoiser(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if self._call_over:
            raise ObserveError("observe watches one call of the pipeline; open another observe block for the next one")
        if self._layers and threading.get_ident() != self._thread:
            raise ObserveError("attention can only be seen in the thread of the observe block; call the pipeline there")
        sample = args[0] if args else kwargs["sample"]
        timestep = args[1] if len(args) > 1 else kwargs["timestep"]
        self._call = (cast(Tensor, sample), timestep, None)
        self._layer = None

    @_undisturbed
    def _after_denoiser(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        if self._call is not None:
            prediction = output[0] if isinstance(output, tuple | list) else getattr(output, "sample", output)
            self._call = (self._call[0], self._call[1], cast(Tensor, prediction))

    def _enter_layer(self, name: str, module: nn.Module, args: object, kwargs: object) -> None:
        self._layer = name

    def _leave_layer(self, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        self._layer = None

    @_undisturbed
    @torch.no_grad()
    def _on_attention(self, query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> None:
        if self._layer is None or self._call is None:
            return
        self._seen_layers.add(self._layer)
        if self._columns is None:
            raise ObserveError(
                "the prompt's words are unknown (it was given as embeddings); pass observe(..., prompt=TEXT)"
            )
        if key.shape[-2] != len(self._columns):
            raise ObserveError(
                f"the prompt has {len(self._columns)} tokens but {self._layer} attends to {key.shape[-2]}; "
                "prompts lengthened by other tools can't be mapped to words"
            )
        sample = self._call[0]
        rows = self._adapter.branches(self._pipe, query)["cond"]
        height, width = self._adapter.map_size(sample, query.shape[-2])
        mask = mask[rows] if mask is not None and mask.dim() == 4 and len(mask) == len(query) else mask
        mass = column_mass(query[rows], key[rows], self._columns.to(query.device), mask, scale).cpu()
        maps, kinds = torch.split(mass, [len(self._words), len(KINDS)], dim=-1)
        self._step.attention[self._layer] = maps.transpose(1, 2).reshape(len(maps), -1, height, width)
        self._step.token_mass[self._layer] = kinds.mean(1)

    @_undisturbed
    @torch.no_grad()
    def _finish_step(self, model_output: Tensor, *args: object, **kwargs: object) -> None:
        if self._call is None or self._call[2] is None:
            return
        sample, timestep, prediction = self._call
        assert prediction is not None
        scheduler = self._pipe.scheduler
        level = logsnr_of(scheduler, torch.as_tensor(timestep).reshape(-1)[:1])
        record = self._step
        record.timestep = float(torch.as_tensor(timestep).reshape(-1)[0])
        record.sigma, record.logsnr = float(level.sigma[0]), float(level.logsnr[0])
        if (self._guidance or self._x0) and "sigma_data" in scheduler.config:
            raise ObserveError(
                f"{type(scheduler).__name__} rescales what the model predicts, so that x0 and guidance can't be told; "
                "observe with guidance=False, x0=False"
            )
        kind = cast(PredictionType, getattr(scheduler.config, "prediction_type", "epsilon"))
        if kind == "flow_prediction":
            alpha, sigma = 1 - record.sigma, record.sigma
        else:
            alpha, sigma = float(level.logsnr.sigmoid().sqrt()), float((-level.logsnr).sigmoid().sqrt())
        branches = self._adapter.branches(self._pipe, prediction)
        channels = sample.shape[1]
        self._size = (int(sample.shape[-2]), int(sample.shape[-1]))
        # Also for the Euler family: what the denoiser is given is scaled to unit variance, whatever the sampler holds.
        z = sample[branches["cond"]].float()
        if self._guidance and "uncond" in branches:
            predicted = (prediction[branches[name]][:, :channels].float() for name in ("cond", "uncond"))
            cond, uncond = (convert_prediction(p, kind, "epsilon", z, alpha, sigma) for p in predicted)
            record.guidance = (cond - uncond).square().sum(1).cpu()
        if self._x0:
            clean = convert_prediction(model_output[:, :channels].float(), kind, "sample", z, alpha, sigma)
            record.x0 = clean.to("cpu", copy=True)
        self._tally.add(record)
        self._step = StepRecord(0.0, 0.0, 0.0)
        self._call = None

    # -- the result ----------------------------------------------------------------------------------------------

    @property
    def trace(self) -> xr.Dataset:
        """What was seen, with named axes ``word, step, layer, y, x`` (see docs/trace.md).

        Raises :class:`ObserveError` when nothing was called, or when the call could not be observed as asked.
        """
        if isinstance(self._problem, ObserveError):
            raise ObserveError(str(self._problem))
        if self._problem is not None:
            raise ObserveError(f"the call can't be observed: {self._problem}") from self._problem
        if not self._tally.levels:
            raise ObserveError("no call of the pipeline was seen: call it inside the observe block")
        unseen = [name for name in self._layers if name not in self._seen_layers]
        if unseen:
            processor = type(getattr(self._layers[unseen[0]], "processor", None)).__name__
            raise ObserveError(
                f"{unseen[0]} uses {processor}, which does not go through scaled_dot_product_attention, so its "
                "attention can't be seen; first call pipe.unet.set_attn_processor(AttnProcessor2_0()), "
                "from diffusers.models.attention_processor"
            )
        attrs: dict[str, str | float] = {"denoscope_version": __version__}
        return to_dataset(self._tally, self._words, list(self._layers), self._size, attrs)


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
    ``keep_steps=False`` keeps means over steps instead of every step, and no ``x0``, so that memory does not grow with
    their number. ``prompt`` tells the words when the pipeline is called with ``prompt_embeds``.

    Raises :class:`ObserveError` here when no layer matches or ``words`` are not in ``prompt``, on entering when the
    pipeline is being observed already, and from ``trace`` when the call could not be observed as asked.
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
