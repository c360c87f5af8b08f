"""What a model is best sampled with, where its folder says so."""

import inspect
import json
from dataclasses import dataclass
from pathlib import Path

from diffusers import DiffusionPipeline

from denoscope.pipelines.errors import ModelError

SETTINGS_FILE = "sampling.json"
"""A file beside ``model_index.json`` with any of the fields of :class:`SamplingDefaults`; diffusers ignores it."""


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Values for a call when the user gives none."""

    num_inference_steps: int
    guidance_scale: float


def sampling_defaults(pipe: DiffusionPipeline) -> SamplingDefaults:
    """The model's own recommendation, else the defaults of the pipeline's ``__call__``.

    Raises :class:`ModelError` when the model's file can't be read.
    """
    parameters = inspect.signature(type(pipe).__call__).parameters
    found = {name: parameters[name].default for name in ("num_inference_steps", "guidance_scale")}
    source = getattr(pipe, "name_or_path", None) or pipe.config.get("_name_or_path")
    file = Path(str(source), SETTINGS_FILE)
    if source and file.is_file():
        try:
            told = dict(json.loads(file.read_text("utf-8")))
            found |= {name: float(told[name]) for name in found if name in told}
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(f"{file} holds no sampling defaults: delete it, or copy the model again") from error
    return SamplingDefaults(int(found["num_inference_steps"]), float(found["guidance_scale"]))
