"""``denoscope trace`` from the command line to the run folder, in this process."""

import errno
import json
import os
import re
import signal
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from command_line import Denoscope, assert_refused, files
from diffusers import DDIMScheduler
from PIL import Image

from denoscope import reports
from denoscope.information.guidance_information import word_information
from denoscope.pipelines import load
from denoscope.runs import RunFolder

PROMPT = "a red circle above a blue square"


def test_a_run_folder_is_written(denoscope: Denoscope, tiny_folder: Path, tmp_path: Path) -> None:
    ended = denoscope("trace", PROMPT, "--model", tiny_folder, "--steps", "3", "--seed", "7", "--out", "run")
    assert ended.code == 0
    # A path for the user, and nothing else than the time: no warnings and bars of the libraries below.
    assert ended.out == f"{tmp_path / 'run' / 'report.html'}\n"
    assert re.fullmatch(r"3 steps in \d+\.\d s\n", ended.err)
    assert files(tmp_path) == [
        *(f"run/images/{name}.png" for name in ("final", "x0_000", "x0_001", "x0_002")),
        "run/report.html",
        "run/run.json",
        "run/trace.nc",
    ]
    run = RunFolder.open("run")
    assert run.damaged() == []
    assert set(run.manifest.files) == {name[4:] for name in files(tmp_path)} - {"run.json"}
    assert run.manifest.arguments == {
        "prompt": PROMPT,
        "model": str(tiny_folder),
        "seed": 7,
        "steps": 3,
        "guidance": 7.5,
        "size": "64x64",
        "words": None,
        "negative_prompt": "",
        "information": None,
        "neutral": None,
        "gradient": False,
    }
    assert run.manifest.words == ["a", "red", "circle", "above", "a#2", "blue", "square"]
    assert run.manifest.model.pipeline == "StableDiffusionPipeline"
    assert run.manifest.model.sha256 is not None
    assert set(run.manifest.seconds) == {"load", "generate", "decode"}
    trace = run.trace()
    assert dict(trace.sizes) | {"layer": 0} == {
        "word": 7, "step": 3, "layer": 0, "y": 8, "x": 8, "token_kind": 4, "channel": 4
    }  # fmt: skip
    assert trace.attrs["prompt"] == PROMPT


def test_json_is_one_object_and_nothing_else(denoscope: Denoscope, tiny_folder: Path, tmp_path: Path) -> None:
    ended = denoscope("trace", "red " * 40, "--model", tiny_folder, "--steps", "1", "--json")
    assert (ended.code, ended.err) == (0, "")
    told = json.loads(ended.out)
    assert ended.out.count("\n") == 1
    assert told["warnings"] == ["the prompt has 42 tokens, the model reads the first 32 only"]
    assert told["manifest"]["arguments"]["steps"] == 1
    assert Path(told["report"]).is_file()
    # The name is made of the time and the prompt.
    assert Path(told["run"]).parent == tmp_path / "runs"
    assert re.fullmatch(r"\d{8}-\d{6}-(red-)+red", Path(told["run"]).name)


def test_the_default_folder_stays_in_runs(denoscope: Denoscope, tiny_folder: Path, tmp_path: Path) -> None:
    ended = denoscope("trace", "../../\x07 -rf ~", "--model", tiny_folder, "--steps", "1")
    assert ended.code == 0
    assert [path.parent for path in tmp_path.glob("*/*")] == [tmp_path / "runs"]


def test_the_same_seed_draws_the_same_pictures(denoscope: Denoscope, tiny_folder: Path) -> None:
    for name, seed in (("one", "4"), ("two", "4"), ("three", "5")):
        assert (
            denoscope("trace", PROMPT, "--model", tiny_folder, "--steps", "2", "--seed", seed, "--out", name).code == 0
        )
    one, two, three = (
        [path.read_bytes() for path in sorted(Path(name, "images").iterdir())] for name in ("one", "two", "three")
    )
    assert one == two
    assert one != three


