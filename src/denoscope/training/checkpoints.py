"""Checkpoints that a killed run can trust: written beside, synced, then renamed. Safetensors and JSON, no pickle."""

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from denoscope.training.ema import Ema


class CheckpointError(ValueError):
    """A checkpoint that can't be read or doesn't fit; the message names the file."""


def save_checkpoint(path: Path, step: int, module: nn.Module, optimizer: Optimizer, ema: Ema) -> None:
    """Write weights, average and optimizer state after ``step`` steps.

    A reader sees the old file or the new one, never a part: the new one is synced to disk before the rename.
    """
    tensors: dict[str, Tensor] = {}
    for name, value in module.state_dict().items():
        tensors[f"module/{name}"] = value.contiguous()
    for name, value in ema.average.items():
        tensors[f"ema/{name}"] = value.contiguous()
    for index, state in optimizer.state_dict()["state"].items():
        for key, value in state.items():
            tensors[f"optimizer/{index}/{key}"] = torch.as_tensor(value).contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Cloned, because safetensors refuses tensors that share memory.
        save_file(
            {name: value.clone() for name, value in tensors.items()},
            temporary,
            metadata={"state": json.dumps({"step": step, "ema_updates": ema.updates})},
        )
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path, module: nn.Module, optimizer: Optimizer, ema: Ema) -> int:
    """Put a checkpoint's state into the module, the optimizer and the average; returns the number of steps done.

    Raises :class:`CheckpointError` when the file is damaged or belongs to another network.
    """
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {})["state"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} is no readable checkpoint ({error}); delete it to start afresh") from error
    parts: dict[str, dict[str, Tensor]] = {"module": {}, "ema": {}, "optimizer": {}}
    for key, value in tensors.items():
        part, _, name = key.partition("/")
        parts[part][name] = value
    if parts["module"].keys() != module.state_dict().keys() or any(
        value.shape != parts["module"][name].shape for name, value in module.state_dict().items()
    ):
        raise CheckpointError(f"{path} belongs to another network; delete it or choose another folder")
    module.load_state_dict(parts["module"])
    for name, value in parts["ema"].items():
        ema.average[name].copy_(value)
    ema.updates = int(state["ema_updates"])
    per_parameter: dict[int, dict[str, Tensor]] = {}
    for key, value in parts["optimizer"].items():
        index, _, name = key.partition("/")
        per_parameter.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": per_parameter, "param_groups": optimizer.state_dict()["param_groups"]})
    return int(state["step"])
