"""Checkpoints that a killed run can trust: written beside, synced, then renamed. Safetensors and JSON, no pickle."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from denoscope.training.ema import Ema


class CheckpointError(ValueError):
    """A checkpoint that can't be read or written, or doesn't fit; the message names the file."""


def save_checkpoint(
    path: Path,
    step: int,
    module: nn.Module,
    optimizer: Optimizer,
    averages: Mapping[str, Ema],
    scaler: GradScaler | None = None,
) -> None:
    """Write weights, averages, optimizer and loss scale after ``step`` steps.

    A reader sees the old file or the new one, never a part. Raises :class:`CheckpointError` when the disk refuses.
    """
    tensors: dict[str, Tensor] = {f"module/{name}": value for name, value in module.state_dict().items()}
    for average_name, ema in averages.items():
        tensors |= {f"{average_name}/{name}": value for name, value in ema.average.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{key}": torch.as_tensor(value) for key, value in state.items()}
    told: dict[str, object] = {"step": step, "updates": {name: ema.updates for name, ema in averages.items()}}
    if scaler is not None:
        told["scaler"] = scaler.state_dict()
    write_tensors(path, tensors, told)


def load_checkpoint(
    path: Path,
    module: nn.Module,
    optimizer: Optimizer,
    averages: Mapping[str, Ema],
    scaler: GradScaler | None = None,
) -> int:
    """Put a checkpoint's state into what it was saved from; returns the number of steps done.

    Raises :class:`CheckpointError` when the file is damaged or belongs to another network or other averages.
    """
    tensors, told = read_tensors(path)
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in ("module", "optimizer", *averages)}
    updates = told.get("updates")
    for key, value in tensors.items():
        part, _, name = key.partition("/")
        if part not in parts:
            raise CheckpointError(f"{path} holds the average {part!r}, which this run doesn't keep")
        parts[part][name] = value
    for part in ("module", *averages):
        if not _fits(module.state_dict(), parts[part]):
            raise CheckpointError(f"{path} belongs to another network; delete it or choose another folder")
    if not isinstance(updates, dict) or updates.keys() != averages.keys():
        raise CheckpointError(f"{path} is no checkpoint of this version; delete it to start afresh")
    module.load_state_dict(parts["module"])
    for average_name, ema in averages.items():
        ema.updates = int(updates[average_name])
        for name, value in parts[average_name].items():
            ema.average[name].copy_(value)
    per_parameter: dict[int, dict[str, Tensor]] = {}
    for key, value in parts["optimizer"].items():
        index, _, name = key.partition("/")
        per_parameter.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": per_parameter, "param_groups": optimizer.state_dict()["param_groups"]})
    scale = told.get("scaler")
    if scaler is not None and isinstance(scale, dict):
        scaler.load_state_dict(scale)
    return int(str(told["step"]))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], told: Mapping[str, object]) -> None:
    """Write tensors and a JSON state as one safetensors file, all or nothing.

    Synced to disk before the rename. Raises :class:`CheckpointError` when the disk refuses; an older file stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Cloned, because safetensors refuses tensors that share memory.
        copies = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
        save_file(copies, temporary, metadata={"state": json.dumps(told)})
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except (OSError, SafetensorError) as error:  # safetensors tells a full disk in its own words
        raise CheckpointError(f"{path} can't be written ({error})") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """What :func:`write_tensors` wrote.

    Raises :class:`CheckpointError` when the file is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            told = json.loads((file.metadata() or {})["state"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} is no readable checkpoint ({error}); delete it to start afresh") from error
    if not isinstance(told, dict):
        raise CheckpointError(f"{path} is no readable checkpoint; delete it to start afresh")
    return tensors, told


def _fits(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> bool:
    return wanted.keys() == found.keys() and all(value.shape == found[name].shape for name, value in wanted.items())
