"""What ``denoscope dynamics`` writes and prints of a population whose pictures are drawn."""

import json
import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rich.console import Console
from rich.table import Table

from denoscope.runs import RunManifest

if TYPE_CHECKING:
    import xarray as xr
    from rich.progress import Progress

    from denoscope.information.population import Population


def write_results(
    folder: Path,
    parts_folder: Path,
    population: "Population",
    estimator: str,
    permutations: int,
    *,
    seed: int,
    progress: "Progress",
) -> "xr.Dataset":
    """Measure every cell; write dynamics.nc, beliefs.nc, layers.nc, atlas.nc, anomalies.json and the figure.

    Returns what dynamics.nc holds.
    """
    # Imported here, so that --help needs no torch.
    import xarray as xr

    from denoscope.information.dynamics import anomalies, transfer
    from denoscope.information.estimators import cross_check
    from denoscope.information.population import Parts, atlas, measure_slot, summarise
    from denoscope.reports.figures.canvas import to_image, to_svg
    from denoscope.reports.figures.dynamics import dynamics_figure

    parts = Parts.open(parts_folder, len(population.prompts))
    cells = len(parts.branches) * len(parts.layers) * len(parts.levels)
    beliefs = []
    for number, arm in enumerate(population.arms):
        bar = progress.add_task(f"measuring {arm.slot}", total=cells)
        found = measure_slot(
            parts,
            population,
            arm,
            check=cross_check(estimator),
            permutations=permutations,
            on_cell=lambda bar=bar: progress.advance(bar),  # type: ignore[misc]
        )
        _write(found, folder / "beliefs.nc", group=arm.slot, mode="a" if number else "w")
        beliefs.append(found)
    results = summarise(beliefs, seed=seed)
    results.attrs["estimator"] = estimator
    found_anomalies = anomalies(beliefs, seed=seed)
    told = [asdict(each) for each in found_anomalies]
    (folder / "anomalies.json").write_text(json.dumps(told, indent=2) + "\n", "utf-8", newline="\n")
    last = len(parts.levels) - 1
    shared = [transfer(each, sorted({last // 2, last})) for each in beliefs]
    _write(xr.concat(shared, "slot"), folder / "layers.nc")
    _write(results, folder / "dynamics.nc")
    _write(atlas(parts, population), folder / "atlas.nc")
    figure = dynamics_figure(results)
    (folder / "curves.svg").write_text(to_svg(figure), "utf-8", newline="\n")
    to_image(figure).save(folder / "curves.png", optimize=True)
    return results


def _write(dataset: "xr.Dataset", path: Path, group: str | None = None, mode: Literal["w", "a"] = "w") -> None:
    encoding: dict[Hashable, dict[str, int]] = {
        name: {"zlib": 1, "complevel": 4} for name, held in dataset.data_vars.items() if held.dtype.kind == "f"
    }
    dataset.to_netcdf(path, mode=mode, group=group, engine="h5netcdf", encoding=encoding)


def _anomalies_of(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((folder / "anomalies.json").read_text("utf-8"))
    return found


def tell(folder: Path, results: "xr.Dataset", warnings: Sequence[str], manifest: RunManifest, as_json: bool) -> None:
    """Print a row a slot and branch: the layer that knows most, how much, and when it was decided."""
    from denoscope.information.population import deciding_layer

    rows = []
    for slot in (str(name) for name in results["slot"].values):
        for branch in (str(name) for name in results["branch"].values):
            layer = deciding_layer(results, slot, branch)
            cell = results.sel(slot=slot, branch=branch, layer=layer)
            rows.append(
                {
                    "slot": slot,
                    "branch": {"uncond": "written", "cond": "injected"}.get(branch, branch),
                    "layer": layer,
                    "entropy": _number(cell["entropy"]),
                    "information": [_number(cell[f"information{ending}"][-1]) for ending in ("", "_low", "_high")],
                    "t50": [_number(cell[f"t50{ending}"]) for ending in ("", "_low", "_high")],
                    "t50_reason": str(cell["t50_reason"].values),
                    "lock_in": [_number(cell[f"lock_in{ending}"]) for ending in ("", "_low", "_high")],
                    "null": _number(cell["null_threshold"]),
                    "cross_check": _number(cell["cross_check"][-1]) if "cross_check" in cell else None,
                }
            )
    if as_json:
        told = {
            "run": str(folder),
            "warnings": list(warnings),
            "slots": rows,
            "manifest": manifest.model_dump(mode="json"),
        }
        typer.echo(json.dumps(told, allow_nan=False))
        return
    table = Table("slot", "", "layer that knows most", "known at the end, nats", "t50, log-SNR", "lock-in")
    for row in rows:
        known, decided, locked = row["information"], row["t50"], row["lock_in"]
        assert isinstance(known, list)
        assert isinstance(decided, list)
        assert isinstance(locked, list)
        table.add_row(
            str(row["slot"]),
            str(row["branch"]),
            str(row["layer"]),
            f"{_with_interval(known)} of {row['entropy']:.2f}",
            _with_interval(decided) if decided[0] is not None else str(row["t50_reason"]),
            _with_interval(locked) if locked[0] is not None else "—",
        )
    Console(width=120).print(table)
    for each in _anomalies_of(folder):
        typer.echo(f"{each['kind']}: {each['sentence']}; {each['advice']}")
    typer.echo(str(folder))


def _with_interval(values: Sequence[float | None]) -> str:
    middle, low, high = ("?" if value is None else f"{value:.2f}" for value in values)
    return f"{middle} ({low} to {high})"


def _number(value: "xr.DataArray") -> float | None:
    found = float(value)
    return round(found, 6) if math.isfinite(found) else None
