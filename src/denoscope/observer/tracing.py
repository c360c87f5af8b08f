"""One generation, watched from beginning to end."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import xarray as xr
from diffusers import DiffusionPipeline, SchedulerMixin
from numpy.typing import NDArray

from denoscope.observer.errors import ObserveError
from denoscope.observer.observer import observe, select_words
from denoscope.pipelines.adapters import adapter_for
from denoscope.pipelines.decoding import decode_latents
from denoscope.pipelines.defaults import sampling_defaults


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
    time of ``generate`` and ``decode``. ``warnings`` are plain sentences.
    """

    generation: Generation
    trace: xr.Dataset
    picture: NDArray[np.uint8]
    x0_pictures: list[NDArray[np.uint8]]
    seconds: dict[str, float]
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
    native = pipe.unet.config.sample_size
    native_height, native_width = (native, native) if isinstance(native, int) else native
    width, height = size or (native_width * stride, native_height * stride)
    for name, value in (("width", width), ("height", height)):
        if value % max(stride, 8) or not 8 <= value <= 4096:
            raise ObserveError(f"{name} {value} is not possible: give a multiple of {max(stride, 8)} from 8 to 4096")
    return Generation(prompt, negative_prompt, seed, count, scale, width, height)


def count_steps(pipe: DiffusionPipeline, generation: Generation) -> int:
    """How many scheduler steps a generation takes: some schedulers make more than were asked for."""
    scheduler = copy.deepcopy(pipe.scheduler)  # The pipeline stays as it is.
    scheduler.set_timesteps(generation.num_inference_steps)
    return len(scheduler.timesteps)


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
        scheduler.set_timesteps(count)
    except (ValueError, IndexError, RuntimeError):
        return False
    # Trailing spacing goes down by a float and may go one step too far; leading spacing with an offset starts too high.
    first, last = float(scheduler.timesteps.max()), float(scheduler.timesteps.min())
    is_flow = getattr(scheduler.config, "prediction_type", "") == "flow_prediction"
    return last >= 0 and (is_flow or first < scheduler.config.num_train_timesteps)


def trace_generation(
    pipe: DiffusionPipeline,
    generation: Generation,
    words: Sequence[str] | None = None,
    on_step: Callable[[int], None] | None = None,
    *,
    layers: str = "*",
    x0: bool = True,
) -> Traced:
    """Draw one picture and watch it: attention by word, step and layer, guidance difference, predicted x₀.

    The picture is the one that the pipeline draws unobserved with the same seed (a CPU generator). ``on_step`` is told
    the index of each finished step. ``layers`` limits the layers (a glob on dotted names). ``x0=False`` leaves out the
    predicted x₀, whose decoding takes as long as many steps; then ``x0_pictures`` is empty.
    """
    adapter = adapter_for(pipe)
    warnings: list[str] = []
    ids = adapter.tokenize(pipe, generation.prompt)
    whole = pipe.tokenizer(generation.prompt)["input_ids"]
    if len(whole) > len(ids):
        warnings.append(f"the prompt has {len(whole)} tokens, the model reads the first {len(ids)} only")

    def after_step(_pipe: object, step: int, _timestep: object, kwargs: dict[str, object]) -> dict[str, object]:
        if on_step is not None:
            on_step(step)
        return kwargs

    started = time.perf_counter()
    attention: Literal["cross"] | None = "cross" if adapter.cross_attention(pipe) else None
    with observe(pipe, attention=attention, words=words, layers=layers, x0=x0) as watch:
        output = pipe(
            generation.prompt,
            negative_prompt=generation.negative_prompt or None,
            num_inference_steps=generation.num_inference_steps,
            guidance_scale=generation.guidance_scale,
            width=generation.width,
            height=generation.height,
            generator=torch.Generator("cpu").manual_seed(generation.seed),
            output_type="np",
            callback_on_step_end=after_step,
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
    return Traced(generation, trace, picture, x0_pictures, seconds, tuple(warnings))
