"""``denoscope attention``: draw one picture and measure where its words look."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from denoscope.cli.manifests import manifest_of
from denoscope.cli.options import OptionError, parse_indices, parse_words
from denoscope.cli.quiet import quieten_libraries
from denoscope.runs import RunManifest, new_run

if TYPE_CHECKING:
    import xarray as xr

    from denoscope.observer import Binding
    from denoscope.observer.regions import Region
    from denoscope.pipelines.adapters import Branch

EXAMPLES: Final = (
    "Examples:\n\n"
    'denoscope attention "a red circle above a blue square"\n\n'
    'denoscope attention "a large striped green cross" --words striped,cross --steps 0,5,10,24 --seed 7\n\n'
    'denoscope attention "a dog on a mat" --model ./my-stable-diffusion --layers "up_blocks.*" --out maps --json\n\n'
    'denoscope attention "a red circle above a blue square" --self 0.3,0.1,0.6,0.4'
)
_EARLY_TO_LATE: Final = (0.1, 0.3, 0.6, 0.9)
"""Where in a run the steps lie that are shown unless others are asked for."""
_KINDS: Final = {"bos": "BOS", "eos": "EOS", "image": "image embeddings", "picture": "the picture itself"}


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much the maps of two words share, as soft and hard intersection over union."""

    words: tuple[str, str]
    soft: float
    hard: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured, of the words shown: areas at the first and the last step, masses, overlaps, bindings."""

    areas: dict[str, tuple[float, float]]
    masses: dict[str, float]
    overlaps: tuple[Overlap, ...]
    bindings: "tuple[Binding, ...]"


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
    attention.nc (maps and measures), images/final.png and run.json. Prints how wide each word looks early and late,
    how much attention goes to the start, end and padding tokens, how much words share, and whether "red" lies on its
    own noun.
    """
    asked, chosen, part = parse_words(words), parse_indices(steps, "--steps"), _parse_region(region)
    side: Branch = _parse_branch(branch)
    if side == "uncond" and not negative_prompt.strip() and part is None:
        raise OptionError("--branch uncond has words only with --negative-prompt; give one, or --self")
    started = datetime.now(UTC)
    clock = time.perf_counter()
    quieten_libraries()
    # Imported here, so that --help and mistakes in the options answer at once.
    from denoscope.observer import count_steps, plan_generation, trace_generation
    from denoscope.pipelines import load
    from denoscope.pipelines.adapters import adapter_for
    from denoscope.reports.figures.attention_grid import area_curves, attention_grid
    from denoscope.reports.figures.canvas import to_image, to_svg

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
                x0=False,
            )
        table = _measure(traced.trace) if part is None else _measure_region(traced.trace)
        told = negative_prompt if side == "uncond" else prompt
        known = [str(word) for word in table["word"].values]
        shown = _words_shown(pipe, told, asked, known) if part is None else known
        Image.fromarray(traced.picture).save(run.images / "final.png")
        grid = attention_grid(table["attention"].sel(word=shown), traced.picture, at)
        to_image(grid).save(run.folder / "grid.png", optimize=True)
        (run.folder / "grid.svg").write_text(to_svg(grid), "utf-8", newline="\n")
        curve = to_svg(area_curves(table.sel(word=shown)))
        (run.folder / "curve.svg").write_text(curve, "utf-8", newline="\n")
        run.write_trace(table, "attention.nc")
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
    found = _found(traced.trace, table, shown)
    _tell(run.final, manifest, found, traced.warnings, at, as_json)


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


def _measure(trace: "xr.Dataset") -> "xr.Dataset":
    """The maps of all words, averaged over layers, and their measures: what ``attention.nc`` holds."""
    import xarray as xr

    from denoscope.observer import overlap, sharpening, word_maps

    maps = word_maps(trace)
    mean = maps.mean("step", skipna=True)
    # One word against all at a time: all against all of a long prompt would take gigabytes.
    shared = xr.concat([overlap(mean, mean.sel(word=word, drop=True)) for word in mean["word"].values], "other_word")
    shared = shared.assign_coords(other_word=mean["word"].values)
    table = sharpening(trace).assign(
        attention=maps,
        token_mass=trace["token_mass"].mean("layer").transpose("token_kind", "step"),
        soft_overlap=shared["soft"],
        hard_overlap=shared["hard"],
    )
    table.attrs = dict(trace.attrs) | {"layers": " ".join(str(name) for name in trace["layer"].values)}
    return table.astype("float32")


