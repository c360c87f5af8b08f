"""What ``denoscope attention`` says: lines of text, or one JSON object."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import typer

from denoscope.cli.attention_found import Found
from denoscope.runs import RunManifest

_KINDS: Final = {"bos": "BOS", "eos": "EOS", "image": "image embeddings", "picture": "the picture itself"}


def tell(
    folder: Path, manifest: RunManifest, found: Found, cautions: Sequence[str], steps: Sequence[int], as_json: bool
) -> None:
    """Print it; warnings go to the standard error stream."""
    cautions = [*cautions, *(each.warning for each in found.bindings if each.warning is not None)]
    if as_json:
        typer.echo(json.dumps(_as_json(folder, manifest, found, cautions, steps), allow_nan=False))
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
    if found.heads:
        typer.echo(f"sharpest heads for {_printable(next(iter(found.areas)))!r}, effective area")
    for head in found.heads:
        typer.echo(f"  {head.layer} head {head.head}  {head.area:.3f}")
    typer.echo(str(folder))


def _as_json(
    folder: Path, manifest: RunManifest, found: Found, cautions: Sequence[str], steps: Sequence[int]
) -> dict[str, object]:
    return {
        "run": str(folder),
        "warnings": list(cautions),
        "steps": list(steps),
        "effective_area": {
            word: {"first": _known(first), "last": _known(last)} for word, (first, last) in found.areas.items()
        },
        "token_mass": {kind: _known(mass) for kind, mass in found.masses.items()},
        "overlap": [
            {"words": list(each.words), "soft": _known(each.soft), "hard": _known(each.hard)} for each in found.overlaps
        ],
        "binding": [asdict(each) | {"warning": each.warning} for each in found.bindings],
        "sharpest_heads": [
            {"layer": each.layer, "head": each.head, "effective_area": _known(each.area)} for each in found.heads
        ],
        "manifest": manifest.model_dump(mode="json"),
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)


def _printable(text: str) -> str:
    """Words come from anybody: what would steer the terminal is replaced."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
