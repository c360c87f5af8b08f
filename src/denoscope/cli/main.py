"""The entry point: the commands, and what a user sees when something is wrong."""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import click
import typer

from denoscope.cli import trace, train

app = typer.Typer(
    name="denoscope",
    help="Build, measure and look inside diffusion models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("trace", epilog=trace.EXAMPLES)(trace.trace)
app.add_typer(train.app, name="train")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"denoscope {version('denoscope')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Build, measure and look inside diffusion models."""


def main() -> None:
    """Run the command line: exit 0 when done, 2 with one sentence on bad input, 130 on Ctrl-C."""
    try:
        code = app(standalone_mode=False)
    except click.exceptions.Abort:
        _stop("stopped; nothing was left half-written", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except KeyboardInterrupt:
        _stop("stopped; nothing was left half-written", 130)
    except BrokenPipeError:
        # The reader of our output went away; a second message would fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if not _is_plain(error):
            raise
        _stop(str(error), 2)
    sys.exit(code if isinstance(code, int) else 0)


def _is_plain(error: Exception) -> bool:
    """Whether an error is one of ours, whose message is a sentence for the user."""
    return type(error).__module__.startswith("denoscope.")


def _stop(sentence: str, code: int) -> None:
    typer.echo(f"denoscope: {sentence}", err=True)
    sys.exit(code)
