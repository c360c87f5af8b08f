"""When the shapes world decides what, exactly: the half-time of each attribute's information.

python -m benchmarks.exact_half_times [--space pixels] [--n 512] [--json]
"""

import argparse
import json
import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor

from denoscope.data.worlds.shapes.exact import Encoder, ExactShapes, pixels
from denoscope.data.worlds.shapes.half_times import FRACTIONS, half_times, information_curves


def pooled(pictures: NDArray[np.uint8]) -> Tensor:
    """Means of blocks of 8 by 8 pixels: a space that is quick to compute."""
    return pixels(pictures).reshape(-1, 3, 8, 8, 8, 8).mean((3, 5))


SPACES: dict[str, Encoder] = {"pixels": pixels, "pooled": pooled}


def _cell(time: float, low: float, high: float) -> str:
    if math.isnan(time):
        return "not reached"
    return f"{time:.2f} ({low:.2f} … {high:.2f})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.exact_half_times", description=__doc__)
    parser.add_argument("--space", choices=sorted(SPACES), default="pixels")
    parser.add_argument("--n", type=int, default=512, help="scenes per curve")
    parser.add_argument("--low", type=float, default=-10.0, help="least logsnr")
    parser.add_argument("--high", type=float, default=4.0, help="greatest logsnr")
    parser.add_argument("--step", type=float, default=0.25, help="step of the logsnr grid")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=None, help="torch threads; all cores unless given")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)

    start = time.perf_counter()
    grid = np.arange(options.low, options.high + options.step / 2, options.step)
    curves = information_curves(ExactShapes.encoded(SPACES[options.space]), grid, options.n, options.seed)
    found = half_times(curves, options.resamples, options.seed).sortby("attribute")
    order = np.argsort(found["time"].sel(fraction=0.5).to_numpy())
    found, curves = found.isel(attribute=order), curves.sel(attribute=found["attribute"][order])
    seconds = time.perf_counter() - start

    if options.json:
        rows: dict[str, dict[str, dict[str, float]]] = {}
        for name in found["attribute"].to_numpy():
            at = found.sel(attribute=name)
            rows[str(name)] = {
                f"t{round(100 * fraction)}": {str(key): float(at[key].sel(fraction=fraction)) for key in at.data_vars}
                for fraction in FRACTIONS
            }
        settings = {key: getattr(options, key) for key in ("space", "n", "low", "high", "step", "resamples", "seed")}
        print(json.dumps({"settings": settings, "seconds": round(seconds, 1), "half_times": rows}, indent=2))
        return
    table = Table(
        title=f"Half-times in {options.space} space, in logsnr",
        caption=f"95 % bootstrap intervals over {options.n} scenes; {seconds:.0f} s",
    )
    for heading in ("attribute", "entropy, nat", "t10", "t50", "t90"):
        table.add_column(heading, justify="left" if heading == "attribute" else "right")
    for name in found["attribute"].to_numpy():
        at = found.sel(attribute=name)
        cells = [_cell(*(float(at[key].sel(fraction=f)) for key in ("time", "low", "high"))) for f in FRACTIONS]
        table.add_row(str(name), f"{float(curves['entropy'].sel(attribute=name)):.3f}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
