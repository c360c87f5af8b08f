"""What each word of a traced generation tells, as further variables of its trace."""

from collections.abc import Callable, Mapping, Sequence

import xarray as xr
from diffusers import DiffusionPipeline

from denoscope.information.guidance_information import word_information
from denoscope.information.leaving_out import How
from denoscope.observer.tracing import Generation, call_arguments


def traced_information(
    pipe: DiffusionPipeline,
    generation: Generation,
    words: Sequence[str] | None = None,
    *,
    how: How = "omit",
    neutral: Mapping[str, str] | None = None,
    gradient: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> xr.Dataset:
    """:func:`~denoscope.information.guidance_information.word_information` of a generation, named for its trace.

    The generation is drawn once more, with one further denoiser call a word and step: an observer that watches the
    first one then sees the pipeline's own calls alone. Returns over ``(word, step, y, x)`` ``information_rate`` (nats
    per unit of logsnr), ``information_injected`` and ``information_written`` (nats); ``information_total`` ``(word,)``;
    with ``gradient`` also ``information_gradient`` ``(word, step)``; ``picture`` as it was drawn. Attributes
    ``information_quantity``, *information* or *guidance effort*, and ``information_how``.

    Raises what :func:`word_information` raises.
    """
    found = word_information(
        pipe,
        generation.prompt,
        words,
        how=how,
        neutral=dict(neutral or {}),
        guidance_scale=generation.guidance_scale,
        seed=generation.seed,
        gradient=gradient,
        **call_arguments(pipe, generation, on_step),
    )
    kept = ("rate", "injected", "written", "total", "gradient")
    named = found.rename({name: f"information_{name}" for name in kept if name in found})
    named = named.drop_vars("logsnr")  # the trace has it
    named.attrs = {f"information_{name}": found.attrs[name] for name in ("quantity", "how")}
    return named


def with_information(trace: xr.Dataset, found: xr.Dataset) -> xr.Dataset:
    """A trace with what :func:`traced_information` found, its picture left out."""
    told = xr.merge([trace, found.drop_vars("picture")], join="exact", combine_attrs="drop")
    told.attrs = {**trace.attrs, **found.attrs}
    return told
