"""One training loop for every network.

The loop owns what all trainings share: optimizer, learning-rate schedule, clipping, mixed precision, accumulation,
several processes, moving averages, checkpoints and resume. What is learned is a function ``loss(network, draws)``.
Whatever a step draws comes from :class:`Draws`, seeded by (seed, step, row): a run that was killed and resumed takes
the very steps of an unbroken one, and two processes take those of one.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from denoscope.training.checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from denoscope.training.draws import Draws, step_seed
from denoscope.training.ema import Ema, power_function
from denoscope.training.posthoc import save_snapshot

LossFunction = Callable[[nn.Module, Draws], Tensor]
"""The losses ``(rows,)`` of the rows of a batch, or their mean as a scalar."""


class TrainingError(RuntimeError):
    """Training had to stop; the message says at which step, why, and what is kept."""


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """How to train.

    ``learning_rate`` is the peak: it rises linearly over ``warmup`` steps and falls along half a cosine to
    ``final_lr_fraction`` of the peak at ``steps``. ``clip`` bounds the norm of the whole gradient. A step learns from
    ``batch_size`` samples over all processes; a process takes at most ``micro_batch`` of them at once and adds the
    gradients up. ``sigma_rels`` are the widths of the power-function averages that are kept every ``snapshot_every``
    steps, from which any other can be put together afterwards (Karras et al. 2024).
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
    batch_size: int = 1
    micro_batch: int | None = None
    sigma_rels: tuple[float, ...] = ()
    snapshot_every: int = 1000


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did: ``step`` counts from 0; ``loss`` is the mean over the whole batch, in every process alike."""

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    ema: Ema


Report = Callable[[StepResult], None]


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


def train(
    module: nn.Module,
    loss: LossFunction,
    config: TrainerConfig,
    checkpoint: Path | None = None,
    report: Report | None = None,
    accelerator: Accelerator | None = None,
) -> Ema:
    """Train ``module`` to lower ``loss``; returns the moving average of its weights.

    With ``checkpoint`` the state is saved there every ``config.checkpoint_every`` steps and at the end, and a run that
    finds the file goes on from it; snapshots go into ``snapshots/`` beside it. ``report`` is called after every step.
    ``accelerator`` brings devices, mixed precision and processes; without one, this process trains on the CPU.

    Raises :class:`TrainingError` when the loss or the gradient is not finite, or the disk refuses the checkpoint; the
    last checkpoint stays as it was. Raises :class:`CheckpointError` for a checkpoint that does not fit.
    """
    accelerator = accelerator or Accelerator(cpu=True)
    module.to(accelerator.device)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters,
        lr=config.learning_rate,
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=True,
    )
    ema = Ema(module, config.ema_decay)
    powers = {sigma_rel: Ema(module, power_function(sigma_rel)) for sigma_rel in config.sigma_rels}
    averages = {"ema": ema} | {f"power-{sigma_rel:g}": average for sigma_rel, average in powers.items()}
    done = 0
    if checkpoint is not None and checkpoint.exists():
        done = load_checkpoint(checkpoint, module, optimizer, averages, accelerator.scaler)
    network, stepper = accelerator.prepare(module, optimizer)
    module.train()
    with torch.random.fork_rng(devices=[accelerator.device] if accelerator.device.type == "cuda" else []):
        for step in range(done, config.steps):
            rate = learning_rate(config, step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            value = _gradient(network, loss, config, step, accelerator)
            accelerator.unscale_gradients()
            norm = nn.utils.clip_grad_norm_(parameters, config.clip)
            # Under float16 a gradient that overflows is expected: the scaler skips the step and halves its scale.
            if not math.isfinite(value) or (accelerator.scaler is None and not bool(torch.isfinite(norm))):
                raise TrainingError(f"the loss or its gradient is not finite at step {step}; {_kept(checkpoint)}")
            stepper.step()
            optimizer.zero_grad(set_to_none=True)
            if not accelerator.optimizer_step_was_skipped:
                for average in averages.values():
                    average.update()
            if report is not None:
                report(StepResult(step, value, float(norm), rate, ema))
            last = step + 1 == config.steps
            if checkpoint is not None and accelerator.is_main_process:
                try:
                    if last or (step + 1) % config.snapshot_every == 0:
                        for sigma_rel, average in powers.items():
                            save_snapshot(checkpoint.parent / "snapshots", average, sigma_rel)
                    if last or (step + 1) % config.checkpoint_every == 0:
                        save_checkpoint(checkpoint, step + 1, module, optimizer, averages, accelerator.scaler)
                except CheckpointError as error:
                    raise TrainingError(f"{error}, at step {step}; {_kept(checkpoint)}") from error
    accelerator.wait_for_everyone()
    module.eval()
    return ema


def _gradient(
    network: nn.Module, loss: LossFunction, config: TrainerConfig, step: int, accelerator: Accelerator
) -> float:
    """Add up the gradient of the batch's mean loss, this process's part of it; returns the mean over all processes."""
    workers, rank = accelerator.num_processes, accelerator.process_index
    total = config.batch_size
    mine = range(rank * total // workers, (rank + 1) * total // workers)
    size = min(config.micro_batch or len(mine), len(mine))
    parts = [mine[start : start + size] for start in range(0, len(mine), size)]
    summed = torch.zeros((), device=accelerator.device)
    for index, rows in enumerate(parts):
        torch.manual_seed(step_seed(config.seed, step, rows.start))  # for dropout, which draws from the global stream
        with nullcontext() if index + 1 == len(parts) else accelerator.no_sync(network):
            value = loss(network, Draws(config.seed, step, rows, total)).mean() * (len(rows) / total)
            # Processes' gradients are averaged, and the parts are of one mean already.
            accelerator.backward(value * workers)
        summed += value.detach()
    return float(accelerator.reduce(summed, "sum") if workers > 1 else summed)


def _kept(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "no checkpoint was asked for"
    return f"the checkpoint {checkpoint} is kept" if checkpoint.exists() else "no checkpoint had been written yet"
