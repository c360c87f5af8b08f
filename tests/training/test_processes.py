"""Training in processes of its own: killed at any moment, and split in two."""

import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from training_job import run

from denoscope.training.checkpoints import read_tensors

JOB = Path(__file__).with_name("training_job.py")
STEPS = 40


def test_killed_thirty_times_and_resumed_equals_the_unbroken_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL at random moments, also in the middle of a checkpoint: weights, averages and optimizer bit for bit."""
    whole = tmp_path / "whole" / "state.safetensors"
    broken = tmp_path / "broken" / "state.safetensors"
    monkeypatch.setenv("PYTHONPATH", str(JOB.parent))  # so that the server has torch before it forks
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training_job"])
    job = context.Process(target=run, args=(whole, STEPS))
    job.start()
    job.join()
    assert job.exitcode == 0
    again = context.Process(target=run, args=(tmp_path / "again" / "state.safetensors", STEPS))
    started = time.monotonic()
    again.start()
    again.join()
    length = time.monotonic() - started
    dice = random.Random(0)
    for _ in range(30):
        job = context.Process(target=run, args=(broken, STEPS))
        job.start()
        time.sleep(dice.uniform(0, 0.7 * length))
        job.kill()
        job.join()
        if broken.exists():
            read_tensors(broken)  # what is there can always be read
    job = context.Process(target=run, args=(broken, STEPS))
    job.start()
    job.join()
    assert job.exitcode == 0
    expected, told = read_tensors(whole)
    found, told_too = read_tensors(broken)
    assert told == told_too
    assert told["step"] == STEPS
    assert {name.split("/")[0] for name in expected} == {"module", "ema", "power-0.1", "optimizer"}
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name


def losses(*command: str) -> tuple[int, list[float]]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(JOB), "12"], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["processes"], found["losses"]


def test_two_processes_lose_what_one_does() -> None:
    one = losses(sys.executable)
    two = losses(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    assert (one[0], two[0]) == (1, 2)
    assert two[1] == pytest.approx(one[1], rel=1e-6)
    assert len(set(one[1])) == 12
