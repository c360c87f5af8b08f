"""``denoscope train``: recipes that make a model from nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from denoscope.cli.quiet import quieten_libraries

EXAMPLES: Final = (
    "Examples:\n\n"
    "denoscope train fashion-mnist --out fashion\n\n"
    "denoscope train fashion-mnist schedule=linear objective=epsilon trainer.max_steps=20000\n\n"
    "denoscope train --data my_pictures/ data.size=64 trainer.batch_size=32\n\n"
    "denoscope train digits objective=v,flow,edm trainer.seed=0,1 --multirun\n\n"
    "denoscope train shapes --out shapes-run\n\n"
    "accelerate launch -m denoscope train fashion-mnist --out fashion"
)
_SHAPES: Final = "shapes"


class TrainOptionError(ValueError):
    """Options of ``train`` that don't go together."""


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="A recipe's name, and what to change in it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of checkpoints and model; a run there is resumed (default: runs/RECIPE)."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A folder of pictures to learn from.")] = None,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="Train once for each combination of values given with commas.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the whole recipe and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a run instead of text.")] = False,
) -> None:
    """Train a model by a recipe: fashion-mnist, digits, folder, tones, sounds, molecules, or shapes.

    A recipe has the groups data, network, schedule, objective, optim and trainer: GROUP=NAME takes another group,
    GROUP.KEY=VALUE changes one value; --show prints them all. A run that was stopped goes on where it was.
    """
    quieten_libraries()
    name, overrides = _split(arguments or [], data)
    if name == _SHAPES:
        _train_shapes(out or Path("runs") / name, overrides)
        return
    from denoscope.training.allocator import keep_freed_memory
    from denoscope.training.recipes import compose, sweep

    keep_freed_memory()
    runs = list(sweep(overrides)) if multirun else [overrides]
    recipes = [compose(name, chosen) for chosen in runs]  # all are checked before the first starts
    if show:
        for recipe in recipes:
            typer.echo(json.dumps(recipe.model_dump(mode="json"), indent=2))
        return
    base = out or Path("runs") / name
    for index, recipe in enumerate(recipes):
        folder = base / f"{index:03d}" if multirun else base
        if multirun:
            typer.echo(f"{folder}: {' '.join(runs[index])}", err=True)
        _train_one(folder, recipe, as_json)


def _split(arguments: list[str], data: Path | None) -> tuple[str, list[str]]:
    """The recipe's name and the overrides. A folder of data needs no name."""
    names = [argument for argument in arguments if "=" not in argument and not argument.startswith("~")]
    overrides = [argument for argument in arguments if argument not in names]
    if len(names) > 1:
        raise TrainOptionError(f"one recipe at a time, not {' and '.join(names)}; changes are written KEY=VALUE")
    if not names and data is None:
        raise TrainOptionError("which recipe? give its name, or --data with a folder of pictures")
    if data is not None:
        overrides = [f"data.folder={_quoted(data)}", *overrides]
    return (names[0] if names else "folder"), overrides


def _quoted(path: Path) -> str:
    """A path as a value of Hydra's grammar, whatever signs are in it."""
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _train_one(out: Path, recipe: object, as_json: bool) -> None:
    from denoscope.training.recipes import Recipe, fit
    from denoscope.training.trainer import StepResult

    assert isinstance(recipe, Recipe)
    main = os.environ.get("RANK", "0") == "0"  # of several processes, one talks
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    loss = TextColumn("{task.fields[loss]}")
    with Progress(*columns, loss, console=console, disable=as_json or not main) as progress:
        bar = progress.add_task("training", total=recipe.trainer.max_steps, loss="")
        smooth = _Smooth()

        def report(done: StepResult) -> None:
            progress.update(bar, completed=done.step + 1, loss=f"loss {smooth(done.loss):.5f}")

        fitted = fit(recipe, out, report)
    if not main:
        return
    if as_json:
        told = {"model": str(fitted.model), "figures": fitted.figures, "warnings": list(fitted.warnings)}
        typer.echo(json.dumps(told))
        return
    for warning in fitted.warnings[:20]:
        typer.echo(f"warning: {warning}", err=True)
    if len(fitted.warnings) > 20:
        typer.echo(f"warning: {len(fitted.warnings) - 20} more", err=True)
    for figure, value in fitted.figures.items():
        if not figure.startswith("validation"):
            typer.echo(f"{figure}: {value:.4g}", err=True)
    typer.echo(str(fitted.model))


class _Smooth:
    """A running mean over about fifty steps: single losses jump."""

    def __init__(self) -> None:
        self.mean: float | None = None

    def __call__(self, loss: float) -> float:
        self.mean = loss if self.mean is None else self.mean + 0.02 * (loss - self.mean)
        return self.mean


def _train_shapes(out: Path, overrides: list[str]) -> None:
    """The embedded model's own recipe: three networks one after the other."""
    import torch

    from denoscope.training.allocator import keep_freed_memory
    from denoscope.training.shapes.recipe import recipe_with, train_shapes

    recipe, threads = recipe_with(overrides)
    keep_freed_memory()
    torch.set_num_threads(threads)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.5f}"), console=Console(stderr=True)) as progress:
        report: Callable[[str, int, int, float], None] = _stage_bars(progress)
        model = train_shapes(out, recipe, report)
    typer.echo(str(model))


def _stage_bars(progress: Progress) -> Callable[[str, int, int, float], None]:
    bars: dict[str, TaskID] = {}

    def report(stage: str, step: int, total: int, loss: float) -> None:
        if stage not in bars:
            bars[stage] = progress.add_task(stage, total=total, completed=step, loss=loss)
        progress.update(bars[stage], completed=step + 1, loss=loss)

    return report
