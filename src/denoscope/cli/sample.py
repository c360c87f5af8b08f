"""``denoscope sample``: draw from a trained model, and compare numbers of steps."""

import json
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from PIL import Image, ImageDraw
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from denoscope._version import __version__
from denoscope.cli.quiet import quieten_libraries
from denoscope.runs import ModelRecord, RunManifest, new_run
from denoscope.runs.manifest import Argument

if TYPE_CHECKING:
    from torch import Tensor

    from denoscope.training.recipes.modality import Conditions

EXAMPLES: Final = (
    "Examples:\n\n"
    "denoscope sample runs/fashion-mnist -n 64\n\n"
    "denoscope sample runs/fashion-mnist -n 10 --labels 3,7 --guidance 2 --solver dpmpp_2m --steps 20\n\n"
    "denoscope sample runs/fashion-mnist -n 8 --compare-steps 5,10,25,50"
)


class SampleOptionError(ValueError):
    """An option of ``sample`` that can't be read."""


def _numbers(text: str | None, option: str, least: int) -> list[int]:
    if text is None:
        return []
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise SampleOptionError(f"{option} {text!r} is no list of whole numbers, such as 5,10,25") from None
    if min(numbers) < least:
        raise SampleOptionError(f"{option} needs numbers of at least {least}, not {min(numbers)}")
    return numbers


def sample(
    model: Annotated[Path, typer.Argument(help="A run of 'denoscope train', its model/, or a DDPMPipeline's folder.")],
    n: Annotated[int, typer.Option("-n", "--number", min=1, help="How many samples.")] = 64,
    solver: Annotated[
        str | None, typer.Option(help="ddpm, ddim, heun, dpmpp_2m, unipc … (default: what suits the model).")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Sampling steps (default: what suits the model).")] = None,
    spacing: Annotated[
        str | None,
        typer.Option(help="leading, linspace, trailing, karras, exponential (default: what suits the model)."),
    ] = None,
    guidance: Annotated[float, typer.Option(help="Classifier-free guidance scale; 1 turns it off.")] = 1.0,
    labels: Annotated[str | None, typer.Option(metavar="A,B", help="Class numbers, in turn (default: all).")] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="What to show, for a model of captions; several are taken in turn.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Seed of the first sample; the next has the next.")] = 0,
    compare_steps: Annotated[
        str | None, typer.Option(metavar="A,B", help="Also draw the first samples with these numbers of steps.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples at once; changes nothing but speed.")] = 64,
    out: Annotated[Path | None, typer.Option(help="Run folder to write (default: runs/TIME-sample).")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Draw samples from a model that 'denoscope train' made, or from a DDPMPipeline of diffusers.

    Writes a run folder: one file a sample in samples/, images/grid.png, with --compare-steps images/compare.png (the
    same seeds in each row), and run.json with the seconds of each setting.
    """
    wanted, compared = _numbers(labels, "--labels", 0), _numbers(compare_steps, "--compare-steps", 1)
    started = datetime.now(UTC)
    quieten_libraries()
    from denoscope.pipelines.loading import pick_device
    from denoscope.training.allocator import keep_freed_memory
    from denoscope.training.recipes import load_trained

    keep_freed_memory()
    with new_run(out, slug=f"sample-{model.name}") as run:
        trained = load_trained(model)
        trained.network.to(pick_device(device))
        modality = trained.modality
        chosen, count = solver or modality.solver, steps or modality.steps
        if wanted and not modality.classes:
            raise SampleOptionError("--labels needs a model with classes; this one has none")
        console = Console(stderr=True)
        seconds: dict[str, float] = {}
        strips: list[tuple[str, Image.Image]] = []
        with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as progress:

            def draw(number: int, steps: int) -> "tuple[Tensor, Conditions, float]":
                bar = progress.add_task(f"{steps} steps", total=number)
                clock = time.perf_counter()
                drawn, told = trained.sample(
                    range(seed, seed + number),
                    modality.labels(number, wanted),
                    captions=[prompt[index % len(prompt)] for index in range(number)] if prompt else None,
                    solver=chosen,
                    steps=steps,
                    spacing=spacing,
                    batch_size=batch_size,
                    guidance_scale=guidance,
                    progress=lambda done: progress.update(bar, completed=done),
                )
                return drawn, told, time.perf_counter() - clock

            for number in compared:
                few, told, taken = draw(min(n, 8), number)
                seconds[f"{chosen} {number} steps, a sample"] = taken / min(n, 8)
                strips.append((f"{number} steps", modality.picture(few, told, len(few))))
            drawn, told, taken = draw(n, count)
        seconds[f"{chosen} {count} steps, a sample"] = taken / n
        files = modality.write(drawn, told, run.folder / "samples")
        modality.picture(drawn, told, None).save(run.images / "grid.png")
        if strips:
            _stack(strips).save(run.images / "compare.png")
        figures = modality.judge(drawn, told)
        parameter = next(trained.network.parameters())
        arguments: dict[str, Argument] = {
            **figures,
            "model": str(model),
            "n": n,
            "solver": chosen,
            "steps": count,
            "spacing": spacing,
            "guidance": guidance,
            "prompt": prompt,
            "labels": [str(label) for label in wanted] or None,
            "compare_steps": [str(number) for number in compared] or None,
        }
        manifest = RunManifest(
            denoscope_version=__version__,
            command="sample",
            arguments=arguments,
            versions={"python": platform.python_version()} | {name: version(name) for name in ("torch", "diffusers")},
            model=ModelRecord(
                name=model.name, source=str(model), pipeline=type(trained.network).__name__, scheduler=chosen
            ),
            seed=seed,
            device=str(parameter.device),
            dtype=str(parameter.dtype).removeprefix("torch."),
            started=started,
            seconds={name: round(value, 6) for name, value in seconds.items()},
        )
        manifest = run.finish(manifest)
    if as_json:
        told_json = {"run": str(run.final), "samples": len(files), "figures": figures, "seconds": manifest.seconds}
        typer.echo(json.dumps(told_json))
        return
    table = Table("setting", "ms a sample", "samples a second")
    for name, value in seconds.items():
        table.add_row(name.removesuffix(", a sample"), f"{1000 * value:.1f}", f"{1 / value:.1f}")
    console.print(table)
    for name, figure in figures.items():
        typer.echo(f"{name}: {figure:.4g}", err=True)
    typer.echo(str(run.final / "images" / "grid.png"))


def _stack(strips: list[tuple[str, Image.Image]]) -> Image.Image:
    """Pictures below each other, each with its caption."""
    width, line = max(strip.width for _, strip in strips), 16
    sheet = Image.new("RGB", (width, sum(strip.height + line for _, strip in strips)), "white")
    pen, top = ImageDraw.Draw(sheet), 0
    for caption, strip in strips:
        pen.text((3, top + 2), caption, fill="black")
        sheet.paste(strip, (0, top + line))
        top += strip.height + line
    return sheet
