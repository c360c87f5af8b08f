"""Run folders: made all or nothing, read with plain errors."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

import xarray as xr

from denoscope.runs.errors import RunError
from denoscope.runs.manifest import RunManifest, hash_file
from denoscope.runs.naming import run_name

TRACE_NAME = "trace.nc"
REPORT_NAME = "report.html"
IMAGES_NAME = "images"


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run folder in the making: write into ``folder``; it becomes ``final`` when the block ends well."""

    folder: Path
    final: Path

    @property
    def images(self) -> Path:
        """The folder for pictures, made on first use."""
        path = self.folder / IMAGES_NAME
        path.mkdir(exist_ok=True)
        return path

    def write_trace(self, trace: xr.Dataset, name: str = TRACE_NAME) -> Path:
        """Write the trace, or another dataset by its own name, as netCDF-4, compressed; returns its path."""
        path = self.folder / name
        encoding = {
            name: {"zlib": True, "complevel": 4, "shuffle": True}
            for name, variable in trace.data_vars.items()
            if variable.dtype.kind == "f" and variable.ndim > 0
        }
        trace.to_netcdf(path, engine="h5netcdf", encoding=encoding)
        return path

    def finish(self, manifest: RunManifest) -> RunManifest:
        """Write the manifest with the digests of all files written so far; call it last."""
        complete = manifest.with_files(self.folder)
        complete.write(self.folder)
        return complete


@contextmanager
def new_run(out: Path | None = None, root: Path = Path("runs"), slug: str = "run") -> Iterator[NewRun]:
    """Make a run folder, all or nothing.

    The caller writes into a hidden folder beside the final place. When the block ends well, one rename puts
    it there; on any exception, ``KeyboardInterrupt`` included, it is removed. Two runs never share a folder,
    also when they start in the same second.

    Args:
        out: the final folder; it must be new or empty. ``None``: ``root/<UTC time>-<slug>``.
        root: where unnamed runs go; made when missing.
        slug: any text, e.g. the prompt; made safe by :func:`~denoscope.runs.slugify`.

    Raises:
        RunError: the place is taken or can't be written (before the block), or the rename fails (after it).
    """
    run = _claim_named(out) if out is not None else _claim_next(root, slug)
    try:
        yield run
        _publish(run)
    except BaseException:
        shutil.rmtree(run.folder, ignore_errors=True)
        raise


def _partial(final: Path) -> Path:
    # The name of the hidden folder follows from the final one: making it is also the claim on the final name.
    return final.with_name(f".{final.name}.partial")


def _claim_named(out: Path) -> NewRun:
    try:
        final = out.resolve()
        if final.exists() and not final.is_dir():
            raise RunError(f"{out} is a file, not a folder; choose another --out.")
        if final.is_dir() and any(final.iterdir()):
            raise RunError(f"{out} already exists and is not empty; choose another --out.")
        if final.is_dir() and (final == Path.cwd() or final.is_mount()):
            # The final rename replaces an empty folder, which can't be done to one in use.
            raise RunError(f"{out} is in use as a folder of its own; choose a new folder inside it as --out.")
        final.parent.mkdir(parents=True, exist_ok=True)
        folder = _partial(final)
        folder.mkdir()
    except RunError:
        raise
    except FileExistsError as error:
        if not _partial(final).exists():
            raise RunError(f"{out} can't be made: {error.strerror}: {error.filename}.") from error
        raise RunError(
            f"Another run is writing to {out}; choose another --out, or delete {_partial(final)} if that run "
            "was killed."
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(f"{out} can't be made: {_reason(error)}; choose another --out.") from error
    return NewRun(folder, final)


def _claim_next(root: Path, slug: str) -> NewRun:
    try:
        root = root.resolve()
        root.mkdir(parents=True, exist_ok=True)
        name = run_name(slug)
        for number in count(1):
            final = root / (name if number == 1 else f"{name}-{number}")
            folder = _partial(final)
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            # Looked at only after the claim: a run that held the claim before has been renamed by now.
            if not final.exists():
                return NewRun(folder, final)
            folder.rmdir()
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(f"{root} can't be written: {_reason(error)}; choose a folder with --out.") from error
    raise AssertionError("count() never ends")


def _publish(run: NewRun) -> None:
    try:
        if run.final.is_dir():
            # Fails when files have been put there meanwhile. Needed as Windows can't rename over any folder.
            run.final.rmdir()
        elif os.path.lexists(run.final):
            raise FileExistsError(None, "something else has been put there", str(run.final))
        run.folder.rename(run.final)
    except OSError as error:
        raise RunError(f"The run can't be put at {run.final}: {_reason(error)}; choose another --out.") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A finished run, for reading."""

    path: Path
    manifest: RunManifest

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a run folder.

        Raises :class:`RunError` when it isn't one, its manifest is broken, or a newer denoscope wrote it.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise RunError(f"{folder} is not a run folder: there is no such folder.")
        return cls(folder, RunManifest.read(folder))

    def trace(self) -> xr.Dataset:
        """The trace, in memory: float32 variables over ``word, step, layer, y, x``, as written.

        Raises :class:`RunError` when the run has no trace or it can't be read.
        """
        path = self.path / TRACE_NAME
        if not path.is_file():
            raise RunError(f"{self.path} has no {TRACE_NAME}: this run kept no trace.")
        try:
            with xr.open_dataset(path, engine="h5netcdf") as dataset:
                return dataset.load()
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise RunError(f"{path} can't be read as netCDF; it may be damaged: {error}.") from error

    @property
    def report(self) -> Path:
        """Where the report is, or would be."""
        return self.path / REPORT_NAME

    @property
    def final_image(self) -> Path | None:
        """The final picture, or ``None`` for a run without one."""
        path = self.path / IMAGES_NAME / "final.png"
        return path if path.is_file() else None

    @property
    def x0_images(self) -> tuple[Path, ...]:
        """The pictures of the predicted clean latent, noisiest step first."""
        # Sorted by number, because a name outgrows its three digits at step 1000.
        found = {
            int(path.stem[3:]): path for path in (self.path / IMAGES_NAME).glob("x0_*.png") if path.stem[3:].isdecimal()
        }
        return tuple(found[step] for step in sorted(found))

    def damaged(self) -> list[str]:
        """The files of the manifest that are missing or differ from their digest, as paths in the folder."""
        return [
            name
            for name, digest in self.manifest.files.items()
            if not (self.path / name).is_file() or hash_file(self.path / name) != digest
        ]
