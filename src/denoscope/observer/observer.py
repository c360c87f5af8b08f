"""``denoscope.observe``: watch one call of a pipeline without changing it."""

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import torch
import xarray as xr
from diffusers import DiffusionPipeline
from numpy.typing import ArrayLike
from torch import Tensor, nn

from denoscope._version import __version__
from denoscope.observer.choosing import attention_layers, feature_layers, refuse
from denoscope.observer.debugging import LayerTimer, Tell, print_report
from denoscope.observer.errors import ObserveError
from denoscope.observer.feature_reading import FeatureReader
from denoscope.observer.levels import LevelReader
from denoscope.observer.listening import listen
from denoscope.observer.predictions import Predicted, read_predictions
from denoscope.observer.prompting import PromptReader
from denoscope.observer.raw import RawType, read_raw
from denoscope.observer.reading import AttentionReader
from denoscope.observer.records import StepRecord, Tally, to_dataset
from denoscope.observer.regions import Region
from denoscope.observer.shielding import Shield
from denoscope.pipelines.adapters import Adapter, Attends, Branch, DenoiserCall, adapter_for

_watched: set[int] = set()
_watched_lock = threading.Lock()


class Observer:
    """Watches the calls made inside its ``with`` block; use it through :func:`observe`.

    While it watches there are forward hooks on the denoiser, its attention layers and the text encoders, listeners on
    the pipeline's way to encode prompts and the scheduler's ``set_timesteps`` and ``step``, and, inside of watched
    layers, one on the attention kernel. They read; leaving the block takes them away, also after an exception.
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
        feature_weights: Mapping[str, ArrayLike] | None,
        raw_features: Path | str | None,
        raw_dtype: RawType,
        keep_steps: bool,
        prompt: str | None,
        debug: bool | Tell,
    ) -> None:
        self._pipe = pipe
        self._adapter: Adapter = adapter_for(pipe)
        self._denoiser = self._adapter.denoiser(pipe)
        self._guidance, self._x0, self._branch = guidance, x0 and keep_steps, branch
        refuse(pipe, self._adapter, self._denoiser)
        self._tally, self._shield = Tally(keep_steps), Shield()
        self._timer: LayerTimer | None = None
        if debug:
            tell = print_report if debug is True else debug
            self._timer = LayerTimer(tell, pipe.device, lambda: len(self._tally.levels))
        watched: Mapping[str, nn.Module] = {}
        if attention is not None:
            watched = attention_layers(self._adapter, pipe, attention, layers)
        self._prompt = PromptReader(pipe, self._adapter, words, branch, prompt, lambda: bool(self._tally.levels))
        self._attention = AttentionReader(
            pipe,
            self._adapter,
            watched,
            self._prompt,
            self._tally,
            self._aside,
            attends=attention,
            branch=branch,
            heads=heads,
            region=region,
        )
        self._features = FeatureReader(
            pipe,
            self._adapter,
            feature_layers(self._adapter, self._denoiser, features, feature_grid),
            cells=feature_grid,
            weights=feature_weights,
            raw=raw_features,
            raw_dtype=raw_dtype,
        )
        self._levels = LevelReader(self._adapter.scheduler(pipe))
        self._arguments = tuple(inspect.signature(type(self._denoiser).forward).parameters)[1:]
        self._call: DenoiserCall | None = None
        self._calls = 0
        self._inputs: dict[Branch, Tensor] = {}
        self._predictions: dict[Branch, Tensor] = {}
        self._step = StepRecord(0.0, 0.0, 0.0)
        self._size = (0, 0)
        self._call_over = False
        self._open: ExitStack | None = None

    # -- entering and leaving ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with _watched_lock:
            if id(self._denoiser) in _watched:
                raise ObserveError("this pipeline is being observed already; leave the other observe block first")
            _watched.add(id(self._denoiser))
        with ExitStack() as stack:
            stack.callback(_watched.discard, id(self._denoiser))
            if self._features.raw is not None:
                self._features.raw.open()
                stack.push(self._close_raw)
            stack.callback(self._shield(self._attention.read_kept))
            self._hang(stack)
            self._attention.thread = threading.get_ident()
            stack.callback(self._attention.leave)
            self._open = stack.pop_all()
        return self

    def _hang(self, stack: ExitStack) -> None:
        def before(module: nn.Module, hook: Callable[..., None]) -> None:
            stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

        def after(module: nn.Module, hook: Callable[..., None], always: bool = False) -> None:
            stack.callback(module.register_forward_hook(hook, with_kwargs=True, always_call=always).remove)

        quiet, layers, features = self._shield, self._attention.layers, self._features.layers
        before(self._denoiser, quiet(self._before_denoiser))
        after(self._denoiser, quiet(self._after_denoiser))
        for name, encoder in self._adapter.text_encoders(self._pipe).items():
            before(encoder, quiet(functools.partial(self._prompt.before_text, name)))
        for name, module in layers.items():
            before(module, functools.partial(self._attention.enter, name))
            after(module, self._attention.leave, always=True)
        if self._timer is not None:
            for name, module in {**layers, **features}.items():
                reads = tuple(what for what, some in (("attention", layers), ("features", features)) if name in some)
                before(module, quiet(functools.partial(self._timer.before, name)))
                after(module, quiet(functools.partial(self._timer.after, name, reads)))
        for name, module in features.items():
            after(module, self._aside(functools.partial(self._features.after_layer, name)))
        if self._adapter.encode_method is not None:
            stack.callback(listen(self._pipe, self._adapter.encode_method, quiet(self._prompt.before_encoding)))
        # The scheduler is where a call and its steps begin and end, and where the guided prediction arrives.
        scheduler = self._adapter.scheduler(self._pipe)
        stack.callback(listen(scheduler, "set_timesteps", quiet(self._before_timesteps)))
        stack.callback(listen(scheduler, "step", quiet(self._finish_step)))

    def _aside(self, hook: Callable[..., None]) -> Callable[..., None]:
        """A hook inside of layers: quiet, and no part of the time that a layer takes."""
        quiet = self._shield(hook)
        return quiet if self._timer is None else self._timer.aside(quiet)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            opened.__exit__(kind, error, trace)

    def _close_raw(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        raw = self._features.raw
        if raw is None:
            return
        if kind is None and self._tally.levels:
            self._shield(raw.finish)(self._tally.levels)
        raw.discard()

    # -- what happens during the call ----------------------------------------------------------------------------

    def _before_timesteps(self, *args: object, **kwargs: object) -> None:
        self._call_over = bool(self._tally.levels)

    def _before_denoiser(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if self._call_over:
            raise ObserveError("observe watches one call of the pipeline; open another observe block for the next one")
        reader = self._attention
        if reader.layers and threading.get_ident() != reader.thread:
            raise ObserveError("attention can only be seen in the thread of the observe block; call the pipeline there")
        arguments = {**dict(zip(self._arguments, args, strict=False)), **kwargs}
        guided = getattr(self._pipe, "do_classifier_free_guidance", self._prompt.guided)
        self._call = DenoiserCall(arguments, self._calls, bool(guided))
        self._calls += 1
        self._size = self._adapter.grid(self._pipe, self._call)
        reader.begin_call(self._call, self._size, self._step)
        self._features.begin_call(self._call)

    def _after_denoiser(self, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        if self._call is None:
            return
        found = output[0] if isinstance(output, tuple | list) else getattr(output, "sample", output)
        found = getattr(found, "predicted_image_embedding", found)
        prediction, sample = cast(Tensor, found), self._call.tensor(self._adapter.sample_name)
        for name, rows in self._adapter.branches(self._pipe, self._call, len(prediction)).items():
            self._predictions[name], self._inputs[name] = prediction[rows], sample[rows]

    @torch.no_grad()
    def _finish_step(self, model_output: Tensor, *args: object, **kwargs: object) -> None:
        if self._call is None or "cond" not in self._predictions:
            return
        held = cast(Tensor, args[1] if len(args) > 1 else kwargs["sample"])
        record = self._step
        record.timestep, level = self._levels.at(args[0] if args else kwargs["timestep"])
        record.sigma, record.logsnr = float(level.sigma[0]), float(level.logsnr[0])
        if self._guidance or self._x0:
            told = Predicted(self._inputs, self._predictions, model_output, held)
            scheduler = self._adapter.scheduler(self._pipe)
            guidance, x0 = read_predictions(self._adapter, scheduler, level, told, self._size)
            record.guidance, record.x0 = guidance if self._guidance else None, x0 if self._x0 else None
        self._tally.add(record)
        self._features.end_step()
        self._attention.end_step()
        self._step = StepRecord(0.0, 0.0, 0.0)
        self._call, self._calls, self._inputs, self._predictions = None, 0, {}, {}

    # -- the result ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        problem = self._shield.problem
        if isinstance(problem, ObserveError):
            raise ObserveError(str(problem))
        if problem is not None:
            raise ObserveError(f"the call can't be observed: {problem}") from problem
        if not self._tally.levels:
            raise ObserveError("no call of the pipeline was seen: call it inside the observe block")

    @property
    def features(self) -> dict[str, xr.Dataset]:
        """What layers gave out, by dotted name: ``mean``, ``std`` and ``grid`` by sample, branch, step and channel.

        With weights also ``weighted``. Raises :class:`ObserveError` when nothing was called, or when the call could not
        be observed as asked.
        """
        self._check()
        return self._features.datasets(self._tally.levels)

    @property
    def raw(self) -> dict[str, xr.DataArray]:
        """What layers gave out, whole, by dotted name; read from disk where it is used (see :func:`read_raw`).

        Raises :class:`ObserveError` as ``features`` does, inside of the block, and when nothing was asked for.
        """
        self._check()
        if self._features.raw is None:
            raise ObserveError("no whole outputs were asked for: observe with raw_features=FOLDER")
        if self._open is not None:
            raise ObserveError("whole outputs can be read when the observe block has ended")
        return read_raw(self._features.raw.folder)

    @property
    def trace(self) -> xr.Dataset:
        """What was seen, with named axes ``word, step, layer, y, x`` (see docs/trace.md).

        Raises :class:`ObserveError` when nothing was called, or when the call could not be observed as asked.
        """
        self._shield(self._attention.read_kept)()
        self._check()
        self._attention.check(self._adapter.way_to_show, self._tally.recorded())
        attrs: dict[str, str | float] = {"denoscope_version": __version__, "branch": self._branch}
        words = self._prompt.columns.words if self._prompt.columns is not None else ()
        layers = list(self._attention.layers)
        return to_dataset(self._tally, words, self._adapter.kinds, layers, self._size, attrs)
