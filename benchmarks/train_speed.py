"""Pictures a second of a whole training step, against diffusers and denoising-diffusion-pytorch; ``make peers`` first.

PYTHONPATH=src .venv-peers/bin/python -m benchmarks.train_speed

Each contender lives in its own process, float32, of as many threads as asked for; they take turns of a few steps, so
that what else the machine does falls on all alike. Both the clock and the processor's time are measured: where other
programs compete for the cores, the second is the steadier.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

import torch
import typer

from benchmarks.train_contenders import CONTENDERS, Contender, Name

OURS: Name = "denoscope"
Measure = Literal["wall", "cpu"]


class Worker:
    """A contender in its own process; :meth:`turn` lets it take some steps."""

    def __init__(self, name: Name, size: int, channels: Sequence[int], batch: int, threads: int) -> None:
        self.name = name
        told = [name, str(size), ",".join(map(str, channels)), str(batch), str(threads)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.train_speed", "--worker", "/".join(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
        )

    def turn(self, steps: int) -> dict[str, float]:
        """Seconds a step by the clock and of the processor, and the number of parameters."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(steps, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a contender stopped: {self.name}")
        taken: dict[str, float] = json.loads(answer)
        return taken

    def end(self) -> None:
        """Ends with its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve(told: str) -> None:
    """A worker's life: for each number read, so many steps, and a line of what they took."""
    name, size, channels, batch, threads = told.split("/")
    torch.set_num_threads(int(threads))
    left, steps, start = 1, 1, (time.perf_counter(), time.process_time())

    def beat(parameters: int) -> None:
        nonlocal left, steps, start
        left -= 1
        if left:
            return
        wall, cpu = ((now - then) / steps for now, then in zip(_now(), start, strict=True))
        if steps_given:
            print(json.dumps({"wall": wall, "cpu": cpu, "parameters": parameters}), flush=True)
        steps_given.append(steps)
        line = sys.stdin.readline()
        if not line:
            raise SystemExit(0)
        left = steps = int(line)
        start = _now()

    steps_given: list[int] = []
    widths = tuple(int(width) for width in channels.split(","))
    contenders: Mapping[str, Contender] = {str(known): contender for known, contender in CONTENDERS.items()}
    contenders[name](int(size), widths, int(batch), beat)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def summary(turns: Mapping[Name, Sequence[Mapping[str, float]]], batch: int) -> dict[str, object]:
    """Medians, and ratios of each turn's neighbours: how many times faster ours is than the faster of the peers."""
    rates = {
        name: {measure: batch / statistics.median(turn[measure] for turn in taken) for measure in get_args(Measure)}
        for name, taken in turns.items()
    }
    ratios: dict[str, dict[str, object]] = {}
    for measure in get_args(Measure):
        peer = max((name for name in turns if name != OURS), key=lambda name: rates[name][measure])
        by_turn = [theirs[measure] / ours[measure] for theirs, ours in zip(turns[peer], turns[OURS], strict=True)]
        quarters = statistics.quantiles(by_turn, n=4)
        ratios[measure] = {
            "to": peer,
            "of_medians": rates[OURS][measure] / rates[peer][measure],
            "median": quarters[1],
            "quartiles": [quarters[0], quarters[2]],
            "of_fastest": min(turn[measure] for turn in turns[peer]) / min(turn[measure] for turn in turns[OURS]),
        }
    parameters = {name: int(taken[0]["parameters"]) for name, taken in turns.items()}
    return {"parameters": parameters, "pictures_per_second": rates, "ratio": ratios}


def main(
    rounds: Annotated[int, typer.Option(min=2, help="Turns of each contender.")] = 15,
    steps: Annotated[int, typer.Option(min=1, help="Steps in a turn.")] = 3,
    size: Annotated[int, typer.Option(help="Pixels a side.")] = 32,
    channels: Annotated[str, typer.Option(help="Channels of each level.")] = "32,64,64,64",
    batch: Annotated[int, typer.Option(min=1, help="Pictures in a step.")] = 16,
    threads: Annotated[int, typer.Option(min=1, help="Of each contender; no more than the machine has to itself.")] = 1,
    worker: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure, and print JSON."""
    if worker:
        serve(worker)
        return
    widths = [int(width) for width in channels.split(",")]
    workers = {name: Worker(name, size, widths, batch, threads) for name in CONTENDERS}
    turns: dict[Name, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for taken in workers.values():
        taken.turn(3)
    for _ in range(rounds):
        for name, taken in workers.items():
            turns[name].append(taken.turn(steps))
    for taken in workers.values():
        taken.end()
    setting = {"size": size, "channels": widths, "batch": batch, "rounds": rounds, "steps": steps, "threads": threads}
    print(json.dumps({"setting": setting | {"torch": torch.__version__}} | summary(turns, batch), indent=2))


if __name__ == "__main__":
    typer.run(main)
