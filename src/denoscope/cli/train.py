"""``denoscope train``: recipes that make a model from nothing."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

app = typer.Typer(help="Train a model by a recipe.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Train a model by a recipe."""


@app.command(epilog="Example:\n\ndenoscope train shapes --out shapes-run")
def shapes(
    out: Annotated[Path, typer.Option(help="Folder for checkpoints and the model; a run found there is resumed.")],
    steps: Annotated[int | None, typer.Option(min=1, help="Denoiser steps [default: the recipe's].")] = None,
    refinement_steps: Annotated[
        int | None, typer.Option(min=0, help="Steps of its second training [default: the recipe's].")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
) -> None:
    """Train the embedded model 'shapes': autoencoder, text encoder, denoiser."""
    from dataclasses import replace

    import torch

    from denoscope.training.allocator import keep_freed_memory
    from denoscope.training.shapes.recipe import ShapesRecipe, train_shapes

    keep_freed_memory()
    torch.set_num_threads(threads)
    recipe = ShapesRecipe()
    if steps is not None:
        recipe = replace(recipe, denoiser=replace(recipe.denoiser, steps=steps))
    if refinement_steps is not None:
        recipe = replace(recipe, refinement=replace(recipe.refinement, steps=refinement_steps))
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.5f}"), console=Console(stderr=True)) as progress:
        bars = {}

        def report(stage: str, step: int, total: int, loss: float) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total, completed=step, loss=loss)
            progress.update(bars[stage], completed=step + 1, loss=loss)

        model = train_shapes(out, recipe, report)
    typer.echo(str(model))
