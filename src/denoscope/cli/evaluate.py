"""``denoscope evaluate``: how good pictures are, by every metric in one pass, with intervals and a diagnosis."""

import json
import math
import platform
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from denoscope._version import __version__
from denoscope.cli.evaluate_inputs import (
    extractors_of,
    is_statistics,
    open_generated,
    parse_colour,
    parse_protocol,
    parse_weights,
    see,
    text_features_of,
    usual_cache,
)
from denoscope.cli.options import OptionError, parse_words
from denoscope.cli.quiet import quieten_libraries
from denoscope.runs import ModelRecord, RunManifest, new_run

if TYPE_CHECKING:
    from denoscope.metrics.diagnosis import Finding
    from denoscope.metrics.evaluation import Score
    from denoscope.metrics.extraction import Extracted

EXAMPLES: Final = (
    "Examples:\n\n"
    "denoscope evaluate --generated samples/ --reference photos/\n\n"
    "denoscope evaluate --generated a.zip --reference photos.safetensors --metrics fid,kid --protocol clean\n\n"
    "denoscope evaluate --generated shapes --prompts prompts.txt -n 200 --reference world/ --features shapes\n\n"
    "denoscope evaluate stats photos/ --out photos.safetensors"
)
STATS_EXAMPLES: Final = (
    "Examples:\n\n"
    "denoscope evaluate stats photos/ --out photos.safetensors\n\n"
    "denoscope evaluate stats world/ --out world.safetensors --features shapes --metrics fid,is"
)
app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)

