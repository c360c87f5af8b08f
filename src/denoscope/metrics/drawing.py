"""Pictures of a model, drawn to be measured; a run that was stopped goes on."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from diffusers import DiffusionPipeline

from denoscope.metrics.frechet import FeatureError
from denoscope.pipelines.defaults import sampling_defaults
from denoscope.pipelines.fingerprint import model_sha256


def draw_pictures(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    n: int,
    cache: Path,
    *,
    seed: int = 0,
    num_inference_steps: int | None = None,
    guidance_scale: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Draw ``n`` pictures as PNG files into a folder of their own under ``cache``, and return the folder.

    Prompts are taken in turn; picture i has the seed ``seed + i`` (a CPU generator), so that any part of the set can be
    drawn again. The folder's name has a hash of the model, prompts and settings: files that are there are kept.

    Raises :class:`~denoscope.metrics.FeatureError` without prompts.
    """
    if not prompts:
        raise FeatureError("a model draws from prompts: give --prompts, a file with one a line")
    usual = sampling_defaults(pipe)
    steps = num_inference_steps or usual.num_inference_steps
    scale = usual.guidance_scale if guidance_scale is None else guidance_scale
    told = [model_sha256(pipe), type(pipe.scheduler).__name__, dict(pipe.scheduler.config), list(prompts), seed, steps]
    key = hashlib.sha256(json.dumps([*told, scale], default=str).encode()).hexdigest()[:24]
    folder = cache / "drawn" / key
    folder.mkdir(parents=True, exist_ok=True)
    quiet = dict(getattr(pipe, "_progress_bar_config", {}))
    pipe.set_progress_bar_config(disable=True)
    try:
        for index in range(n):
            path = folder / f"{index:06d}.png"
            if not path.is_file():
                picture = pipe(
                    prompt=prompts[index % len(prompts)],
                    num_inference_steps=steps,
                    guidance_scale=scale,
                    generator=torch.Generator("cpu").manual_seed(seed + index),
                ).images[0]
                part = path.with_suffix(".part")
                picture.save(part, format="PNG")
                part.replace(path)
            if progress is not None:
                progress(index + 1, n)
    finally:
        pipe.set_progress_bar_config(**quiet)
    return folder


def read_prompts(path: Path) -> list[str]:
    """Prompts of a text file, one a line, blank lines left out.

    Raises :class:`~denoscope.metrics.FeatureError` for a file that can't be read or has none.
    """
    try:
        found = [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise FeatureError(f"{str(path)!r} can't be read ({error})") from error
    if not found:
        raise FeatureError(f"{str(path)!r} has no prompts: write one a line")
    return found
