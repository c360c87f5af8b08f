"""One generation, watched from beginning to end."""

import copy
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from diffusers import DiffusionPipeline, ModelMixin, SchedulerMixin
from numpy.typing import NDArray

from denoscope.observer.errors import ObserveError
from denoscope.observer.regions import Region
from denoscope.observer.watching import observe
from denoscope.observer.words import select_words
from denoscope.pipelines.adapters import Adapter, Attends, Branch, adapter_for
from denoscope.pipelines.decoding import decode_latents
from denoscope.pipelines.defaults import sampling_defaults
from denoscope.pipelines.errors import ModelError
from denoscope.schedules import prediction_type_of


@dataclass(frozen=True, slots=True)
class Generation:
    """What was asked of a pipeline; every value is set."""

    prompt: str
    negative_prompt: str
    seed: int
    num_inference_steps: int
    guidance_scale: float
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Traced:
    """A watched generation.

    ``picture`` and each of ``x0_pictures`` (one per step, or none) are ``(H, W, 3)`` uint8. ``seconds`` has the wall
    time of ``generate`` and ``decode``. ``features`` has what layers gave out, pooled, by layer.
    ``warnings`` are plain sentences.
    """

    generation: Generation
    trace: xr.Dataset
    picture: NDArray[np.uint8]
    x0_pictures: list[NDArray[np.uint8]]
    seconds: dict[str, float]
    features: dict[str, xr.Dataset]
    warnings: tuple[str, ...]


def plan_generation(
    pipe: DiffusionPipeline,
    prompt: str,
    *,
    negative_prompt: str = "",
    seed: int = 0,
    steps: int | None = None,
    guidance_scale: float | None = None,
    size: tuple[int, int] | None = None,
    words: Sequence[str] | None = None,
) -> Generation:
    """Fill in the model's defaults and check everything that can be checked before the first step.

    ``size`` is (width, height) in pixels. Raises :class:`ObserveError` in one sentence for an empty prompt, a word that
    is not in it, a number of steps that the scheduler can't make, or a size that the autoencoder can't;
    :class:`ModelError` for a pipeline that is not supported.
    """
    adapter = adapter_for(pipe)
    _check_call(pipe, adapter)
    if not prompt.strip():
        raise ObserveError("the prompt is empty: say what the picture should show")
    for name, text in (("prompt", prompt), ("negative prompt", negative_prompt)):
        if not _is_unicode(text):
            raise ObserveError(f"the {name} is not valid Unicode: give it as UTF-8")
    defaults = sampling_defaults(pipe)
    select_words(adapter.prompt_tokens(pipe, adapter.tokenize(pipe, prompt)), words)
    count = defaults.num_inference_steps if steps is None else steps
    _check_steps(pipe, count)
    scale = defaults.guidance_scale if guidance_scale is None else guidance_scale
    if not (0 <= scale <= 100):
        raise ObserveError(f"guidance {scale:g} is out of range: give a number from 0 to 100 (1 turns it off)")
    stride = int(pipe.vae_scale_factor)
    native_height, native_width = _native_size(pipe, adapter)
    width, height = size or (native_width * stride, native_height * stride)
    multiple = max(stride * adapter.patch, 8)
    for name, value in (("width", width), ("height", height)):
        if value % multiple or not 8 <= value <= 4096:
            raise ObserveError(f"{name} {value} is not possible: give a multiple of {multiple} from 8 to 4096")
    return Generation(prompt, negative_prompt, seed, count, scale, width, height)


def _native_size(pipe: DiffusionPipeline, adapter: Adapter) -> tuple[int, int]:
    """Height and width of the latents that a model was trained on."""
    denoiser: ModelMixin = getattr(pipe, adapter.denoiser_name)
    native = getattr(pipe, "default_sample_size", None) or denoiser.config.sample_size
    return (native, native) if isinstance(native, int) else (int(native[0]), int(native[1]))


def _check_call(pipe: DiffusionPipeline, adapter: Adapter) -> None:
    """Whether a prompt is all that a pipeline's call needs."""
    accepted = inspect.signature(type(pipe).__call__).parameters
    needed = ("prompt", "num_inference_steps", "guidance_scale", "height", "width")
    if any(name not in accepted for name in needed) or ("image" in accepted and not adapter.image_is_optional):
        raise ModelError(
            f"{type(pipe).__name__} is not drawn from a prompt alone; call it yourself in Python, inside "
            "denoscope.observe(pipe)"
        )


def count_steps(pipe: DiffusionPipeline, generation: Generation) -> int:
    """How many scheduler steps a generation takes: some schedulers make more than were asked for."""
    scheduler = copy.deepcopy(pipe.scheduler)  # The pipeline stays as it is.
    _set(scheduler, generation.num_inference_steps)
    return len(scheduler.timesteps)


def _set(scheduler: SchedulerMixin, count: int) -> None:
    """Flux's shift depends on the picture's size, and doesn't change how many steps there are."""
    scheduler.set_timesteps(count, **({"mu": 1.0} if scheduler.config.get("use_dynamic_shifting") else {}))