Features = Annotated[
    str, typer.Option(help="inception, dinov2, clip, shapes, fashion, or a function of yours: python:module:function.")
]
ProtocolName = Annotated[
    str, typer.Option(help="Resize and parts as others have them: tf1, clean, torch, torchmetrics, adm.")
]
Weights = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]PATH", help="Weights: a file of Inception's, or clip=FOLDER, dinov2=FOLDER."),
]
BadFiles = Annotated[str, typer.Option(help="What to do with a file that can't be read: skip, fail.")]
Background = Annotated[str, typer.Option(metavar="R,G,B", help="What transparent pictures lie on.")]
Cache = Annotated[Path | None, typer.Option(help="Folder for features and drawn pictures; by default the user's.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def evaluate(
    context: typer.Context,
    generated: Annotated[
        str | None, typer.Option(metavar="DIR|FILE|MODEL", help="Pictures: a folder, ZIP, TAR, NPZ; or a model.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="DIR|FILE", help="Pictures to compare with, or a file of 'evaluate stats'.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="For a model: one a line. For pictures: CSV or JSON lines, file_name and text.")
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="fid, fid_infinity, kid, is, sfid, prdc, fd_dinov2, cmmd, clip_score, memorization, vendi.",
        ),
    ] = "fid,kid,is,prdc",
    features: Features = "inception",
    protocol: ProtocolName = "tf1",
    weights: Weights = None,
    n: Annotated[int | None, typer.Option("-n", "--number", min=2, help="Pictures of each set at most.")] = None,
    bootstrap: Annotated[int, typer.Option(min=2, help="Repeats where an interval needs parts drawn anew.")] = 200,
    nearest_k: Annotated[int, typer.Option(min=1, help="Neighbour that a ball reaches to, for prdc.")] = 5,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31, help="Of subsets and parts, and a model's first picture.")
    ] = 2020,
    num_inference_steps: Annotated[int | None, typer.Option(min=1, help="For a model; by default its own.")] = None,
    guidance_scale: Annotated[float | None, typer.Option(help="For a model; by default its own.")] = None,
    bad_files: BadFiles = "skip",
    background: Background = "255,255,255",
    cache: Cache = None,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Run folder to write; by default runs/TIME-evaluate.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Measure how good generated pictures are.

    Every picture is decoded once and seen once by each network; features are kept in a cache, so that a run that was
    stopped goes on. Each score has a 90 % interval over pictures and names its protocol. Writes a run folder:
    metrics.json (scores, findings, provenance) and run.json.
    """
    if context.invoked_subcommand is not None:
        return
    if generated is None:
        raise OptionError("give --generated: a folder, an archive or a model")
    started, clock = datetime.now(UTC), time.perf_counter()
    quieten_libraries()
    # Imported here, so that --help and mistakes in the options answer at once.
    from denoscope.metrics.diagnosis import diagnose
    from denoscope.metrics.evaluation import Settings, outputs_of
    from denoscope.metrics.evaluation import evaluate as measure
    from denoscope.metrics.image_sets import open_images
    from denoscope.metrics.statistics_file import check_same_kind, load_statistics
    from denoscope.pipelines.loading import pick_device

    names, ground, chosen = parse_words(metrics) or [], parse_colour(background), parse_protocol(protocol)
    wanted, paths = outputs_of(names, features), parse_weights(weights or [], features)
    folder, place = cache or usual_cache(), str(pick_device(device))
    with new_run(out, slug="evaluate") as run, ExitStack() as stack:
        extractors = extractors_of(wanted, chosen, paths, place)
        look = partial(
            see,
            extractors=extractors,
            most=n,
            cache=folder,
            background=ground,
            bad_files=bad_files,
            device=place,
            quiet=as_json,
        )
        told = load_statistics(reference) if reference is not None and is_statistics(reference) else None
        others = None if reference is None or told is not None else stack.enter_context(open_images(reference))
        images, texts = open_generated(
            generated,
            prompts,
            n,
            cache=folder,
            seed=seed,
            num_inference_steps=num_inference_steps,
            guidance_scale=guidance_scale,
            device=place,
            quiet=as_json,
            stack=stack,
        )
        ours = look(images, label="generated")
        theirs = told if others is None else look(others, label="reference")
        if theirs is not None:
            check_same_kind(ours, theirs)
        rows, warnings = None, list[str]()
        if "clip_score" in names:
            rows, warnings = text_features_of(ours, texts, paths.get("clip"), place)
        settings = Settings(protocol=chosen, repeats=bootstrap, nearest_k=nearest_k, seed=seed)
        scores = measure(ours, theirs, names, features, settings=settings, texts=rows)
        findings = diagnose(scores, ours, theirs, features)
        whole: dict[str, object] = {
            "scores": [asdict(score) for score in scores],
            "findings": [finding._asdict() for finding in findings],
            "warnings": warnings,
            "provenance": provenance(ours, theirs),
        }
        (run.folder / "metrics.json").write_text(json.dumps(_finite(whole), indent=2) + "\n", "utf-8", newline="\n")
        run.finish(
            RunManifest(
                denoscope_version=__version__,
                command="evaluate",
                arguments={
                    "generated": generated,
                    "reference": None if reference is None else str(reference),
                    "prompts": None if prompts is None else str(prompts),
                    "metrics": names,
                    "features": features,
                    "protocol": protocol,
                    "n": n,
                    "bootstrap": bootstrap,
                    "nearest_k": nearest_k,
                    "background": background,
                    "bad_files": bad_files,
                },
                versions=versions(),
                model=ModelRecord(name=features, source=generated, pipeline="features"),
                seed=seed,
                device=place,
                dtype="float32",
                started=started,
                seconds={"evaluate": round(time.perf_counter() - clock, 3)},
            )
        )
    if as_json:
        typer.echo(json.dumps(_finite(whole | {"run": str(run.final)})))
        return
    _tell(scores, findings, warnings, ours, theirs)
    typer.echo(str(run.final))


@app.command(epilog=STATS_EXAMPLES)
def stats(
    pictures: Annotated[Path, typer.Argument(help="A folder, ZIP, TAR or NPZ of pictures.")],
    out: Annotated[Path, typer.Option(help="File to write, .safetensors.")],
    metrics: Annotated[str, typer.Option(metavar="A,B", help="Metrics that the file shall serve.")] = "fid,kid,prdc",
    features: Features = "inception",
    protocol: ProtocolName = "tf1",
    weights: Weights = None,
    n: Annotated[int | None, typer.Option("-n", "--number", min=2, help="Pictures at most.")] = None,
    bad_files: BadFiles = "skip",
    background: Background = "255,255,255",
    cache: Cache = None,
    device: Device = "auto",
) -> None:
    """See a reference once and keep its features in a file for --reference."""
    quieten_libraries()
    from denoscope.metrics.evaluation import outputs_of
    from denoscope.metrics.image_sets import open_images
    from denoscope.metrics.statistics_file import save_statistics
    from denoscope.pipelines.loading import pick_device

    if not is_statistics(out):
        raise OptionError(f"--out {str(out)!r} must end in .safetensors")
    wanted, place = outputs_of(parse_words(metrics) or [], features), str(pick_device(device))
    extractors = extractors_of(wanted, parse_protocol(protocol), parse_weights(weights or [], features), place)
    with open_images(pictures) as images:
        seen = see(
            images,
            extractors,
            "pictures",
            most=n,
            cache=cache or usual_cache(),
            background=parse_colour(background),
            bad_files=bad_files,
            device=place,
            quiet=False,
        )
    save_statistics(seen, out)
    typer.echo(f"{len(seen):,} pictures, {len(seen.problems):,} files that can't be read: {out}")


def provenance(generated: "Extracted", reference: "Extracted | None") -> dict[str, object]:
    """Where scores come from: sets by the hash of their pictures, what features depend on, versions."""
    sets: dict[str, object] = {}
    for name, pictures in (("generated", generated), ("reference", reference)):
        if pictures is not None:
            sets[name] = {
                "origin": pictures.origin,
                "pictures": len(pictures),
                "sha256": pictures.digest,
                "not_read": [list(problem) for problem in pictures.problems],
            }
    decoder = f"Pillow {version('pillow')}"
    return {"sets": sets, "features": generated.identities, "decoder": decoder, "versions": versions()}


def versions() -> dict[str, str]:
    """Of what numbers depend on."""
    packages = ("torch", "numpy", "scipy", "pillow")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def _tell(
    scores: "Sequence[Score]",
    findings: "Sequence[Finding]",
    warnings: Sequence[str],
    ours: "Extracted",
    theirs: "Extracted | None",
) -> None:
    table = Table("metric", "value", "90 % interval", "n", "reference", "better")
    for score in scores:
        interval = "not known" if math.isnan(score.low) else f"{score.low:.4g} … {score.high:.4g}"
        others = f"{score.n_reference:,}" if score.n_reference else ""
        direction = "higher" if score.higher_is_better else "lower"
        table.add_row(escape(score.protocol), f"{score.value:.4g}", interval, f"{score.n:,}", others, direction)
    console = Console()
    console.print(table)
    for warning in warnings:
        typer.echo(warning)
    for finding in findings:
        typer.echo(f"{finding.code}: {finding.text}. {finding.do[:1].upper()}{finding.do[1:]}.")
    for pictures in (ours, theirs):
        for name, why in [] if pictures is None else pictures.problems[:5]:
            typer.echo(f"not read: {name!r}: {why}")


def _finite(value: object) -> object:
    """JSON knows no NaN: an interval that is not known is null."""
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