def test_a_hostile_prompt_is_text_in_the_report(denoscope: Denoscope, tiny_folder: Path) -> None:
    prompt = "<img src=x onerror=alert(1)></script>"
    ended = denoscope(
        "trace", prompt, "--negative-prompt", prompt, "--model", tiny_folder, "--steps", "1", "--out", "run"
    )
    assert ended.code == 0
    page = Path("run/report.html").read_text("utf-8")
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_options_reach_the_pipeline(denoscope: Denoscope, tiny_folder: Path) -> None:
    ended = denoscope(
        "trace", PROMPT, "--model", tiny_folder, "--steps", "1", "--size", "96x64", "--guidance", "1",
        "--words", "circle, SQUARE", "--device", "cpu", "--out", "run",
    )  # fmt: skip
    assert ended.code == 0
    trace = RunFolder.open("run").trace()
    assert (trace.sizes["x"], trace.sizes["y"]) == (12, 8)
    assert trace.word.values.tolist() == ["circle", "square"]
    assert "guidance" not in trace


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([PROMPT, "--words", "dog"], "the word 'dog' is not in the prompt; its words are 'a', 'red'"),
        ([PROMPT, "--words", " , "], "--words names no word"),
        ([""], "the prompt is empty"),
        (["\udcff"], "the prompt is not valid Unicode"),
        ([PROMPT, "--size", "big"], "--size 'big' is not a size: give WIDTHxHEIGHT"),
        ([PROMPT, "--size", "63x64"], "width 63 is not possible"),
        ([PROMPT, "--steps", "0"], "0 steps are not possible"),
        ([PROMPT, "--steps", "61"], "can't make 61 steps as it is configured: take 60"),
        ([PROMPT, "--steps", "two"], "Invalid value for '--steps'"),
        ([PROMPT, "--guidance", "-1"], "guidance -1 is out of range"),
        ([PROMPT, "--guidance", "nan"], "guidance nan is out of range"),
        ([PROMPT, "--seed", "-1"], "Invalid value for '--seed'"),
        ([PROMPT, "--seed", str(2**63)], "Invalid value for '--seed'"),
        ([PROMPT, "--device", "gpu"], "device 'gpu' is not available here"),
        ([PROMPT, "--nonsense"], "No such option: --nonsense"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_is_one_sentence(
    denoscope: Denoscope, tiny_folder: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    assert_refused(denoscope("trace", "--model", tiny_folder, *arguments), sentence)
    assert files(tmp_path) == []
    assert [path.name for path in tmp_path.rglob("*")] in ([], ["runs"])


def test_a_model_that_is_not_there(denoscope: Denoscope, tmp_path: Path) -> None:
    assert_refused(denoscope("trace", PROMPT, "--model", "missing"), "there is no folder 'missing'")
    (tmp_path / "empty").mkdir()
    assert_refused(denoscope("trace", PROMPT, "--model", "./empty"), "is a folder without model_index.json")


def test_an_out_folder_that_can_not_be(denoscope: Denoscope, tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    draw = ("trace", PROMPT, "--model", tiny_folder, "--steps", "1", "--out")
    assert_refused(denoscope(*draw, "file/run"), "can't be made")
    assert_refused(denoscope(*draw, "file"), "is a file, not a folder")
    assert_refused(denoscope(*draw, "full"), "already exists and is not empty")
    assert files(tmp_path) == ["file", "full/notes"]


def test_an_unknown_command_and_none(denoscope: Denoscope) -> None:
    assert_refused(denoscope("dance"), "No such command 'dance'")
    ended = denoscope()
    assert ended.code == 2
    assert "Usage: denoscope" in ended.out
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [(signal.SIGINT, 130, "denoscope: stopped; nothing was left half-written\n"), (signal.SIGTERM, 143, "")],
)
def test_a_signal_while_drawing_leaves_nothing(
    denoscope: Denoscope,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
    told: str,
) -> None:
    plain = DDIMScheduler.step
    drawn: list[int] = []

    def step(self: DDIMScheduler, *args: object, **kwargs: object) -> object:
        drawn.append(len(drawn))
        if len(drawn) == 2:
            assert len(list((tmp_path / "runs").iterdir())) == 1
            os.kill(os.getpid(), number)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(DDIMScheduler, "step", step)
    ended = denoscope("trace", PROMPT, "--model", tiny_folder, "--steps", "3")
    assert ended.code == code
    assert ended.err == told
    assert ended.out == ""
    assert len(drawn) == 2
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device", "x0.png"), MemoryError()])
def test_what_fails_while_writing_leaves_nothing(
    denoscope: Denoscope, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(reports, "write_report", fail)
    arguments = ("trace", PROMPT, "--model", tiny_folder, "--steps", "1")
    if isinstance(error, OSError):
        assert_refused(denoscope(*arguments), "No space left on device: x0.png", code=1)
    else:
        with pytest.raises(MemoryError):  # a fault of ours keeps its traceback
            denoscope(*arguments)
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["--help"], ["trace", "--help"], ["attention", "--help"], ["train", "--help"], ["sample", "--help"]]
)
def test_help_has_examples(denoscope: Denoscope, arguments: list[str]) -> None:
    ended = denoscope(*arguments)
    assert (ended.code, ended.err) == (0, "")
    if len(arguments) > 1:
        assert "Example" in ended.out
        assert f"denoscope {' '.join(arguments[:-1])} " in ended.out


def test_the_version(denoscope: Denoscope) -> None:
    assert re.fullmatch(r"denoscope \d+\.\d+\S*\n", denoscope("--version").out)


def test_information_of_each_word_joins_the_trace(denoscope: Denoscope, tiny_folder: Path) -> None:
    common = ("trace", PROMPT, "--model", tiny_folder, "--steps", "3", "--words", "red,circle", "--guidance", "1")
    ended = denoscope(*common, "--information", "omit", "--gradient", "--json", "--out", "run")
    assert (ended.code, ended.err) == (0, "")
    assert denoscope(*common, "--out", "plain").code == 0
    trace, plain = RunFolder.open("run").trace(), RunFolder.open("plain").trace()
    assert trace.drop_vars([name for name in trace if str(name).startswith("information")]).equals(plain)
    assert (Path("run/images/final.png").read_bytes()) == Path("plain/images/final.png").read_bytes()
    pipe = load(tiny_folder, "cpu")
    pipe.set_progress_bar_config(disable=True)
    alone = word_information(pipe, PROMPT, ["red", "circle"], gradient=True, num_inference_steps=3, height=64, width=64)
    for name in ("rate", "injected", "written", "total", "gradient"):
        assert np.allclose(trace[f"information_{name}"], alone[name], rtol=1e-6)
    assert np.array_equal(alone["picture"], np.asarray(Image.open("run/images/final.png")))
    assert trace.attrs["information_quantity"] == "information"
    rows = json.loads(ended.out)["information"]
    assert [row["word"] for row in rows] == ["red", "circle"]
    assert rows[0]["total"] == pytest.approx(float(alone["total"][0]))
    assert "what the word adds (information)" in Path("run/report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--information", "drop"], "--information 'drop' is unknown: give omit, mask or neutral"),
        (["--gradient"], "--gradient goes with --information"),
        (["--information", "neutral"], "--information neutral and --neutral WORD=OTHER go together"),
        (["--information", "neutral", "--neutral", "red"], "--neutral 'red' can't be read"),
        (["--information", "neutral", "--neutral", "red=x"], "'circle' has no neutral substitute"),
    ],
)
def test_information_that_cannot_be_had_is_refused(
    denoscope: Denoscope, tiny_folder: Path, options: list[str], reason: str, tmp_path: Path
) -> None:
    ended = denoscope(
        "trace", "a red circle", "--words", "red,circle", "--model", tiny_folder, "--steps", "2", *options
    )
    assert_refused(ended, reason)
    assert not list(tmp_path.glob("runs/*"))
