"""The manifest of a command that drew one picture with a pipeline."""

import platform
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from denoscope._version import __version__
from denoscope.runs import ModelRecord, RunManifest

if TYPE_CHECKING:
    import xarray as xr
    from diffusers import DiffusionPipeline

_PACKAGES: Final = ("torch", "diffusers", "transformers", "numpy", "xarray")


def manifest_of(
    command: str,
    pipe: "DiffusionPipeline",
    model: str,
    *,
    arguments: Mapping[str, str | int | float | bool | list[str] | None],
    seed: int,
    started: datetime,
    seconds: Mapping[str, float],
    words: Sequence[str],
) -> RunManifest:
    """What ran, with which model and packages; without the digests of files, which a run's ``finish`` adds."""
    # Imported here, so that --help needs no torch.
    from denoscope.pipelines import model_sha256

    return RunManifest(
        denoscope_version=__version__,
        command=command,
        arguments=dict(arguments),
        versions={"python": platform.python_version()} | {name: version(name) for name in _PACKAGES},
        model=ModelRecord(
            name=model,
            source=str(getattr(pipe, "name_or_path", "") or model),
            pipeline=type(pipe).__name__,
            scheduler=type(pipe.scheduler).__name__,
            sha256=model_sha256(pipe),
        ),
        seed=seed,
        device=str(pipe.device),
        dtype=str(pipe.dtype).removeprefix("torch."),
        started=started,
        seconds={name: round(value, 3) for name, value in seconds.items()},
        words=list(words),
    )


def words_of(trace: "xr.Dataset") -> list[str]:
    """The labels of a trace's words; none for a trace without attention."""
    return [str(word) for word in trace.coords["word"].values] if "word" in trace.coords else []
