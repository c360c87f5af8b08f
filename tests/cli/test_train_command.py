"""``denoscope train`` and ``sample`` as a user types them."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from accelerate.state import AcceleratorState
from PIL import Image

from denoscope.cli.main import main

QUICK = [
    "network.channels=[8,16]",
    "network.head_dim=8",
    "network.groups=4",
    "network.attention=[]",
    "trainer.max_steps=4",
    "trainer.batch_size=8",
    "trainer.samples=4",
    "trainer.threads=1",
    "schedule.steps=20",
]


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    AcceleratorState._reset_state(True)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def denoscope(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["denoscope", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_train_then_sample(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert denoscope(monkeypatch, "train", "digits", *QUICK, "--out", "run") == 0
    assert capsys.readouterr().out.strip() == str(Path("run/model"))
    options = ["-n", "5", "--steps", "4", "--compare-steps", "2,3", "--labels", "1,7", "--out", "drawn", "--json"]
    assert denoscope(monkeypatch, "sample", "run", *options) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["samples"] == 5
    assert list(told["seconds"]) == ["ddim 2 steps, a sample", "ddim 3 steps, a sample", "ddim 4 steps, a sample"]
    files = sorted(Path("drawn/samples").iterdir())
    assert [file.name for file in files] == [f"{index:05d}.png" for index in range(5)]
    compared = Image.open("drawn/images/compare.png")
    assert compared.width > 1.5 * compared.height  # a row of five for each number of steps
    # The third sample alone, by its own seed and class: the same picture.
    assert denoscope(monkeypatch, "sample", "run", "-n", "1", "--steps", "4", "--seed", "2", "--out", "one") == 0
    first = np.asarray(Image.open("one/samples/00000.png"), np.int16)
    assert denoscope(monkeypatch, "sample", "run", "-n", "3", "--steps", "4", "--labels", "5,5,0", "--out", "two") == 0
    assert np.abs(np.asarray(Image.open("two/samples/00002.png"), np.int16) - first).max() <= 1


def test_a_folder_of_pictures_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("it's mine, = [odd]")
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(4):
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / f"{index}.png")
    assert denoscope(monkeypatch, "train", *QUICK, "--data", str(folder), "data.size=8", "--out", "run") == 0
    assert Path("run/model/model_index.json").is_file()


def test_a_sweep_makes_a_folder_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    choice = [*QUICK, "objective=v,flow", "--multirun", "--out", "sweep", "--json"]
    assert denoscope(monkeypatch, "train", "digits", *choice) == 0
    assert [json.loads(line)["model"] for line in capsys.readouterr().out.splitlines()] == [
        str(Path("sweep/000/model")),
        str(Path("sweep/001/model")),
    ]


def test_show_prints_the_recipe_and_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert denoscope(monkeypatch, "train", "digits", "--show") == 0
    assert json.loads(capsys.readouterr().out)["data"]["kind"] == "digits"
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "films"], "there is no recipe 'films'"),
        (["train", "digits", "trainer.steps=5"], "the recipe has no key 'trainer.steps'"),
        (["train", "digits", "fashion-mnist"], "one recipe at a time"),
        (["train", "trainer.seed=1"], "which recipe?"),
        (["train", "--data", "nowhere"], "nowhere is no folder"),
        (["train", "fashion-mnist", "data.folder=nowhere"], "train-images-idx3-ubyte.gz is missing"),
        (["train", "shapes", "step=5"], "the recipe shapes has no key 'step'"),
        (["train", "shapes", "steps=many"], "needs a whole number"),
        (["sample", "nowhere"], "there is no folder 'nowhere'"),
        (["sample", ".", "--labels", "a"], "no list of whole numbers"),
        (["sample", ".", "--compare-steps", "0"], "at least 1, not 0"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert denoscope(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("denoscope: ")
    assert told in error
    assert not [path for path in Path().rglob("*") if path.is_file()]
