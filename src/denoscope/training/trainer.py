"""One training loop for every network.

The loop owns what all trainings share: optimizer, learning-rate schedule, clipping, moving average, checkpoints and
resume. What is learned is a function ``loss(step, generator)``. Whatever a step draws it draws from a generator seeded
by (seed, step), so a run that was killed and resumed takes the very steps of an unbroken one.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from denoscope.training.checkpoints import load_checkpoint, save_checkpoint
from denoscope.training.ema import Ema

LossFunction = Callable[[int, torch.Generator], Tensor]
Report = Callable[[int, float], None]


class TrainingError(RuntimeError):
    """Training had to stop; the message says at which step, why, and what is kept."""


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """How to train.

    ``learning_rate`` is the peak: it rises linearly over ``warmup`` steps and falls along half a cosine to
    ``final_lr_fraction`` of the peak at ``steps``. ``clip`` bounds the norm of the whole gradient.
    """

    steps: int
    learning_rate: float = 1e-3
    warmup: int = 200
    final_lr_fraction: float = 0.02
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float = 1.0
    ema_decay: float = 0.999
    seed: int = 0
    checkpoint_every: int = 500


def learning_rate(config: TrainerConfig, step: int) -> float:
    """The learning rate of a step: linear warm-up, then half a cosine.

    >>> config = TrainerConfig(steps=1000, learning_rate=1.0, warmup=100, final_lr_fraction=0.0)
    >>> learning_rate(config, 49), learning_rate(config, 550), round(learning_rate(config, 1000), 6)
    (0.5, 0.5, 0.0)
    """
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    progress = min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
    floor = config.final_lr_fraction
    return config.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def step_seed(seed: int, step: int) -> int:
    """A seed for one step, unrelated to those of its neighbours."""
    digest = hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def train(
    module: nn.Module,
    loss: LossFunction,
    config: TrainerConfig,
    checkpoint: Path | None = None,
    report: Report | None = None,
) -> Ema:
    """Train ``module`` to lower ``loss``; returns the moving average of its weights.

    ``loss(step, generator)`` gives a scalar. With ``checkpoint`` the state is saved there every
    ``config.checkpoint_every`` steps and at the end, and a run that finds the file goes on from it.
    ``report(step, loss)`` is called after every step.

    Raises :class:`TrainingError` when the loss or the gradient is not finite; the last checkpoint stays as it was.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters,
        lr=config.learning_rate,
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=True,
    )
    ema = Ema(module, config.ema_decay)
    done = 0
    if checkpoint is not None and checkpoint.exists():
        done = load_checkpoint(checkpoint, module, optimizer, ema)
    kept = f"the checkpoint {checkpoint} is kept" if checkpoint is not None else "no checkpoint was asked for"
    module.train()
    for step in range(done, config.steps):
        generator = torch.Generator().manual_seed(step_seed(config.seed, step))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        value = loss(step, generator)
        value.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(parameters, config.clip)
        if not (torch.isfinite(value) and torch.isfinite(norm)):
            raise TrainingError(f"the loss or its gradient is not finite at step {step}; {kept}")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ema.update()
        if report is not None:
            report(step, float(value.detach()))
        last = step + 1 == config.steps
        if checkpoint is not None and (last or (step + 1) % config.checkpoint_every == 0):
            save_checkpoint(checkpoint, step + 1, module, optimizer, ema)
    module.eval()
    return ema
