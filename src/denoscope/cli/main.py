"""The entry point: the commands, and what a user sees when something is wrong."""

import signal
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from denoscope.cli import attention, dynamics, evaluate, models, robustness, sample, trace, train

app = typer.Typer(
    name="denoscope",
    help="Build, measure and look inside diffusion models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("trace", epilog=trace.EXAMPLES)(trace.trace)
app.command("attention", epilog=attention.EXAMPLES)(attention.attention)
app.command("dynamics", epilog=dynamics.EXAMPLES, no_args_is_help=True)(dynamics.dynamics)
app.command("robustness", epilog=robustness.EXAMPLES)(robustness.robustness)
app.command("train", epilog=train.EXAMPLES, no_args_is_help=True)(train.train)
app.command("sample", epilog=sample.EXAMPLES)(sample.sample)
app.add_typer(evaluate.app, name="evaluate", help="Measure how good generated pictures are.")
app.add_typer(models.app, name="models")


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
    """Run the command line.

    Exit code 0 when done, 2 with one sentence on bad input, 1 with one when a file can't be read or written, 130 on
    Ctrl-C, 143 on SIGTERM.
    """
    # An exception, unlike the signal's default, removes what is half-written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:
        reason = ": ".join(str(part) for part in (error.strerror, error.filename) if part) or str(error)
        _stop(f"a file can't be read or written: {reason}", 1)
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        _stop(sentence, 2)
    if code == 130:  # Newer versions of Typer make this of Ctrl-C themselves.
        _stop("stopped; nothing was left half-written", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _sentence(error: Exception) -> str | None:
    """What to tell the user of an error that is the input's; ``None`` for a fault of ours."""
    if type(error).__module__.startswith("denoscope."):
        return str(error)
    # Mistakes on the command line: classes of click's, or of the copy of click in newer versions of Typer.
    told = getattr(error, "format_message", None)
    return str(told()) if callable(told) else None


def _stop(sentence: str, code: int) -> NoReturn:
    if sentence:  # Empty after a command without arguments: its help is printed already.
        typer.echo(f"denoscope: {sentence}", err=True)
    sys.exit(code)
