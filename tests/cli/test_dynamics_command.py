"""``denoscope dynamics`` from the command line to the run folder, in this process."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from command_line import Denoscope, assert_refused, files

from denoscope.information.population import ExperimentPlan, Parts, call_pipeline, draw_prompt
from denoscope.pipelines import load
from denoscope.runs import RunManifest

SLOTS = ("--template", "a {colour} {shape}", "--slot", "colour=red,green,blue", "--context", "shape=circle,cross")
QUICK = ("--contexts", "2", "--seeds", "4", "--num-inference-steps", "3", "--permutations", "20")


@pytest.fixture
def run(denoscope: Denoscope, tiny_folder: Path) -> Denoscope:
    return lambda *arguments: denoscope("dynamics", "--model", tiny_folder, *arguments)


def test_a_run_folder_is_written(run: Denoscope, tmp_path: Path) -> None:
    ended = run(*SLOTS, *QUICK, "--out", "run", "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert [row["branch"] for row in told["slots"]] == ["injected", "written"]
    names = ["anomalies.json", "atlas.nc", "beliefs.nc", "curves.png", "curves.svg", "dynamics.nc", "layers.nc"]
    assert files(tmp_path / "run") == [*names, "plan.json", "run.json"]
    with xr.open_dataset("run/dynamics.nc", engine="h5netcdf") as found:
        assert found["information"].dims == ("slot", "branch", "layer", "step")
        assert (found["information"] <= np.log(3) + 1e-6).all()
        assert (found["information_low"] <= found["information_high"] + 1e-9).all()
        np.testing.assert_allclose(found["increment"].sum("layer"), found["information"].isel(layer=-1), atol=1e-6)
    with xr.open_dataset("run/beliefs.nc", group="colour", engine="h5netcdf") as beliefs:
        assert dict(beliefs.sizes) | {"draw": 20} == dict(beliefs.sizes)
        np.testing.assert_allclose(np.exp(beliefs["log_belief"].values).sum(-1), 1, atol=1e-4)
    assert RunManifest.read(Path("run")).words == ["colour"]


def test_a_run_that_was_stopped_goes_on_and_gives_the_same_numbers(
    run: Denoscope, denoscope: Denoscope, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run(*SLOTS, *QUICK, "--out", "whole").code == 0
    from denoscope.information.population import drawing

    plain, drawn = drawing.draw_prompt, []

    def stopping(*args: object) -> object:
        drawn.append(args[1])
        if len(drawn) > 3:
            raise KeyboardInterrupt
        return plain(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(drawing, "draw_prompt", stopping)
    stopped = run(*SLOTS, *QUICK, "--out", "half")
    assert stopped.code == 130
    assert "--resume half" in " ".join(stopped.err.split())
    assert not Path("half/run.json").exists()
    before = len(list(Path("half/features").glob("*.safetensors")))
    assert before > 0
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert denoscope("dynamics", "--resume", "half").code == 0
    for name in ("dynamics.nc", "atlas.nc"):
        with (
            xr.open_dataset(f"whole/{name}", engine="h5netcdf") as one,
            xr.open_dataset(f"half/{name}", engine="h5netcdf") as other,
        ):
            xr.testing.assert_identical(one.load().drop_attrs(), other.load().drop_attrs())


def test_pictures_are_those_of_the_plain_call(tiny_folder: Path, run: Denoscope) -> None:
    assert run(*SLOTS, *QUICK, "--out", "run", "--keep-features").code == 0
    plan = ExperimentPlan.read(Path("run"))
    population = plan.population()
    pipe = load(tiny_folder, "cpu")
    parts = Parts.open(Path("run/features"), len(population.prompts))
    for number, prompt in enumerate(population.prompts[:2]):
        with torch.no_grad():
            plain = call_pipeline(pipe, prompt, population.seeds, plan.settings())
        assert torch.equal(parts.latents(number), plain)


def test_seeds_drawn_alone_are_those_of_a_batch(tiny_folder: Path) -> None:
    pipe = load(tiny_folder, "cpu")
    from denoscope.information.population import Settings

    whole = draw_prompt(pipe, "a red circle", range(4), Settings(3, 2.0, batch=4))
    apart = draw_prompt(pipe, "a red circle", range(4), Settings(3, 2.0, batch=2))
    torch.testing.assert_close(whole.latents, apart.latents, atol=1e-5, rtol=1e-5)
    for layer, held in whole.features.items():
        torch.testing.assert_close(held, apart.features[layer], atol=1e-2, rtol=1e-2)


def test_the_cost_is_told_before_anything_is_written(run: Denoscope, tmp_path: Path) -> None:
    ended = run(*SLOTS, *QUICK, "--estimate", "--json", "--out", "run")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert told["prompts"] == 6
    assert told["calls"] == 6 * 3
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--slot", "colour=red,blue"), "give --template"),
        (("--template", "a {colour}"), "has no values"),
        (("--template", "a {colour}", "--slot", "colour=red"), "two substitutes"),
        ((*SLOTS, "--estimator", "magic"), "there is no estimator 'magic'"),
        ((*SLOTS, *QUICK, "--layers", "nowhere"), "'nowhere'"),
        (("--file", "missing.yaml"), "there is no file missing.yaml"),
        (("--resume", "missing"), "no experiment"),
        ((*SLOTS, "--resume", "missing"), "as it was planned"),
    ],
)
def test_mistakes_are_said_in_a_sentence(
    run: Denoscope, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = run(*arguments)
    assert ended.code == 2
    assert sentence in ended.err
    assert files(tmp_path) == []


def test_a_finished_run_is_not_begun_again(run: Denoscope, denoscope: Denoscope) -> None:
    assert run(*SLOTS, *QUICK, "--out", "run").code == 0
    ended = denoscope("dynamics", "--resume", "run")
    assert ended.code == 2
    assert "finished already" in ended.err
    assert "already exists and is not empty" in run(*SLOTS, *QUICK, "--out", "run").err


def test_slots_are_proposed_for_a_prompt(denoscope: Denoscope) -> None:
    ended = denoscope("dynamics", "--from-prompt", "a small red circle", "--out", "slots.yaml", "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["template"] == "a {small} {red} {circle}"
    assert_refused(denoscope("dynamics", "--from-prompt", "a red circle", "--out", "slots.yaml"), "exists already")


def test_two_processes_give_the_numbers_of_one(run: Denoscope, tiny_folder: Path) -> None:
    asked = (*SLOTS, "--contexts", "2", "--seeds", "2", "--num-inference-steps", "2", "--permutations", "0")
    assert run(*asked, "--out", "one").code == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29617"]
    command = [*launch, "-m", "denoscope", "dynamics", "--model", str(tiny_folder), *asked, "--out", "two"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    with (
        xr.open_dataset("one/dynamics.nc", engine="h5netcdf") as one,
        xr.open_dataset("two/dynamics.nc", engine="h5netcdf") as two,
    ):
        xr.testing.assert_identical(one.load().drop_attrs(), two.load().drop_attrs())
