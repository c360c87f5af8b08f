"""Run folders of long work: made at the beginning, so that what is done outlives a kill."""

from pathlib import Path
from typing import Final

from denoscope.runs.errors import RunError
from denoscope.runs.manifest import MANIFEST_NAME
from denoscope.runs.naming import run_name

ROOT: Final = Path("runs")


def begin_run(out: Path | None, slug: str, root: Path = ROOT) -> Path:
    """Make the folder of a run that can be resumed: ``out``, or ``root/<UTC time>-<slug>``.

    Unlike :func:`~denoscope.runs.new_run` the folder is there at once, and is whole when it has a ``run.json``.

    Raises :class:`RunError` when the place is taken or can't be made.
    """
    folder = root / run_name(slug) if out is None else out
    if out is not None and folder.is_dir() and any(folder.iterdir()):
        raise RunError(f"{out} already exists and is not empty: choose another --out, or go on with --resume {out}")
    try:
        folder.mkdir(parents=True, exist_ok=out is not None)
    except FileExistsError:
        raise RunError(f"{folder} is there already; choose a folder with --out") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunError(f"{folder} can't be made: {reason}; choose another --out") from error
    return folder


def is_whole(folder: Path) -> bool:
    """Whether a run has ended, and its manifest was written."""
    return (folder / MANIFEST_NAME).is_file()