def _measure_region(trace: "xr.Dataset") -> "xr.Dataset":
    """Where the region looks, averaged over layers, under the name of a word, and how wide."""
    import xarray as xr

    from denoscope.observer import sharpening

    maps = trace["self_attention"].mean("layer").expand_dims(word=["the region"])
    table = sharpening(xr.Dataset({"attention": maps}, {"logsnr": trace["logsnr"]})).assign(attention=maps)
    table.attrs = dict(trace.attrs) | {"layers": " ".join(str(name) for name in trace["layer"].values)}
    return table.astype("float32")


def _found(trace: "xr.Dataset", table: "xr.Dataset", shown: Sequence[str]) -> Found:
    from denoscope.observer import bindings

    areas = table["effective_area"]
    if "token_mass" not in table:
        return Found({word: (float(areas[0, 0]), float(areas[0, -1])) for word in shown}, {}, (), ())
    masses = table["token_mass"].mean("step")
    return Found(
        {word: (float(areas.sel(word=word)[0]), float(areas.sel(word=word)[-1])) for word in shown},
        {str(kind): float(masses.sel(token_kind=kind)) for kind in masses["token_kind"].values},
        tuple(
            Overlap(
                pair,
                *(
                    float(table[name].sel(word=pair[0], other_word=pair[1]))
                    for name in ("soft_overlap", "hard_overlap")
                ),
            )
            for pair in combinations(shown, 2)
        ),
        tuple(found for found in bindings(trace) if found.modifier in shown),
    )


def _tell(
    folder: Path, manifest: RunManifest, found: Found, cautions: Sequence[str], steps: Sequence[int], as_json: bool
) -> None:
    cautions = [*cautions, *(each.warning for each in found.bindings if each.warning is not None)]
    if as_json:
        told = {
            "run": str(folder),
            "warnings": cautions,
            "steps": list(steps),
            "effective_area": {
                word: {"first": _known(first), "last": _known(last)} for word, (first, last) in found.areas.items()
            },
            "token_mass": {kind: _known(mass) for kind, mass in found.masses.items()},
            "overlap": [
                {"words": list(each.words), "soft": _known(each.soft), "hard": _known(each.hard)}
                for each in found.overlaps
            ],
            "binding": [asdict(each) | {"warning": each.warning} for each in found.bindings],
            "manifest": manifest.model_dump(mode="json"),
        }
        typer.echo(json.dumps(told, allow_nan=False))
        return
    for caution in cautions:
        typer.echo(f"warning: {_printable(caution)}", err=True)
    room = max((len(_printable(word)) for word in found.areas), default=0)
    typer.echo("effective area of each word's map, first step → last step")
    for word, (first, last) in found.areas.items():
        typer.echo(f"  {_printable(word):{room}}  {first:.3f} → {last:.3f}")
    if found.masses:
        typer.echo("attention by kind of token, mean over steps and layers")
        typer.echo("  " + ", ".join(f"{_KINDS.get(kind, kind)} {mass:.3f}" for kind, mass in found.masses.items()))
    if found.overlaps:
        typer.echo("overlap of maps: soft IoU, hard IoU at half the maximum")
    for each in found.overlaps:
        first_word, second_word = (_printable(word) for word in each.words)
        typer.echo(f"  {first_word:{room}}  {second_word:{room}}  {each.soft:.3f}  {each.hard:.3f}")
    if found.bindings:
        typer.echo("binding: -1 on another noun … 1 on its own")
    for bound in found.bindings:
        own, rival = _printable(bound.noun), _printable(bound.rival)
        typer.echo(f"  {_printable(bound.modifier):{room}}  {bound.score:+.3f}  {own!r} against {rival!r}")
    typer.echo(str(folder))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)


def _printable(text: str) -> str:
    """Words come from anybody: what would steer the terminal is replaced."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
