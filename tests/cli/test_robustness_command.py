"""``denoscope robustness`` from the command line to the run folder."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from command_line import Denoscope, assert_refused, files
from PIL import Image

from denoscope.runs import RunFolder

PROMPT = "a red circle"


@pytest.mark.parametrize("of", ["prompt", "latent"])
def test_a_run_folder_is_written(denoscope: Denoscope, tiny_folder: Path, tmp_path: Path, of: str) -> None:
    ended = denoscope(
        "robustness", PROMPT, "--model", tiny_folder, "--of", of, "--draws", "2", "--num-inference-steps", "3",
        "--layers", "mid_block", "--out", "run", "--json",
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    assert files(tmp_path) == [f"run/{name}" for name in ("gains.png", "gains.svg", "robustness.nc", "run.json")]
    told = json.loads(ended.out)
    assert [row["part"] for row in told["parts"]] == ["mid_block", "output", "drift"]
    with xr.open_dataset("run/robustness.nc") as found:
        mean = float(np.exp(np.log(found["output_gain"]).mean()))
        assert told["parts"][1]["mean"] == pytest.approx(mean, rel=1e-5)
        assert found.attrs["of"] == of
    assert Image.open("run/gains.png").size[0] > 600
    assert f"change of the {of}" in Path("run/gains.svg").read_text("utf-8")
    run = RunFolder.open("run")
    assert run.damaged() == []
    assert run.manifest.arguments["draws"] == 2


def test_a_table_is_printed(denoscope: Denoscope, tiny_folder: Path) -> None:
    ended = denoscope("robustness", PROMPT, "--model", tiny_folder, "--num-inference-steps", "2", "--draws", "2")
    assert ended.code == 0
    assert "gain, mean over steps" in ended.out
    assert ended.out.splitlines()[-1].startswith(str(Path.cwd() / "runs"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--of", "seed"], "--of 'seed' is unknown"),
        (["--direction", "up"], "--direction 'up' is unknown"),
        (["--size", "0"], "between 0 and 1"),
        (["--layers", "nowhere"], "is called 'nowhere'"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    denoscope: Denoscope, tiny_folder: Path, tmp_path: Path, options: list[str], reason: str
) -> None:
    assert_refused(denoscope("robustness", PROMPT, "--model", tiny_folder, *options), reason)
    assert not list(tmp_path.glob("runs/*"))
