"""Follow a recipe: from data to a model's folder, in a run that can be killed and goes on."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from denoscope.training.checkpoints import CheckpointError
from denoscope.training.draws import Draws
from denoscope.training.objectives import Objective
from denoscope.training.recipes.build import build_network, build_objective
from denoscope.training.recipes.card import write_card
from denoscope.training.recipes.config import Recipe, RecipeError, differences, parse
from denoscope.training.recipes.journal import Journal
from denoscope.training.recipes.losses import batch_loss
from denoscope.training.recipes.modality import Examples, Modality, dropped
from denoscope.training.recipes.model_folder import save_trained
from denoscope.training.recipes.open import open_data
from denoscope.training.recipes.trained import Trained
from denoscope.training.recipes.validation import copies, loss_by_level
from denoscope.training.trainer import StepResult, TrainerConfig, train

CHECKPOINT: Final = "checkpoint.safetensors"
RECIPE_COPY: Final = "recipe.json"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A finished run: the model's folder, what was measured at its end, and what its user should know."""

    model: Path
    figures: dict[str, float]
    warnings: tuple[str, ...]


def fit(recipe: Recipe, out: Path, report: Callable[[StepResult], None] | None = None) -> Fitted:
    """Train by a recipe, in ``out``; a run found there is resumed, a finished one is only written anew.

    Writes ``recipe.json``, ``checkpoint.safetensors``, ``metrics.jsonl``, ``grids/`` and at the end ``model/``. Works
    unchanged under ``accelerate launch`` and ``torchrun``.

    Raises :class:`RecipeError` when the data don't suit the recipe or ``out`` holds another training,
    :class:`DataError` for bad data, :class:`TrainingError` when training can't go on, :class:`CheckpointError` for a
    damaged checkpoint.
    """
    settings = recipe.trainer
    torch.set_num_threads(settings.threads)
    accelerator = _accelerator(recipe, out)
    examples, modality, skipped = open_data(recipe)
    warnings = [f"skipped {name}" for name in skipped]
    training, held_out = examples.split(recipe.data.held_out, settings.seed)
    network = build_network(recipe, modality)
    objective = build_objective(recipe)
    if accelerator.is_main_process:
        _claim(recipe, out)
    accelerator.wait_for_everyone()
    with Journal(out, accelerator if settings.log_with != "none" else None, recipe) as journal:
        watcher = _Watcher(recipe, modality, objective, network, held_out, journal, out, accelerator, report)
        train(
            network,
            _loss(objective, training, modality),
            _trainer_config(recipe),
            out / CHECKPOINT,
            watcher,
            accelerator,
        ).copy_to(network)
        trained = Trained.by_recipe(recipe, network, modality)
        if not accelerator.is_main_process:
            return Fitted(out / "model", {}, ())
        figures, more = _finish(recipe, trained, objective, training, held_out, out)
    model = save_trained(recipe, network, modality, out / "model", write_card(recipe, modality, len(training), figures))
    return Fitted(model, figures, tuple(warnings + more))


def _accelerator(recipe: Recipe, out: Path) -> Accelerator:
    settings = recipe.trainer
    tracker = None if settings.log_with == "none" else settings.log_with
    try:
        found = Accelerator(
            cpu=settings.device == "cpu",
            mixed_precision=settings.mixed_precision,
            log_with=tracker,
            project_dir=str(out),
        )
    except (ValueError, ImportError) as error:
        raise RecipeError(f"the trainer can't be set up: {str(error).splitlines()[0]}") from error
    if tracker is not None and not found.log_with:
        raise RecipeError(f"trainer.log_with={tracker} needs a package that isn't installed: pip install {tracker}")
    return found


