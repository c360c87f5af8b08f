"""How fast each solver's error falls with the number of steps, on normal data where the path is a closed form.

python -m benchmarks.solver_orders
python -m benchmarks.solver_orders --family ve --json
"""

import json
import math
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from denoscope.sampling import Grid, Level, Solver, sample
from denoscope.sampling.solvers import adams, ddim, dpm2, dpmpp_2m, dpmpp_2s, dpmpp_3m, heun, unipc
from denoscope.sampling.spacing import karras_ratios
from denoscope.schedules import Family

MEAN, STD = 0.3, 0.5
STEPS = (16, 32, 64, 128, 256)

# (solver, its order, evaluations a step)
SOLVERS: dict[str, tuple[Solver, int, int]] = {
    "ddim = euler = dpmpp_1s": (ddim(), 1, 1),
    "heun": (heun(), 2, 2),
    "dpm2": (dpm2(), 2, 2),
    "dpmpp_2s": (dpmpp_2s(), 2, 2),
    "dpmpp_2m": (dpmpp_2m(lower_order_final=False), 2, 1),
    "dpmpp_3m": (dpmpp_3m(lower_order_final=False), 3, 1),
    "lms, order 2": (adams(2), 2, 1),
    "lms, order 3": (adams(3), 3, 1),
    "lms, order 4": (adams(4), 4, 1),
    "deis, order 2": (adams(2, "log"), 2, 1),
    "deis, order 3": (adams(3, "log"), 3, 1),
    "unipc, order 2": (unipc(2, lower_order_final=False), 3, 1),
    "unipc, order 3": (unipc(3, lower_order_final=False), 4, 1),
}


def error(solver: Solver, steps: int, family: Family) -> float:
    """Greatest distance from the exact end of nine paths, Karras steps from σ/α 80 to .002, float64."""
    grid = Grid.from_ratios(karras_ratios(steps + 1, 0.002, 80.0)[:-1], family)
    start, end = grid[0], grid[steps]

    def denoise(z: Tensor, level: Level) -> Tensor:
        gain = level.alpha * STD**2 / (level.alpha**2 * STD**2 + level.sigma**2)
        return MEAN + gain * (z - level.alpha * MEAN)

    z = start.alpha * torch.linspace(-80, 80, 9, dtype=torch.float64)[:, None]
    spread = math.hypot(end.alpha * STD, end.sigma) / math.hypot(start.alpha * STD, start.sigma)
    exact = end.alpha * MEAN + (z - start.alpha * MEAN) * spread
    return float((sample(denoise, z, grid, solver) - exact).abs().max())


def main(
    family: Annotated[str, typer.Option(help="vp, ve or flow.")] = "vp",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print every solver's error at 16 to 256 steps and the order between the last two."""
    families: dict[str, Family] = {"vp": "vp", "ve": "ve", "flow": "flow"}
    if family not in families:
        raise typer.BadParameter(f"unknown family {family!r}; known are vp, ve, flow")
    errors = {name: [error(solver, n, families[family]) for n in STEPS] for name, (solver, _, _) in SOLVERS.items()}
    orders = {name: math.log2(found[-2] / found[-1]) for name, found in errors.items()}
    if as_json:
        print(json.dumps({"family": family, "steps": STEPS, "errors": errors, "orders": orders}))
        return
    table = Table("solver", "calls", *(f"N = {n}" for n in STEPS), "order", "in theory")
    for name, (_, order, evaluations) in SOLVERS.items():
        told = [f"{value:.1e}" for value in errors[name]]
        table.add_row(name, str(evaluations), *told, f"{orders[name]:.2f}", str(order))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
