"""``denoscope.load``: a diffusers pipeline from a name, a folder or a hub id."""

import json
from importlib.resources import files
from pathlib import Path

import torch
from diffusers import DiffusionPipeline

from denoscope.pipelines.errors import ModelError

EMBEDDED = ("shapes",)
"""Models that lie in the package."""
EXACT = "exact-shapes"


def embedded_folder(name: str) -> Path:
    """The folder of a model that lies in the package."""
    return Path(str(files("denoscope.pipelines") / "embedded" / name))


def pick_device(device: str = "auto") -> torch.device:
    """``"auto"`` takes CUDA, then Apple's MPS, then the CPU; anything else is a torch device name.

    Raises :class:`ModelError` for a device that torch doesn't know or this machine doesn't have.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ModelError(f"device {device!r} is not available here: use cpu, or auto") from error
    if chosen.type == "meta":
        raise ModelError("device 'meta' holds no data: use cpu, or auto")
    return chosen


def load(model: str | Path = "shapes", device: str = "auto", dtype: torch.dtype | None = None) -> DiffusionPipeline:
    """Load a pipeline: ``"shapes"`` (the embedded model), ``"exact-shapes"`` (the exact denoiser of the shapes world),
    a folder saved by diffusers or by denoscope, or a hub id.

    ``dtype`` defaults to float16 on CUDA and float32 elsewhere. A folder wins over an embedded name or a hub id spelled
    alike only when it is given as a path (``./shapes``).

    Raises :class:`ModelError` in one sentence when there is no such model or the folder is no pipeline.
    """
    chosen = pick_device(device)
    dtype = dtype or (torch.float16 if chosen.type == "cuda" else torch.float32)
    name = str(model)
    if name == EXACT:
        from denoscope.pipelines.exact import exact_shapes_pipeline

        return exact_shapes_pipeline().to(chosen)
    if name in EMBEDDED:
        source = str(embedded_folder(name))
        if not Path(source, "model_index.json").is_file():
            raise ModelError(f"the embedded model {name!r} is missing from this installation: reinstall denoscope")
    else:
        source = _check_source(model)
    try:
        pipe: DiffusionPipeline = DiffusionPipeline.from_pretrained(source, torch_dtype=dtype)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, ImportError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"{name!r} could not be loaded as a diffusers pipeline: {reason}") from error
    return pipe.to(chosen)


def _check_source(model: str | Path) -> str:
    """A folder that holds a pipeline, or a string that may be a hub id."""
    name = str(model)
    path = Path(model).expanduser()
    if path.is_dir():
        index = path / "model_index.json"
        if not index.is_file():
            raise ModelError(f"{name!r} is a folder without model_index.json: give the folder of a diffusers pipeline")
        try:
            json.loads(index.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ModelError(f"{index} is not readable JSON: the folder is damaged, copy it again") from error
        return str(path)
    looks_like_hub_id = name.count("/") == 1 and not name.startswith((".", "/", "~")) and not path.exists()
    if not looks_like_hub_id:
        raise ModelError(
            f"there is no folder {name!r}: give 'shapes', 'exact-shapes', a pipeline's folder, or a hub id (owner/name)"
        )
    return name
