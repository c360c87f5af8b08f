"""``denoscope models``: which pipelines can be looked into, and what can be seen there."""

import json
import textwrap
from typing import Annotated, Final

import typer

from denoscope.cli.quiet import quieten_libraries

EXAMPLES: Final = "Examples:\n\ndenoscope models list\n\ndenoscope models list --json"

app = typer.Typer(help="Which models can be looked into.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Which models can be looked into."""


@app.command("list", epilog=EXAMPLES)
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the families of pipelines, what can be observed in each, and where features are read by default."""
    quieten_libraries()
    from denoscope.pipelines.adapters import ADAPTERS

    if as_json:
        families = [
            {
                "family": adapter.name,
                "pipelines": adapter.classes,
                "observes": adapter.observes,
                "feature_layers": adapter.feature_layers,
                "note": adapter.note,
            }
            for adapter in ADAPTERS
        ]
        typer.echo(json.dumps(families, indent=2))
        return
    for adapter in ADAPTERS:
        typer.secho(f"{adapter.name}: {', '.join(adapter.observes)}", bold=True)
        typer.echo(textwrap.fill(", ".join(adapter.classes), 110, initial_indent="  ", subsequent_indent="  "))
        if adapter.note:
            typer.echo(f"  Note: {adapter.note}.")
