"""``denoscope.observe``: watch one call of a pipeline without changing it."""

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self, cast

import torch
import xarray as xr
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope._version import __version__
from denoscope.observer.choosing import attention_layers, feature_layers, refuse
from denoscope.observer.errors import ObserveError
from denoscope.observer.features import FeatureTally, Pooled, pool
from denoscope.observer.levels import LevelReader
from denoscope.observer.listening import listen
from denoscope.observer.predictions import Predicted, read_predictions
from denoscope.observer.prompting import PromptReader
from denoscope.observer.reading import AttentionReader
from denoscope.observer.records import StepRecord, Tally, to_dataset
from denoscope.observer.regions import Region, checked
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
        keep_steps: bool,
        prompt: str | None,
    ) -> None:
        self._pipe = pipe
        self._adapter: Adapter = adapter_for(pipe)
        self._denoiser = self._adapter.denoiser(pipe)
        self._guidance, self._x0 = guidance, x0 and keep_steps
        self._branch, self._cells = branch, feature_grid
        region = checked(region)
        refuse(pipe, self._adapter, self._denoiser)
        watched: Mapping[str, nn.Module] = {}
        if attention is not None:
            watched = attention_layers(self._adapter, pipe, attention, layers)
        self._feature_layers = feature_layers(self._adapter, self._denoiser, features, feature_grid)
        self._tally, self._features = Tally(keep_steps), FeatureTally()
        self._shield = Shield()
        self._prompt = PromptReader(pipe, self._adapter, words, branch, prompt, lambda: bool(self._tally.levels))
        self._attention = AttentionReader(
            pipe,
            self._adapter,
            watched,
            self._prompt,
            self._tally,
            self._shield,
            attends=attention,
            branch=branch,
            heads=heads,
            region=region,
        )
        self._levels = LevelReader(self._adapter.scheduler(pipe))
        self._arguments = tuple(inspect.signature(type(self._denoiser).forward).parameters)[1:]
        self._call: DenoiserCall | None = None
        self._calls = 0
        self._rows: dict[int, Mapping[Branch, slice]] = {}
        self._inputs: dict[Branch, Tensor] = {}
        self._predictions: dict[Branch, Tensor] = {}
        self._step = StepRecord(0.0, 0.0, 0.0)
        self._pooled: dict[tuple[Branch, str], Pooled] = {}
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

            def before(module: nn.Module, hook: Callable[..., None]) -> None:
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

            def after(module: nn.Module, hook: Callable[..., None], always: bool = False) -> None:
                stack.callback(module.register_forward_hook(hook, with_kwargs=True, always_call=always).remove)

            quiet, reader = self._shield, self._attention
            stack.callback(quiet(reader.read_kept))
            before(self._denoiser, quiet(self._before_denoiser))
            after(self._denoiser, quiet(self._after_denoiser))
            for name, encoder in self._adapter.text_encoders(self._pipe).items():
                before(encoder, quiet(functools.partial(self._prompt.before_text, name)))
            for name, module in reader.layers.items():
                before(module, functools.partial(reader.enter, name))
                after(module, reader.leave, always=True)
            for name, module in self._feature_layers.items():
                after(module, quiet(functools.partial(self._after_feature_layer, name)))
            if self._adapter.encode_method is not None:
                stack.callback(listen(self._pipe, self._adapter.encode_method, quiet(self._prompt.before_encoding)))
            # The scheduler is where a call and its steps begin and end, and where the guided prediction arrives.
            scheduler = self._adapter.scheduler(self._pipe)
            stack.callback(listen(scheduler, "set_timesteps", quiet(self._before_timesteps)))
            stack.callback(listen(scheduler, "step", quiet(self._finish_step)))
            reader.thread = threading.get_ident()
            stack.callback(reader.leave)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

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
        self._rows = {}
        self._size = self._adapter.grid(self._pipe, self._call)
        reader.begin_call(self._call, self._size, self._step)

    def _branches(self, call: DenoiserCall, count: int) -> Mapping[Branch, slice]:
        if count not in self._rows:
            self._rows[count] = self._adapter.branches(self._pipe, call, count)
        return self._rows[count]

    def _after_denoiser(self, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        if self._call is None:
            return
        found = output[0] if isinstance(output, tuple | list) else getattr(output, "sample", output)
        found = getattr(found, "predicted_image_embedding", found)
        prediction, sample = cast(Tensor, found), self._call.tensor(self._adapter.sample_name)
        for name, rows in self._branches(self._call, len(prediction)).items():
            self._predictions[name] = prediction[rows]
            if self._guidance or self._x0:
                self._inputs[name] = sample[rows]

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
        for branch, rows in self._branches(self._call, len(held)).items():
            self._pooled[branch, name] = pool(held[rows], None if places is None else places[1], self._cells)

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
        if self._feature_layers:
            self._features.steps.append(self._pooled)
        self._attention.end_step()
        self._step, self._pooled = StepRecord(0.0, 0.0, 0.0), {}
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

        Raises :class:`ObserveError` when nothing was called, or when the call could not be observed as asked.
        """
        self._check()
        return self._features.datasets(self._tally.levels)

    @property
    def trace(self) -> xr.Dataset:
        """What was seen, with named axes ``word, step, layer, y, x`` (see docs/trace.md).

        Raises :class:`ObserveError` when nothing was called, or when the call could not be observed as asked.
        """
        self._shield(self._attention.read_kept)()
        self._check()
        self._attention.check(self._adapter.denoiser_name, self._tally.recorded())
        attrs: dict[str, str | float] = {"denoscope_version": __version__, "branch": self._branch}
        words = self._prompt.columns.words if self._prompt.columns is not None else ()
        layers = list(self._attention.layers)
        return to_dataset(self._tally, words, self._adapter.kinds, layers, self._size, attrs)
