"""What a model is best sampled with, where its folder says so."""

import inspect
import json
from dataclasses import dataclass
from pathlib import Path

from diffusers import DiffusionPipeline

SETTINGS_FILE = "sampling.json"
"""A file beside ``model_index.json`` with any of the fields of :class:`SamplingDefaults`; diffusers ignores it."""


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Values for a call when the user gives none."""

    num_inference_steps: int
    guidance_scale: float


def sampling_defaults(pipe: DiffusionPipeline) -> SamplingDefaults:
    """The model's own recommendation, else the defaults of the pipeline's ``__call__``."""
    parameters = inspect.signature(type(pipe).__call__).parameters
    found = {name: parameters[name].default for name in ("num_inference_steps", "guidance_scale")}
    source = getattr(pipe, "name_or_path", None) or pipe.config.get("_name_or_path")
    file = Path(str(source), SETTINGS_FILE)
    if source and file.is_file():
        told = json.loads(file.read_text("utf-8"))
        found |= {name: told[name] for name in found if isinstance(told.get(name), int | float)}
    return SamplingDefaults(int(found["num_inference_steps"]), float(found["guidance_scale"]))
