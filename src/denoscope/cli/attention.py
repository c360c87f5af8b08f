"""``denoscope attention``: draw one picture and measure where its words look."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from denoscope.cli.attention_tables import find, heads_of, layer_of_heads, measure, measure_region, without_heads
from denoscope.cli.attention_telling import tell
from denoscope.cli.feature_file import write_features
from denoscope.cli.manifests import manifest_of
from denoscope.cli.options import OptionError, parse_indices, parse_layers, parse_words
from denoscope.cli.quiet import quieten_libraries
from denoscope.runs import NewRun, new_run

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr
    from numpy.typing import NDArray

    from denoscope.observer.regions import Region
    from denoscope.pipelines.adapters import Branch
    from denoscope.reports.figures.canvas import Drawing

EXAMPLES: Final = (
    "Examples:\n\n"
    'denoscope attention "a red circle above a blue square"\n\n'
    'denoscope attention "a large striped green cross" --words striped,cross --steps 0,5,10,24 --seed 7\n\n'
    'denoscope attention "a dog on a mat" --model ./my-stable-diffusion --layers "up_blocks.*" --out maps --json\n\n'
    'denoscope attention "a red circle above a blue square" --self 0.3,0.1,0.6,0.4\n\n'
    'denoscope attention "a red circle" --words circle --heads --layers "mid_block.*"\n\n'
    'denoscope attention "a red circle" --features "mid_block,up_blocks.*" --debug'
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
    region: Annotated[
        str | None,
        typer.Option(
            "--self",
            metavar="L,T,R,B",
            help="Show where a part of the picture looks instead of the words: left, top, right, bottom from 0 to 1.",
        ),
    ] = None,
    heads: Annotated[
        bool, typer.Option("--heads", help="Also the words' maps of each head apart: heads.png, heads.svg.")
    ] = False,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="LAYERS",
            help="Also what layers give out, pooled, into features.nc: names or globs separated by commas, or auto.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print shape, bytes and milliseconds of the watched layers at each step.")
    ] = False,
    branch: Annotated[str, typer.Option(help="Branch of guidance that is read: cond or uncond.")] = "cond",
    negative_prompt: Annotated[str, typer.Option(help="What the picture should not show.")] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the starting noise.")] = 0,
    num_inference_steps: Annotated[int | None, typer.Option(help="Scheduler steps; by default the model's.")] = None,
    guidance_scale: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; 1 turns it off; by default the model's.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Run folder to write; by default runs/TIME-PROMPT.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Draw one picture and measure where its words look, from noise to picture.

    Writes a run folder: grid.png and grid.svg (words by steps over the picture), curve.svg (how wide each word looks),
    attention.nc (maps and measures), images/final.png and run.json; with --heads also heads.png and heads.svg (heads of
    one layer by steps, for the first word shown), with --features also features.nc (a group for each layer).
    Prints how wide each word looks early and late, how much attention goes to the start, end and padding tokens, how
    much words share, and whether "red" lies on its own noun.
    """
    asked, chosen, part = parse_words(words), parse_indices(steps, "--steps"), _parse_region(region)
    outputs = parse_layers(features, "--features")
    side: Branch = _parse_branch(branch)
    if side == "uncond" and not negative_prompt.strip() and part is None:
        raise OptionError("--branch uncond has words only with --negative-prompt; give one, or --self")
    if heads and part is not None:
        raise OptionError("--heads has the heads of the words' maps apart, which --self has none of; leave one out")
    started = datetime.now(UTC)
    clock = time.perf_counter()
    quieten_libraries()
    # Imported here, so that --help and mistakes in the options answer at once.
    from denoscope.observer import count_steps, plan_generation, trace_generation
    from denoscope.pipelines import load
    from denoscope.pipelines.adapters import adapter_for
    from denoscope.reports.figures.attention_grid import area_curves, attention_grid
    from denoscope.reports.figures.canvas import to_svg

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
        with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as progress:
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
                heads=heads,
                features=outputs,
                x0=False,
                debug=debug,
            )
        mean = without_heads(traced.trace)
        table = measure(mean) if part is None else measure_region(mean)
        told = negative_prompt if side == "uncond" else prompt
        known = [str(word) for word in table["word"].values]
        shown = _words_shown(pipe, told, asked, known) if part is None else known
        Image.fromarray(traced.picture).save(run.images / "final.png")
        _draw(run, "grid", attention_grid(table["attention"].sel(word=shown), traced.picture, at))
        curve = to_svg(area_curves(table.sel(word=shown)))
        (run.folder / "curve.svg").write_text(curve, "utf-8", newline="\n")
        shown_heads = None
        if heads:
            table = table.assign(attention_heads=heads_of(traced.trace, shown, at))
            shown_heads = (shown[0], layer_of_heads(table["attention_heads"], shown[0]))
            _draw(run, "heads", _grid_of_heads(table["attention_heads"], *shown_heads, traced.picture, at))
        run.write_trace(table, "attention.nc")
        write_features(traced.features, run.folder / "features.nc")
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
                    "self": region,
                    "heads": heads,
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
    found = replace(find(mean, table, shown), heads=shown_heads)
    tell(run.final, manifest, found, traced.warnings, at, as_json)


def _draw(run: NewRun, name: str, drawing: "Drawing") -> None:
    from denoscope.reports.figures.canvas import to_image, to_svg

    to_image(drawing).save(run.folder / f"{name}.png", optimize=True)
    (run.folder / f"{name}.svg").write_text(to_svg(drawing), "utf-8", newline="\n")


def _grid_of_heads(
    maps: "xr.DataArray", word: str, layer: str, picture: "NDArray[np.uint8]", steps: Sequence[int]
) -> "Drawing":
    """A row of maps for each head of a layer, under the name of a word."""
    from denoscope.reports.figures.attention_grid import attention_grid

    own = maps.sel(shown_word=word, layer=layer, drop=True).dropna("head", how="all")
    rows = own.rename(head="word", shown_step="step").assign_coords(
        word=[f"head {head}" for head in range(own.sizes["head"])]
    )
    return attention_grid(rows, picture, steps, heading=f"'{word}' in the heads of {layer}")


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