def _is_unicode(text: str) -> bool:
    """Bytes of a command line that are no UTF-8 arrive as lone surrogates, which no tokenizer takes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_steps(pipe: DiffusionPipeline, count: int) -> None:
    """Some schedulers make another number of steps than asked, or steps that don't exist."""
    scheduler = pipe.scheduler
    most = int(scheduler.config.num_train_timesteps)
    if not 1 <= count <= most:
        raise ObserveError(f"{count} steps are not possible: this scheduler makes 1 to {most}")
    if not _makes(scheduler, count):
        others = sorted(set(range(1, most + 1)) - {count}, key=lambda other: abs(other - count))
        near = next((f": take {other}" for other in others if _makes(scheduler, other)), "")
        raise ObserveError(f"{type(scheduler).__name__} can't make {count} steps as it is configured{near}")


def _makes(scheduler: SchedulerMixin, count: int) -> bool:
    """Whether a scheduler makes that many steps, all of them at noise that the model was trained on."""
    scheduler = copy.deepcopy(scheduler)  # The pipeline stays as it is.
    try:
        _set(scheduler, count)
    except (ValueError, IndexError, RuntimeError):
        return False
    # Trailing spacing goes down by a float and may go one step too far; leading spacing with an offset starts too high.
    first, last = float(scheduler.timesteps.max()), float(scheduler.timesteps.min())
    is_flow = prediction_type_of(scheduler) == "flow_prediction"
    return last >= 0 and (is_flow or first < scheduler.config.num_train_timesteps)


def trace_generation(
    pipe: DiffusionPipeline,
    generation: Generation,
    words: Sequence[str] | None = None,
    on_step: Callable[[int], None] | None = None,
    *,
    layers: str = "*",
    branch: Branch = "cond",
    region: Region | None = None,
    heads: bool = False,
    features: bool | Sequence[str] = False,
    x0: bool = True,
    debug: bool = False,
) -> Traced:
    """Draw one picture and watch it: attention by word, step and layer, guidance difference, predicted x₀.

    The picture is the one that the pipeline draws unobserved with the same seed (a CPU generator). ``on_step`` is told
    the index of each finished step. ``layers`` limits the layers (a glob on dotted names), ``branch`` is the branch of
    guidance that is read. With a ``region`` (see :func:`observe`) the trace has ``self_attention``, where the region
    looks, in place of the words'. ``heads``, ``features`` and ``debug`` are those of :func:`observe`. ``x0=False``
    leaves out the predicted x₀, whose decoding takes as long as many steps; then ``x0_pictures`` is empty.
    """
    adapter = adapter_for(pipe)
    warnings: list[str] = []
    for part, ids in zip(adapter.parts, adapter.tokenize(pipe, generation.prompt), strict=True):
        tokenizer = adapter.tokenizer(pipe, part) if ids else None
        whole = [] if tokenizer is None else tokenizer(generation.prompt)["input_ids"]
        if len(whole) > len(ids):
            warnings.append(f"the prompt has {len(whole)} tokens, the model reads the first {len(ids)} only")

    started = time.perf_counter()
    attention: Attends | None = "cross" if adapter.layers(pipe, "cross") else None
    attention = attention if region is None else "self"
    watching = observe(
        pipe,
        attention=attention,
        words=words,
        layers=layers,
        branch=branch,
        region=region,
        heads=heads,
        features=features,
        x0=x0,
        debug=debug,
    )
    with watching as watch:
        output = pipe(
            prompt=generation.prompt,
            guidance_scale=generation.guidance_scale,
            generator=torch.Generator("cpu").manual_seed(generation.seed),
            output_type="np",
            **call_arguments(pipe, generation, on_step),
        )
    generated = time.perf_counter()
    if not np.isfinite(output.images).all():
        warnings.append("the picture holds values that are not finite: the model overflowed, try float32")
    if any(getattr(output, "nsfw_content_detected", None) or ()):
        warnings.append("the model's safety checker blacked the picture out")
    picture = np.rint(np.nan_to_num(output.images[0]) * 255).astype(np.uint8)
    trace = watch.trace
    x0_pictures = decode_latents(pipe, torch.from_numpy(trace.x0.values)) if x0 else []
    trace.attrs.update(
        prompt=generation.prompt,
        negative_prompt=generation.negative_prompt,
        guidance_scale=generation.guidance_scale,
    )
    seconds = {"generate": generated - started, "decode": time.perf_counter() - generated}
    pooled = watch.features if features else {}
    return Traced(generation, trace, picture, x0_pictures, seconds, pooled, tuple(warnings))


def call_arguments(
    pipe: DiffusionPipeline, generation: Generation, on_step: Callable[[int], None] | None = None
) -> dict[str, object]:
    """A generation's arguments beside prompt, guidance and generator, those alone that the pipeline takes."""

    def after_step(_pipe: object, step: int, _timestep: object, kwargs: dict[str, object]) -> dict[str, object]:
        if on_step is not None:
            on_step(step)
        return kwargs

    accepted = inspect.signature(type(pipe).__call__).parameters
    wanted: dict[str, object] = {
        "num_inference_steps": generation.num_inference_steps,
        "width": generation.width,
        "height": generation.height,
        "callback_on_step_end": after_step,
        "use_resolution_binning": False,  # PixArt would draw another size and scale the picture
    }
    if generation.negative_prompt:
        wanted["negative_prompt"] = generation.negative_prompt
    return {name: value for name, value in wanted.items() if name in accepted}
