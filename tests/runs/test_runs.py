"""Run folders: all or nothing, safe names, plain errors."""

import json
import os
import re
import threading
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from denoscope.runs import (
    SCHEMA_VERSION,
    ModelRecord,
    RunError,
    RunFolder,
    RunManifest,
    hash_file,
    new_run,
    run_name,
    slugify,
)


@pytest.fixture
def manifest() -> RunManifest:
    return RunManifest(
        denoscope_version="0.1.0",
        command="trace",
        arguments={
            "prompt": "a red circle",
            "steps": 25,
            "guidance_scale": 7.5,
            "eager": True,
            "words": ["red"],
        },
        versions={"python": "3.11"},
        model=ModelRecord(name="shapes", source="embedded", pipeline="StableDiffusionPipeline", sha256="0" * 64),
        seed=7,
        device="cpu",
        dtype="float32",
        started=datetime(2026, 12, 1, 15, 30, tzinfo=UTC),
        seconds={"sample": 1.25},
        words=["red"],
    )


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_written_and_read_back(tmp_path: Path, manifest: RunManifest) -> None:
    trace = xr.Dataset({"guidance": (("step", "y", "x"), np.ones((3, 2, 2), np.float32))}, attrs={"prompt": "é"})
    with new_run(root=tmp_path, slug="a red circle") as run:
        assert contents(tmp_path) == [run.folder.name]
        assert run.folder.name.startswith(".")
        run.write_trace(trace)
        for name in ("final", "x0_000", "x0_001", "x0_1000", "x0_999"):
            (run.images / f"{name}.png").write_bytes(name.encode())
        written = run.finish(manifest)
    assert contents(tmp_path) == [run.final.name]
    assert re.fullmatch(r"\d{8}-\d{6}-a-red-circle", run.final.name)
    folder = RunFolder.open(run.final)
    assert folder.manifest == written
    assert folder.manifest.arguments == manifest.arguments
    assert [type(value) for value in folder.manifest.arguments.values()] == [str, int, float, bool, list]
    xr.testing.assert_identical(folder.trace(), trace)
    assert folder.final_image == run.final / "images/final.png"
    assert [path.stem for path in folder.x0_images] == ["x0_000", "x0_001", "x0_999", "x0_1000"]
    assert set(folder.manifest.files) == {
        "trace.nc",
        *(f"images/{p.name}" for p in (run.final / "images").iterdir()),
    }
    assert folder.manifest.files["trace.nc"] == hash_file(run.final / "trace.nc")
    assert folder.damaged() == []
    (run.final / "images/final.png").write_bytes(b"other")
    (run.final / "images/x0_000.png").unlink()
    assert folder.damaged() == ["images/final.png", "images/x0_000.png"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
@pytest.mark.parametrize("named", [True, False])
def test_nothing_is_left_after_an_exception(tmp_path: Path, error: type[BaseException], named: bool) -> None:
    def fail() -> None:
        with new_run(tmp_path / "mine" if named else None, root=tmp_path) as run:
            (run.images / "final.png").write_bytes(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert contents(tmp_path) == []


def test_an_empty_folder_is_used_and_a_full_one_refused(tmp_path: Path, manifest: RunManifest) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with new_run(out) as run:
        run.finish(manifest)
    assert contents(out) == ["run.json"]
    with pytest.raises(RunError, match="already exists and is not empty; choose another --out"), new_run(out):
        pytest.fail("the block must not run")
    assert contents(tmp_path) == ["out"]


def test_out_makes_its_parents_and_follows_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a/b", target_is_directory=True)
    with new_run(tmp_path / "link") as run:
        (run.folder / "x").touch()
    assert contents(tmp_path / "a") == ["b"]
    assert contents(tmp_path / "link") == ["x"]


def test_a_file_a_current_folder_and_an_impossible_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out, words in [
        (tmp_path / "file", "is a file"),
        (tmp_path / "file/run", "can't be made"),
        (Path(), "folder of its own"),
        (tmp_path / ("n" * 300), "can't be made"),
        (tmp_path / "nul\0byte", "can't be made"),
    ]:
        with pytest.raises(RunError, match=words) as caught, new_run(out):
            pytest.fail("the block must not run")
        assert "\n" not in str(caught.value)
        assert "None" not in str(caught.value)
    assert contents(tmp_path) == ["file", "here"]


def test_an_unwritable_parent_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        # Root may write anywhere, so the refusal of the system is played.
        def refuse(self: Path, *_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "mkdir", refuse)
    else:
        tmp_path.chmod(0o500)
    for out in (tmp_path / "out", None):
        sentence = r"^\S+ can't be (made|written): Permission denied; choose .+--out\.$"
        with pytest.raises(RunError, match=sentence), new_run(out, root=tmp_path):
            pytest.fail("the block must not run")
    tmp_path.chmod(0o700)


def test_runs_of_the_same_second_get_their_own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("denoscope.runs.folder.run_name", lambda slug: "same")
    finals: list[Path] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        with new_run(root=tmp_path) as run:
            (run.folder / "who").write_text(str(number))
        finals.append(run.final)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(finals)) == 8
    assert sorted(path.joinpath("who").read_text() for path in tmp_path.iterdir()) == [str(n) for n in range(8)]


def test_two_runs_can_not_share_an_out(tmp_path: Path) -> None:
    second = new_run(tmp_path / "out")
    with new_run(tmp_path / "out"), pytest.raises(RunError, match="Another run is writing"), second:
        pytest.fail("the block must not run")
    assert contents(tmp_path) == ["out"]


def test_a_place_filled_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def race() -> None:
        with new_run(tmp_path / "out") as run:
            run.final.mkdir()
            (run.final / "theirs").touch()

    with pytest.raises(RunError, match="can't be put at"):
        race()
    assert contents(tmp_path) == ["out"]
    assert contents(tmp_path / "out") == ["theirs"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "is not a run folder: it has no run.json"),
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("\xff", "is not valid JSON"),
        ("[]", "is no run manifest"),
        ("{}", "is no run manifest: denoscope_version: Field required"),
        (json.dumps({"schema_version": SCHEMA_VERSION + 1}), "written by a newer denoscope"),
    ],
)
def test_what_is_no_run_folder_is_a_sentence(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(RunError, match=re.escape(words)) as caught:
        RunFolder.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_and_a_damaged_trace_are_sentences(tmp_path: Path, manifest: RunManifest) -> None:
    with pytest.raises(RunError, match="there is no such folder"):
        RunFolder.open(tmp_path / "none")
    manifest.write(tmp_path)
    folder = RunFolder.open(str(tmp_path))
    assert folder.final_image is None
    assert folder.x0_images == ()
    with pytest.raises(RunError, match=r"has no trace\.nc"):
        folder.trace()
    (tmp_path / "trace.nc").write_bytes(b"\x89HDF\r\n\x1a\nrubbish")
    with pytest.raises(RunError, match="may be damaged"):
        folder.trace()


def test_the_manifest_keeps_utc_and_refuses_what_it_does_not_know(manifest: RunManifest) -> None:
    document = json.loads(manifest.model_dump_json())
    assert document["started"] == "2026-12-01T15:30:00Z"
    assert RunManifest.model_validate(document | {"started": "2026-12-01T16:30:00+01:00"}) == manifest
    for wrong in ({"started": "2026-12-01T15:30:00"}, {"extra": 1}, {"files": {"a": "short"}}):
        with pytest.raises(ValueError, match="validation error"):
            RunManifest.model_validate(document | wrong)


@given(st.text(max_size=200) | st.text(alphabet="./\\\n\0 -:é🎨\ud800", max_size=80))
def test_a_slug_is_safe_whatever_the_text(text: str) -> None:
    slug = slugify(text)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug)
    assert len(slug) <= 40
    assert slugify(slug) == slug
    assert re.fullmatch(r"\d{8}-\d{6}-[a-z0-9-]+", run_name(text))


@pytest.mark.parametrize("prompt", ["../../../etc", "a\nb", "🎨🎨", "con", "x" * 5000, "-rf *", "a/b\\c", ""])
def test_hostile_prompts_stay_inside_the_root(tmp_path: Path, prompt: str) -> None:
    with new_run(root=tmp_path / "runs", slug=prompt) as run:
        pass
    assert run.final.parent == (tmp_path / "runs").resolve()
    assert contents(tmp_path) == ["runs"]
