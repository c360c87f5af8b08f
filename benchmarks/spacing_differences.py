"""Where diffusers' lists of timesteps differ from the integer rule: every number of steps, spacing and offset.

python -m benchmarks.spacing_differences
python -m benchmarks.spacing_differences --json
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Protocol

import diffusers
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from denoscope.sampling.spacing import Spacing, spaced_timesteps

TRAIN_STEPS = 1000
SCHEDULERS = (
    "DDPMScheduler",
    "DDIMScheduler",
    "EulerDiscreteScheduler",
    "DPMSolverMultistepScheduler",
    "UniPCMultistepScheduler",
)
SPACINGS: tuple[Spacing, ...] = ("leading", "linspace", "trailing")


class Scheduler(Protocol):
    """What is asked of a diffusers scheduler here."""

    timesteps: Tensor

    def set_timesteps(self, steps: int) -> None:
        """Choose the timesteps."""


def faults(timesteps: Sequence[float], steps: int) -> Iterator[str]:
    """What is wrong with a list of timesteps by itself.

    >>> list(faults([999.0, 499.0, 499.0, -1.0], 3))
    ['another number of steps', 'repeats a timestep', 'leaves the schedule']
    """
    if len(timesteps) != steps:
        yield "another number of steps"
    falls = [a - b for a, b in pairwise(timesteps)]
    if any(fall == 0 for fall in falls):
        yield "repeats a timestep"
    if any(fall < 0 for fall in falls):
        yield "rises"
    if min(timesteps) < 0 or max(timesteps) > TRAIN_STEPS - 1:
        yield "leaves the schedule"
    if any(t != int(t) for t in timesteps):
        yield "between two timesteps"


def sweep(name: str, spacing: Spacing, offset: int) -> dict[str, list[int]]:
    """Numbers of steps for which diffusers' list has a fault, or is another list than the integer rule's."""
    found: dict[str, list[int]] = {}
    made: Scheduler = getattr(diffusers, name)(timestep_spacing=spacing, steps_offset=offset)
    for steps in range(1, TRAIN_STEPS + 1):
        try:
            made.set_timesteps(steps)
            theirs = [float(t) for t in made.timesteps]
        except (ValueError, IndexError, ZeroDivisionError) as error:
            found.setdefault(f"raises {type(error).__name__}", []).append(steps)
            continue
        for fault in faults(theirs, steps):
            found.setdefault(fault, []).append(steps)
        if theirs != spaced_timesteps(TRAIN_STEPS, steps, spacing, offset).tolist():
            found.setdefault("differs from the integer rule", []).append(steps)
    return found


def main(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Count the faults for N = 1…1000."""
    cases = [(name, spacing, offset) for name in SCHEDULERS for spacing in SPACINGS for offset in (0, 1)]
    cases = [case for case in cases if case[1] == "leading" or case[2] == 0]
    rows = []
    for name, spacing, offset in track(cases, "sweeping", console=Console(stderr=True), transient=True):
        rows += [(name, spacing, offset, fault, steps) for fault, steps in sweep(name, spacing, offset).items()]
    if as_json:
        keys = ("scheduler", "spacing", "offset", "fault", "steps")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
        return
    table = Table("scheduler", "spacing", "offset", "fault", "how many N of 1,000", "the first")
    for name, spacing, offset, fault, steps in rows:
        table.add_row(name, spacing, str(offset), fault, str(len(steps)), ", ".join(map(str, steps[:6])))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
