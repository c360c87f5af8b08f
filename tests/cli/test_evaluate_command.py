"""``denoscope evaluate``: from pictures to scores, findings and a run folder."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Denoscope, assert_refused, files
from PIL import Image

from denoscope.data.worlds.shapes import render, sample_scene
from denoscope.metrics import frechet_distance, prdc
from denoscope.metrics.extraction import extract
from denoscope.metrics.extractors.known import extractor
from denoscope.metrics.image_sets import open_images
from denoscope.runs import RunFolder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def worlds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("a", 40), ("b", 50)):
        (tmp_path / name).mkdir()
        for number in range(count):
            Image.fromarray(render(sample_scene(rng))).save(tmp_path / name / f"{number:02d}.png")


SHAPES = ("--features", "shapes")


def test_scores_of_two_folders(denoscope: Denoscope, worlds: None) -> None:
    Path("a/broken.png").write_bytes(b"no picture")
    ended = denoscope("evaluate", "--generated", "a", "--reference", "b", *SHAPES, "--out", "run", "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    scores = {score["name"]: score for score in told["scores"]}
    assert list(scores) == ["fid", "kid", "is", "precision", "recall", "density", "coverage"]
    seen = []
    for name in "ab":
        with open_images(Path(name)) as images:
            seen.append(extract(images, {"shapes": (extractor("shapes"), ["pool"])}).features["shapes"]["pool"])
    assert scores["fid"]["value"] == pytest.approx(frechet_distance(*seen), rel=1e-6)
    assert scores["recall"]["value"] == prdc(seen[1], seen[0])["recall"]
    for score in scores.values():
        assert score["low"] <= score["value"] <= score["high"]
        assert score["protocol"] == f"{score['name']}@shapes"
        assert (score["n"], score["n_reference"]) == (40, 0 if score["name"] == "is" else 50)
    codes = [finding["code"] for finding in told["findings"]]
    assert codes[:4] == ["few-pictures", "few-neighbours", "rank-deficient", "unreadable"]
    assert told["provenance"]["sets"]["generated"]["not_read"] == [["broken.png", "it is no picture that can be read"]]
    assert json.loads(Path("run/metrics.json").read_text())["scores"] == told["scores"]
    assert RunFolder.open("run").damaged() == []


def test_statistics_stand_for_the_reference(denoscope: Denoscope, worlds: None) -> None:
    made = denoscope("evaluate", "stats", "b", "--out", "b.safetensors", *SHAPES)
    assert (made.code, made.out.strip()) == (0, "50 pictures, 0 files that can't be read: b.safetensors")
    plain, held = (
        denoscope("evaluate", "--generated", "a", "--reference", reference, *SHAPES, "--metrics", "fid,prdc", "--json")
        for reference in ("b", "b.safetensors")
    )
    assert json.loads(plain.out)["scores"] == json.loads(held.out)["scores"]
    assert_refused(
        denoscope("evaluate", "--generated", "a", "--reference", "b.safetensors", *SHAPES, "--metrics", "is,fid",
                  "--features", "fashion"),
        "fid takes fashion/pool, and of b there is only",
    )  # fmt: skip


def test_a_table_for_people(denoscope: Denoscope, worlds: None) -> None:
    ended = denoscope("evaluate", "--generated", "a", "--reference", "a", *SHAPES, "--metrics", "fid,vendi")
    assert ended.code == 0
    assert "fid@shapes" in ended.out
    assert "same-files: 40 generated files are files of the reference, to the last bit. Take them out" in ended.out
    assert len(list(Path("runs").glob("*-evaluate/metrics.json"))) == 1


def test_a_model_draws_what_is_measured(denoscope: Denoscope, worlds: None) -> None:
    Path("prompts.txt").write_text("a red circle\n\na blue square\n")
    asked = ["evaluate", "--generated", "shapes", "--prompts", "prompts.txt", "-n", "4", "--num-inference-steps", "2"]
    first = denoscope(*asked, *SHAPES, "--metrics", "is", "--json")
    assert first.code == 0
    drawn = sorted(Path("cache/denoscope/drawn").rglob("*.png"))
    assert len(drawn) == 4
    stamp = drawn[0].stat().st_mtime_ns
    again = denoscope(*asked, *SHAPES, "--metrics", "is", "--json")
    assert json.loads(again.out)["scores"] == json.loads(first.out)["scores"]
    assert drawn[0].stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--reference", "b"], "give --generated: a folder, an archive or a model"),
        (["--generated", "none", *SHAPES], "'none' is no folder, archive or model"),
        (["--generated", "a", *SHAPES, "--metrics", "fud"], "there is no metric 'fud'; known are fid"),
        (["--generated", "a", *SHAPES, "--metrics", "fid"], "fid compares with reference pictures: give --reference"),
        (["--generated", "a", "--features", "resnet"], "there are no features 'resnet'"),
        (["--generated", "a", *SHAPES, "--protocol", "tf2"], "--protocol 'tf2' is unknown"),
        (["--generated", "a", *SHAPES, "--background", "white"], "--background 'white' is no colour"),
        (["--generated", "a", *SHAPES, "--bad-files", "eat"], "--bad-files 'eat' is unknown"),
        (["--generated", "shapes", *SHAPES, "--metrics", "is"], "a model draws from prompts: give --prompts"),
        (["--generated", "a", "--reference", "b", "--weights", "w.pth"], "there are no weights of Inception at w.pth"),
        (["--generated", "a", "--metrics", "clip_score", "--weights", "clip=b"], "there is no CLIPModel at 'b'"),
    ],
)
def test_what_is_refused(denoscope: Denoscope, worlds: None, arguments: list[str], told: str) -> None:
    before = files(Path())
    assert_refused(denoscope("evaluate", *arguments), told)
    assert [name for name in files(Path()) if not name.startswith("cache/")] == before