def _claim(recipe: Recipe, out: Path) -> None:
    """Note the recipe in the run's folder, or see that it is the one that is there."""
    path = out / RECIPE_COPY
    if path.is_file():
        try:
            before = parse(json.loads(path.read_text("utf-8")))
        except ValueError as error:
            raise RecipeError(f"{path} can't be read ({error}); choose another --out") from error
        other = differences(before, recipe)
        if other and (out / CHECKPOINT).exists():
            raise RecipeError(f"{out} holds another training ({', '.join(other)} differ); choose another --out")
    elif (out / CHECKPOINT).exists():
        raise CheckpointError(f"{out} has a checkpoint but no {RECIPE_COPY}; choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(recipe.model_dump(mode="json"), indent=2) + "\n", "utf-8")
    except OSError as error:
        raise RecipeError(f"{out} can't be written ({error.strerror}); choose another --out") from error


def _loss(objective: Objective, training: Examples, modality: Modality) -> Callable[[nn.Module, Draws], Tensor]:
    def loss(network: nn.Module, draws: Draws) -> Tensor:
        device = next(network.parameters()).device
        clean, told = training.batch(draws.indices(len(training)))
        clean, told = clean.to(device), {name: value.to(device) for name, value in told.items()}
        if modality.augment is not None:
            clean = modality.augment(clean, draws)
        told = dropped(told, modality, draws)
        return batch_loss(objective, network, modality, clean, told, draws)

    return loss


def _trainer_config(recipe: Recipe) -> TrainerConfig:
    optim, settings = recipe.optim, recipe.trainer
    return TrainerConfig(
        steps=settings.max_steps,
        learning_rate=optim.learning_rate,
        warmup=optim.warmup,
        final_lr_fraction=optim.final_lr_fraction,
        weight_decay=optim.weight_decay,
        betas=optim.betas,
        clip=optim.clip,
        ema_decay=settings.ema_decay,
        seed=settings.seed,
        checkpoint_every=settings.checkpoint_every,
        batch_size=settings.batch_size,
        micro_batch=settings.micro_batch,
        sigma_rels=settings.sigma_rels,
        snapshot_every=settings.snapshot_every,
    )


@dataclass(slots=True)
class _Watcher:
    """Called after each step: notes the loss, and now and then validates and draws samples from the average."""

    recipe: Recipe
    modality: Modality
    objective: Objective
    network: nn.Module
    held_out: Examples
    journal: Journal
    out: Path
    accelerator: Accelerator
    report: Callable[[StepResult], None] | None

    def __call__(self, done: StepResult) -> None:
        settings, step = self.recipe.trainer, done.step + 1
        last = step == settings.max_steps
        if self.accelerator.is_main_process:
            self.journal.step(done)
            validates = step % settings.validate_every == 0 or last
            samples = step % settings.sample_every == 0 or last
            if validates or samples:
                with done.ema.applied() as averaged:
                    averaged.eval()
                    if validates and len(self.held_out):
                        self.journal.levels(step, loss_by_level(self.objective, averaged, self.modality, self.held_out))
                    if samples:
                        self._draw(step, averaged)
                    averaged.train()
        if self.report is not None:
            self.report(done)

    def _draw(self, step: int, averaged: nn.Module) -> None:
        n = self.recipe.trainer.samples
        trained = Trained.by_recipe(self.recipe, averaged, self.modality)
        drawn, told = trained.sample(range(n), self.modality.labels(n), **_settings(self.recipe, self.modality, 25))
        folder = self.out / "grids"
        folder.mkdir(exist_ok=True)
        self.modality.picture(drawn, told, None).save(folder / f"step_{step:07d}.png")


class _Settings(TypedDict):
    solver: str
    steps: int


def _settings(recipe: Recipe, modality: Modality, steps: int) -> _Settings:
    """How samples are drawn: as the modality says, with at most as many steps as there are levels."""
    return {"solver": modality.solver, "steps": min(steps, recipe.schedule.steps)}


def _finish(
    recipe: Recipe, trained: Trained, objective: Objective, training: Examples, held_out: Examples, out: Path
) -> tuple[dict[str, float], list[str]]:
    """Measure the finished model: loss by level, speed, copies, and what the modality judges."""
    n = recipe.trainer.samples
    started = time.perf_counter()
    settings = _settings(recipe, trained.modality, trained.modality.steps)
    drawn, told = trained.sample(range(10**6, 10**6 + n), trained.modality.labels(n), **settings)
    name = f"samples_per_second_{settings['solver']}_{settings['steps']}"
    figures = {name: n / (time.perf_counter() - started)}
    figures |= trained.modality.judge(drawn, told)
    warnings = []
    if len(held_out):
        levels = loss_by_level(objective, trained.network, trained.modality, held_out)
        figures |= {f"validation_loss_{index}": value for index, value in enumerate(levels)}
    found = copies(drawn, training, held_out) if trained.modality.aligned else None
    if found is not None:
        figures["nearer_than_held_out"] = found.share
        if found.warning is not None:
            warnings.append(found.warning)
    trained.modality.picture(drawn, told, None).save(out / "samples.png")
    return figures, warnings
