"""Folders of unCLIP (Karlo), which diffusers has moved out of its own loader's sight."""

import json
from pathlib import Path

import diffusers
import torch
import transformers
from diffusers import UnCLIPPipeline
from diffusers.pipelines.deprecated.unclip.text_proj import UnCLIPTextProjModel


def is_unclip(folder: Path) -> bool:
    """Whether a folder is one of ``UnCLIPPipeline``."""
    index = folder / "model_index.json"
    return index.is_file() and json.loads(index.read_text("utf-8"))["_class_name"] == "UnCLIPPipeline"


def load_unclip(folder: Path, dtype: torch.dtype) -> UnCLIPPipeline:
    """Load its parts one by one, by the classes that the folder's index names; weights must be safetensors.

    Raises what the parts' own loaders raise, and :class:`KeyError` for a class of no library.
    """
    index = json.loads((folder / "model_index.json").read_text("utf-8"))
    parts = {}
    for name, told in index.items():
        if name.startswith("_") or not isinstance(told, list) or told[1] is None:
            continue
        kind = UnCLIPTextProjModel if told[1] == "UnCLIPTextProjModel" else None
        kind = kind or getattr(diffusers, told[1], None) or getattr(transformers, told[1], None)
        if kind is None:
            raise KeyError(f"{told[1]} is no class of diffusers or transformers")
        network = issubclass(kind, torch.nn.Module)
        parts[name] = kind.from_pretrained(
            folder / name, **({"dtype": dtype, "use_safetensors": True} if network else {})
        )
    return UnCLIPPipeline(**parts)
