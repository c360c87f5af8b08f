"""The facts of a run, as rows of a table; an unusual manifest loses rows, never the report."""

import re
from collections.abc import Mapping, Sequence

import xarray as xr

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
Manifest = Mapping[str, Json]
"""A run's manifest as it stands in ``run.json``."""


def facts(trace: xr.Dataset, manifest: Manifest) -> list[tuple[str, str]]:
    """Rows (name, value) that say how the picture came about; what is unknown has no row."""
    model = _part(manifest, "model")
    arguments = _part(manifest, "arguments")
    rows: list[tuple[str, Json]] = [
        ("Model", model.get("name")),
        ("Loaded from", model.get("source")),
        ("Pipeline", model.get("pipeline")),
        ("Weights (SHA-256)", model.get("sha256")),
        ("Negative prompt", str(trace.attrs.get("negative_prompt") or "") or None),
        ("Seed", manifest.get("seed")),
        ("Steps", int(trace.sizes["step"])),
        ("Guidance scale", guidance_scale(trace)),
        ("Scheduler", model.get("scheduler")),
        (
            "Device",
            " · ".join(str(manifest[key]) for key in ("device", "dtype") if manifest.get(key)) or None,
        ),
        ("Started", _moment(manifest.get("started"))),
        ("Time", _seconds(_part(manifest, "seconds"))),
        (
            "denoscope",
            manifest.get("denoscope_version") or str(trace.attrs.get("denoscope_version") or "") or None,
        ),
        (
            "Versions",
            " · ".join(f"{name} {value}" for name, value in _part(manifest, "versions").items()) or None,
        ),
        ("Command", _command(manifest, arguments)),
    ]
    return [(name, _show(value)) for name, value in rows if value is not None]


def guidance_scale(trace: xr.Dataset) -> float | None:
    """The guidance scale that the trace records, or ``None``."""
    try:
        return float(trace.attrs["guidance_scale"])
    except (KeyError, TypeError, ValueError):
        return None


def _part(manifest: Manifest, key: str) -> Mapping[str, Json]:
    value = manifest.get(key)
    return value if isinstance(value, Mapping) else {}


def _show(value: Json) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _moment(value: Json) -> str | None:
    """A time as people write it.

    >>> _moment("2026-12-01T15:30:12.25Z")
    '2026-12-01 15:30:12 UTC'
    """
    return re.sub(r"(\.\d+)?Z$", " UTC", value).replace("T", " ", 1) if isinstance(value, str) else None


def _seconds(parts: Mapping[str, Json]) -> str | None:
    shown = [f"{name} {value:.3g} s" for name, value in parts.items() if isinstance(value, int | float)]
    return " · ".join(shown) or None


def _command(manifest: Manifest, arguments: Mapping[str, Json]) -> str | None:
    name = manifest.get("command")
    if not name:
        return None
    given = " ".join(f"{key}={_show(value)}" for key, value in arguments.items() if value is not None)
    return f"{name}: {given}" if given else str(name)
