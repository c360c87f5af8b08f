"""``denoscope.load``: a diffusers pipeline from a name, a folder or a hub id."""

import json
import re
from importlib.resources import files
from pathlib import Path

import diffusers
import torch
from diffusers import DiffusionPipeline
from torch import nn
from transformers import PreTrainedTokenizerBase

from denoscope.pipelines.errors import ModelError
from denoscope.pipelines.unclip_folder import is_unclip, load_unclip

EMBEDDED = ("shapes",)
"""Models that lie in the package."""
EXACT = "exact-shapes"
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


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
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ModelError(f"device {device!r} is not available here: use cpu, or auto") from error
    if chosen.type == "meta":
        raise ModelError("device 'meta' holds no data: use cpu, or auto")
    return chosen


def load(model: str | Path = "shapes", device: str = "auto", dtype: torch.dtype | None = None) -> DiffusionPipeline:
    """Load a pipeline: ``"shapes"`` (the embedded model), ``"exact-shapes"`` (the exact denoiser of the shapes world),
    a folder saved by diffusers or by denoscope, or a hub id. Weights must be safetensors; nothing is unpickled.

    ``dtype`` defaults to float16 on CUDA and float32 elsewhere. A folder named like a model of ours is loaded when it
    is given as a path (``"./shapes"`` or ``Path("shapes")``); a folder wins over a hub id.

    Raises :class:`ModelError` in one sentence when there is no such model or the folder is no pipeline.
    """
    chosen = pick_device(device)
    dtype = dtype or (torch.float16 if chosen.type == "cuda" else torch.float32)
    name = str(model)
    if model == EXACT:
        from denoscope.pipelines.exact import exact_shapes_pipeline

        return exact_shapes_pipeline().to(chosen)
    if model in EMBEDDED:
        source = str(embedded_folder(name))
        if not Path(source, "model_index.json").is_file():
            raise ModelError(f"the embedded model {name!r} is missing from this installation: reinstall denoscope")
    else:
        source = _check_source(model)
    try:
        pipe: DiffusionPipeline
        if is_unclip(Path(source)):
            pipe = load_unclip(Path(source), dtype)
        else:
            pipe = DiffusionPipeline.from_pretrained(source, dtype=dtype, use_safetensors=True)
    except Exception as error:  # A damaged folder fails in as many ways as there are files and libraries.
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        where = "could not be loaded" if Path(source).is_dir() else "is no folder here and did not come from the hub"
        raise ModelError(f"{name!r} {where}: {reason}") from error
    _check_complete(pipe, name)
    return pipe.to(chosen)


def _check_complete(pipe: DiffusionPipeline, name: str) -> None:
    """What diffusers and transformers let pass with a warning: missing weights, a tokenizer without vocabulary."""
    for component, part in pipe.components.items():
        if isinstance(part, nn.Module) and any(weight.is_meta for weight in part.state_dict().values()):
            raise ModelError(f"{name!r} lacks some weights of its {component}: the folder is damaged, copy it again")
        if isinstance(part, PreTrainedTokenizerBase) and len(part) <= len(part.all_special_tokens):
            raise ModelError(f"{name!r} lacks the vocabulary of its {component}: the folder is damaged, copy it again")


def _check_source(model: str | Path) -> str:
    """A folder that holds a pipeline, or a string that may be a hub id."""
    name = str(model)
    try:
        path = Path(model).expanduser()
        is_folder, exists = bool(name) and path.is_dir(), path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"the model {name!r} can't be looked up: {reason}") from error
    if is_folder:
        index = path / "model_index.json"
        if not index.is_file():
            raise ModelError(f"{name!r} is a folder without model_index.json: give the folder of a diffusers pipeline")
        try:
            pipeline = json.loads(index.read_text("utf-8"))["_class_name"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"{index} names no pipeline: the folder is damaged, copy it again") from error
        # Other classes would be looked for in code that comes with the folder, or on the hub.
        if not hasattr(diffusers, str(pipeline)):
            raise ModelError(f"{name!r} is a {pipeline}, which is no pipeline of diffusers {diffusers.__version__}")
        return str(path)
    looks_like_hub_id = isinstance(model, str) and bool(_HUB_ID.fullmatch(name)) and not exists
    if not looks_like_hub_id:
        raise ModelError(
            f"there is no folder {name!r}: give 'shapes', 'exact-shapes', a pipeline's folder, or a hub id (owner/name)"
        )
    return name
