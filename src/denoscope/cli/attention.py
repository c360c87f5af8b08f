"""``denoscope attention``: draw one picture and measure where its words look."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from denoscope.cli.attention_found import found_in, measure, measure_region
from denoscope.cli.attention_told import tell
from denoscope.cli.manifests import manifest_of
from denoscope.cli.options import OptionError, parse_indices, parse_layers, parse_words
from denoscope.cli.quiet import quieten_libraries
from denoscope.runs import NewRun, new_run

if TYPE_CHECKING:
    import xarray as xr

    from denoscope.observer import Traced
    from denoscope.observer.regions import Region
    from denoscope.pipelines.adapters import Branch

EXAMPLES: Final = (
    "Examples:\n\n"
    'denoscope attention "a red circle above a blue square"\n\n'
    'denoscope attention "a large striped green cross" --words striped,cross --steps 0,5,10,24 --seed 7\n\n'
    'denoscope attention "a dog on a mat" --model ./my-stable-diffusion --layers "up_blocks.*" --out maps --json\n\n'
    'denoscope attention "a red circle above a blue square" --self 0.3,0.1,0.6,0.4\n\n'
    'denoscope attention "a red circle above a blue square" --words circle --heads\n\n'
    'denoscope attention "a red circle above a blue square" --features "mid_block,up_blocks.*" --debug'
)
_EARLY_TO_LATE: Final = (0.1, 0.3, 0.6, 0.9)
"""Where in a run the steps lie that are shown unless others are asked for."""


def attention(
    prompt: Annotated[str, typer.Argument(help="What the picture should show.")],
    model: Annotated[str, typer.Option(help="'shapes' (embedded), a pipeline's folder, or a hub id.")] = "shapes",
    words: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Words to show; by default all but 'a', 'on', 'and' and their like."),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="I,J", help="Steps to show, counted from 0; by default four, early to late.")
    ] = None,
    layers: Annotated[str, typer.Option(metavar="GLOB", help="Cross-attention layers, a glob on their names.")] = "*",
    heads: Annotated[
        bool, typer.Option("--heads", help="Keep heads apart: heads.png shows each head of each layer for one word.")
    ] = False,
    region: Annotated[
        str | None,
        typer.Option(
            "--self",
            metavar="L,T,R,B",
            help="Show where a part of the picture looks instead of the words: left, top, right, bottom from 0 to 1.",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Layers whose output is pooled into features/: names or globs such as 'mid_block,up_blocks.*', or "
            "'auto' for the model's usual ones.",
        ),
    ] = None,
    branch: Annotated[str, typer.Option(help="Branch of guidance that is read: cond or uncond.")] = "cond",
    negative_prompt: Annotated[str, typer.Option(help="What the picture should not show.")] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the starting noise.")] = 0,
    num_inference_steps: Annotated[int | None, typer.Option(help="Scheduler steps; by default the model's.")] = None,
    guidance_scale: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; 1 turns it off; by default the model's.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Run folder to write; by default runs/TIME-PROMPT.")] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print shape, bytes and milliseconds of watched layers at each step.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Draw one picture and measure where its words look, from noise to picture.

    Writes a run folder: grid.png and grid.svg (words by steps over the picture), curve.svg (how wide each word looks),
    attention.nc (maps and measures), images/final.png and run.json; with --heads also heads.png and heads.svg, with
    --features a file for each layer. Prints how wide each word looks early and late, how much attention goes to the
    start, end and padding tokens, how much words share, and whether "red" lies on its own noun.
    """
    asked, chosen, part = parse_words(words), parse_indices(steps, "--steps"), _parse_region(region)
    pooled, side = parse_layers(features, "--features"), _parse_branch(branch)
    if side == "uncond" and not negative_prompt.strip() and part is None:
        raise OptionError("--branch uncond has words only with --negative-prompt; give one, or --self")
    if heads and part is not None:
        raise OptionError("--heads keeps the words' maps apart, and --self shows no words: leave one of them out")
    started = datetime.now(UTC)
    clock = time.perf_counter()
    quieten_libraries()
    # Imported here, so that --help and mistakes in the options answer at once.
    from denoscope.observer import count_steps, plan_generation, trace_generation
    from denoscope.pipelines import load
    from denoscope.pipelines.adapters import adapter_for

    with new_run(out, slug=prompt) as run:
        pipe = load(model, device)
        pipe.set_progress_bar_config(disable=True)
        seconds = {"load": time.perf_counter() - clock}
        if part is None and not adapter_for(pipe).layers(pipe, "cross"):
            raise OptionError(f"the model {model!r} has no cross-attention, so its words can't be seen: choose another")
        plan = plan_generation(
            pipe,
            prompt,
            negative_prompt=negative_prompt,
            seed=seed,
            steps=num_inference_steps,
            guidance_scale=guidance_scale,
            words=asked if side == "cond" else None,
        )
        at = _steps_shown(chosen, count_steps(pipe, plan))
        console = Console(stderr=True)
        quiet = as_json or debug or not console.is_terminal
        with Progress(console=console, transient=True, disable=quiet) as progress:
            bar = progress.add_task("drawing", total=plan.num_inference_steps)
            # All words are watched, whichever are shown: what they share is measured over all of them.
            traced = trace_generation(
                pipe,
                plan,
                None,
                lambda step: progress.update(bar, completed=step + 1),
                layers=layers,
                branch=side,
                region=part,
                x0=False,
                heads=heads,
                features=pooled,
                debug=debug,
            )
        table = measure(traced.trace) if part is None else measure_region(traced.trace)
        told = negative_prompt if side == "uncond" else prompt
        known = [str(word) for word in table["word"].values]
        shown = _words_shown(pipe, told, asked, known) if part is None else known
        _write(run, traced, table, shown, at)
        manifest = run.finish(
            manifest_of(
                "attention",
                pipe,
                model,
                arguments={
                    "prompt": prompt,
                    "model": model,
                    "words": asked,
                    "steps": [str(step) for step in at],
                    "layers": layers,
                    "heads": heads,
                    "self": region,
                    "features": features,
                    "branch": side,
                    "negative_prompt": negative_prompt,
                    "seed": seed,
                    "num_inference_steps": plan.num_inference_steps,
                    "guidance_scale": plan.guidance_scale,
                },
                seed=seed,
                started=started,
                seconds=seconds | traced.seconds,
                words=shown,
            )
        )
    tell(run.final, manifest, found_in(traced.trace, table, shown), traced.warnings, at, as_json)


