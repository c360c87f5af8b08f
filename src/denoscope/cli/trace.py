"""``denoscope trace``: draw one picture, watch it, and write a report."""

import json
import re
import time
import webbrowser
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer
from PIL import Image
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from denoscope.cli.manifests import manifest_of, words_of
from denoscope.cli.options import OptionError, parse_pairs, parse_words
from denoscope.cli.quiet import quieten_libraries
from denoscope.runs import RunManifest, new_run

if TYPE_CHECKING:
    import xarray as xr

    from denoscope.information.leaving_out import How

EXAMPLES: Final = (
    "Examples:\n\n"
    'denoscope trace "a red circle above a blue square"\n\n'
    'denoscope trace "a large striped green cross" --words striped,cross --seed 7 --open\n\n'
    'denoscope trace "a small red circle" --guidance 1 --information omit --gradient\n\n'
    'denoscope trace "a dog on a mat" --model ./my-stable-diffusion --steps 30 --guidance 7.5 --json'
)


def _parse_size(size: str | None) -> tuple[int, int] | None:
    if size is None:
        return None
    found = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", size.strip())
    if found is None:
        raise OptionError(f"--size {size!r} is not a size: give WIDTHxHEIGHT, for instance 512x768")
    return int(found[1]), int(found[2])


def trace(
    prompt: Annotated[str, typer.Argument(help="What the picture should show.")],
    model: Annotated[
        str, typer.Option(help="'shapes' (embedded), 'exact-shapes', a pipeline's folder, or a hub id.")
    ] = "shapes",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the starting noise.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Scheduler steps; by default the model's.")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; 1 turns it off; by default the model's.")
    ] = None,
    size: Annotated[str | None, typer.Option(metavar="WxH", help="Size in pixels; by default the model's.")] = None,
    words: Annotated[
        str | None, typer.Option(metavar="A,B", help="Words of the prompt to watch; by default all.")
    ] = None,
    negative_prompt: Annotated[str, typer.Option(help="What the picture should not show.")] = "",
    information: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="Measure what each word adds, leaving it out by: omit, mask, neutral. A call a word more.",
        ),
    ] = None,
    neutral: Annotated[
        str | None, typer.Option(metavar="A=B,…", help="With --information neutral: what takes each word's place.")
    ] = None,
    gradient: Annotated[
        bool, typer.Option("--gradient", help="With --information: the output's gradient along each word's embedding.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Run folder to write; by default runs/TIME-PROMPT.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    open_report: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Draw one picture and watch the model do it.

    Writes a run folder: run.json (what was run), trace.nc (attention by word, step and layer; guidance difference;
    predicted clean latents), images/ and report.html. --information draws the picture a second time and asks the model
    once more for every word and step: at guidance 1 that is information in nats, under guidance its effort.
    """
    picture_size, watched = _parse_size(size), parse_words(words)
    way, substitutes = _parse_information(information, neutral, gradient)
    started = datetime.now(UTC)
    clock = time.perf_counter()
    quieten_libraries()
    # Imported here, so that --help and mistakes in the options answer at once.
    from denoscope.information.traced import traced_information, with_information
    from denoscope.observer import plan_generation, trace_generation
    from denoscope.pipelines import load
    from denoscope.reports import write_report

    with new_run(out, slug=prompt) as run:
        pipe = load(model, device)
        pipe.set_progress_bar_config(disable=True)
        seconds = {"load": time.perf_counter() - clock}
        plan = plan_generation(
            pipe,
            prompt,
            negative_prompt=negative_prompt,
            seed=seed,
            steps=steps,
            guidance_scale=guidance,
            size=picture_size,
            words=watched,
        )
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as progress:
            bar = progress.add_task("drawing", total=plan.num_inference_steps)
            traced = trace_generation(pipe, plan, watched, lambda step: progress.update(bar, completed=step + 1))
            whole = traced.trace
            if way is not None:
                asking = progress.add_task("asking without each word", total=plan.num_inference_steps)
                told = traced_information(
                    pipe,
                    plan,
                    watched,
                    how=way,
                    neutral=substitutes,
                    gradient=gradient,
                    on_step=lambda step: progress.update(asking, completed=step + 1),
                )
                whole = with_information(whole, told)
        Image.fromarray(traced.picture).save(run.images / "final.png")
        for step, picture in enumerate(traced.x0_pictures):
            Image.fromarray(picture).save(run.images / f"x0_{step:03d}.png")
        run.write_trace(whole)
        manifest = manifest_of(
            "trace",
            pipe,
            model,
            arguments={
                "prompt": prompt,
                "model": model,
                "seed": seed,
                "steps": plan.num_inference_steps,
                "guidance": plan.guidance_scale,
                "size": f"{plan.width}x{plan.height}",
                "words": watched,
                "negative_prompt": negative_prompt,
                "information": way,
                "neutral": neutral,
                "gradient": gradient,
            },
            seed=seed,
            started=started,
            seconds=seconds | traced.seconds,
            words=words_of(whole),
        )
        manifest.write(run.folder)  # the report reads it
        write_report(run.folder)
        manifest = run.finish(manifest)
    _tell(run.final, manifest, traced.warnings, whole, as_json)
    if open_report:
        webbrowser.open((run.final / "report.html").as_uri())


def _parse_information(how: str | None, neutral: str | None, gradient: bool) -> "tuple[How | None, dict[str, str]]":
    if how not in (None, "omit", "mask", "neutral"):
        raise OptionError(f"--information {how!r} is unknown: give omit, mask or neutral")
    if (how == "neutral") != (neutral is not None):
        raise OptionError("--information neutral and --neutral WORD=OTHER go together")
    if gradient and how is None:
        raise OptionError("--gradient goes with --information: give omit, mask or neutral")
    return cast("How | None", how), parse_pairs(neutral, "--neutral")


def _tell(
    folder: Path,
    manifest: RunManifest,
    cautions: tuple[str, ...],
    trace: "xr.Dataset",
    as_json: bool,
) -> None:
    from denoscope.reports.summaries import word_effort

    rows = word_effort(trace)
    if as_json:
        told: dict[str, object] = {"run": str(folder), "report": str(folder / "report.html")}
        told |= {"warnings": list(cautions), "information": [row._asdict() for row in rows]}
        typer.echo(json.dumps(told | {"manifest": manifest.model_dump(mode="json")}))
        return
    for caution in cautions:
        typer.echo(f"warning: {caution}", err=True)
    if rows:
        table = Table(
            "word", f"{trace.attrs['information_quantity']}, nats", "half of it by log-SNR", "most at log-SNR"
        )
        for row in rows:
            table.add_row(escape(row.word), f"{row.total:.3g}", *(_level(at) for at in (row.half, row.peak)))
        Console(stderr=True).print(table)
    taken = manifest.seconds
    typer.echo(f"{len(list((folder / 'images').glob('x0_*.png')))} steps in {taken['generate']:.1f} s", err=True)
    typer.echo(str(folder / "report.html"))


def _level(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