def _write(run: NewRun, traced: "Traced", table: "xr.Dataset", shown: Sequence[str], steps: Sequence[int]) -> None:
    """All files but the manifest."""
    from denoscope.reports.figures.attention_grid import area_curves, attention_grid
    from denoscope.reports.figures.canvas import to_image, to_svg
    from denoscope.reports.figures.head_grid import head_grid

    Image.fromarray(traced.picture).save(run.images / "final.png")
    grids = {"grid": attention_grid(table["attention"].sel(word=list(shown)), traced.picture, steps)}
    if "attention_heads" in table:
        grids["heads"] = head_grid(table["attention_heads"].sel(word=shown[0]), traced.picture)
    for name, grid in grids.items():
        to_image(grid).save(run.folder / f"{name}.png", optimize=True)
        (run.folder / f"{name}.svg").write_text(to_svg(grid), "utf-8", newline="\n")
    curve = to_svg(area_curves(table.sel(word=list(shown))))
    (run.folder / "curve.svg").write_text(curve, "utf-8", newline="\n")
    run.write_trace(table, "attention.nc")
    if traced.features:
        (run.folder / "features").mkdir()
    for layer, pooled in traced.features.items():
        run.write_trace(pooled.astype("float32"), f"features/{layer}.nc")  # netCDF knows no float16


def _parse_region(text: str | None) -> "Region | None":
    if text is None:
        return None
    try:
        left, top, right, bottom = (float(side) for side in text.split(","))
    except ValueError as error:
        raise OptionError(f"--self {text!r} is no part of a picture: give left,top,right,bottom from 0 to 1") from error
    return left, top, right, bottom


def _parse_branch(text: str) -> "Branch":
    known: dict[str, Branch] = {"cond": "cond", "uncond": "uncond"}
    if text not in known:
        raise OptionError(f"--branch {text!r} is none: give cond or uncond")
    return known[text]


def _steps_shown(chosen: Sequence[int] | None, count: int) -> list[int]:
    if chosen is None:
        return sorted({min(count - 1, round(share * count)) for share in _EARLY_TO_LATE})
    for step in chosen:
        if step >= count:
            raise OptionError(f"--steps {step} is out of range: this run has {count} steps, 0 to {count - 1}")
    return list(chosen)


def _words_shown(pipe: object, prompt: str, asked: Sequence[str] | None, words: list[str]) -> list[str]:
    from denoscope.observer import select_words
    from denoscope.observer.binding import runs_of
    from denoscope.pipelines.adapters import adapter_for

    if asked is None:
        return [word for run in runs_of(words) for word in run] or words
    adapter = adapter_for(pipe)
    return [word.label for word in select_words(adapter.prompt_tokens(pipe, adapter.tokenize(pipe, prompt)), asked)]
