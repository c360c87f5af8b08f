"""``denoscope attention`` from the command line to the run folder, in this process."""

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import xarray as xr
from command_line import Denoscope, assert_refused, files
from PIL import Image

from denoscope import observe
from denoscope.observer import plan_generation, trace_generation
from denoscope.runs import RunFolder

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline

PROMPT = "a red circle above a blue square"
QUICK = ("--num-inference-steps", "4", "--steps", "0,3")


@pytest.fixture
def run(denoscope: Denoscope, tiny_folder: Path) -> Denoscope:
    return lambda *arguments: denoscope("attention", "--model", tiny_folder, *arguments)


def read(path: str) -> xr.Dataset:
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        return dataset.load()


def test_a_run_folder_is_written(run: Denoscope, tiny_folder: Path, tmp_path: Path) -> None:
    ended = run(PROMPT, *QUICK, "--seed", "7", "--out", "run")
    assert ended.code == 0
    names = ["attention.nc", "curve.svg", "grid.png", "grid.svg", "images/final.png", "run.json"]
    assert files(tmp_path) == [f"run/{name}" for name in names]
    folder = RunFolder.open("run")
    assert folder.damaged() == []
    assert folder.manifest.command == "attention"
    assert folder.manifest.arguments == {
        "prompt": PROMPT,
        "model": str(tiny_folder),
        "words": None,
        "steps": ["0", "3"],
        "layers": "*",
        "heads": False,
        "self": None,
        "features": None,
        "branch": "cond",
        "negative_prompt": "",
        "seed": 7,
        "num_inference_steps": 4,
        "guidance_scale": 7.5,
    }
    assert folder.manifest.words == ["red", "circle", "blue", "square"]  # without "a" and "above"
    texts = [element.text for element in ElementTree.parse("run/grid.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in PROMPT.split()] == ["red", "circle", "blue", "square"]
    assert [text for text in texts if text and text.startswith("step ")] == ["step 0", "step 3"]
    assert Image.open("run/grid.png").size[0] > 500
    ElementTree.parse("run/curve.svg")
    lines = ended.out.splitlines()
    assert lines[-1] == str(tmp_path / "run")
    assert [line.split()[0] for line in lines[1:5]] == ["red", "circle", "blue", "square"]


def test_numbers_are_those_of_the_trace(run: Denoscope, loaded_pipe: "StableDiffusionPipeline") -> None:
    ended = run(PROMPT, *QUICK, "--words", "red,circle", "--seed", "3", "--out", "run", "--json")
    assert (ended.code, ended.out.count("\n")) == (0, 1)
    told = json.loads(ended.out)
    pipe = copy.deepcopy(loaded_pipe)
    traced = trace_generation(pipe, plan_generation(pipe, PROMPT, seed=3, steps=4))
    maps = traced.trace.attention.values.astype(np.float64).mean(2)
    table = read("run/attention.nc")
    assert table.attention.dims == ("word", "step", "y", "x")
    assert table.word.values.tolist() == ["a", "red", "circle", "above", "a#2", "blue", "square"]
    assert np.allclose(table.attention, maps, atol=1e-6)
    assert (np.asarray(Image.open("run/images/final.png")) == traced.picture).all()
    share = maps[1, 3] / maps[1, 3].sum()
    area = np.exp(-(share * np.log(share)).sum()) / share.size
    assert list(told["effective_area"]) == ["red", "circle"]
    assert told["effective_area"]["red"]["last"] == pytest.approx(area, abs=1e-5)
    assert float(table.effective_area.sel(word="red")[-1]) == pytest.approx(area, abs=1e-5)
    mass = traced.trace.token_mass.mean(("step", "layer"))
    assert told["token_mass"] == pytest.approx(
        {kind: float(mass.sel(token_kind=kind)) for kind in ("bos", "words", "eos", "padding")}, abs=1e-5
    )
    assert sum(told["token_mass"].values()) == pytest.approx(1, abs=1e-4)
    one, two = (maps[index].mean(0) / maps[index].mean(0).max() for index in (1, 2))
    assert [each["words"] for each in told["overlap"]] == [["red", "circle"]]
    assert told["overlap"][0]["soft"] == pytest.approx(
        np.minimum(one, two).sum() / np.maximum(one, two).sum(), abs=1e-5
    )
    # The words shown do not change what is measured: blue and square are in the common baseline.
    assert [(each["modifier"], each["noun"], each["rival"]) for each in told["binding"]] == [
        ("red", "circle", "square")
    ]
    meant = [maps[index].mean(0) / maps[index].mean(0).sum() for index in (1, 2, 5, 6)]
    rest = [(each - sum(meant) / 4).ravel() for each in meant]
    cosines = [float(rest[0] @ each / np.linalg.norm(rest[0]) / np.linalg.norm(each)) for each in rest]
    assert told["binding"][0]["score"] == pytest.approx((cosines[1] - cosines[3]) / 2, abs=1e-5)
    assert (told["binding"][0]["warning"] is None) == (told["binding"][0]["score"] >= -0.45)
    assert told["warnings"] == [each["warning"] for each in told["binding"] if each["warning"]]


def test_options_reach_the_pipeline(run: Denoscope) -> None:
    ended = run(
        PROMPT, "--num-inference-steps", "2", "--guidance-scale", "1", "--layers", "mid_block.*", "--words", "SQUARE",
        "--device", "cpu", "--out", "run",
    )  # fmt: skip
    assert ended.code == 0
    table = read("run/attention.nc")
    assert table.attrs["layers"] == "mid_block.attentions.0.transformer_blocks.0.attn2"
    assert table.attrs["guidance_scale"] == 1
    assert table.sizes["step"] == 2
    assert RunFolder.open("run").manifest.words == ["square"]
    assert RunFolder.open("run").manifest.arguments["steps"] == ["0", "1"]


def test_the_picture_is_that_of_the_same_seed_unobserved(
    run: Denoscope, loaded_pipe: "StableDiffusionPipeline"
) -> None:
    assert run(PROMPT, *QUICK, "--seed", "5", "--out", "run").code == 0
    drawn = loaded_pipe(
        PROMPT, num_inference_steps=4, guidance_scale=7.5, generator=torch.Generator().manual_seed(5), output_type="np"
    ).images[0]
    assert (np.asarray(Image.open("run/images/final.png")) == np.rint(drawn * 255).astype(np.uint8)).all()


def test_a_hostile_prompt_is_text(run: Denoscope) -> None:
    ended = run("<script>alert(1)</script> \x1b[31m & \x07 cube", *QUICK, "--out", "run")
    assert ended.code == 0
    assert "\x1b" not in ended.out + ended.err
    for name in ("grid.svg", "curve.svg"):
        ElementTree.parse(f"run/{name}")
        assert "<script" not in Path("run", name).read_text("utf-8")


def test_a_prompt_of_stop_words_and_one_without_pairs(run: Denoscope) -> None:
    assert run("a", *QUICK, "--out", "one").code == 0
    assert RunFolder.open("one").manifest.words == ["a"]
    ended = run("a circle", *QUICK, "--out", "two")
    assert ended.code == 0
    assert "binding" not in ended.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            [PROMPT, "--num-inference-steps", "4", "--steps", "1,4"],
            "--steps 4 is out of range: this run has 4 steps, 0",
        ),
        ([PROMPT, "--steps", "-1"], "--steps '-1' can't be read: give numbers from 0, separated by commas"),
        ([PROMPT, "--steps", "5,,6"], "--steps '5,,6' can't be read"),
        ([PROMPT, "--steps", "9" * 5000], "can't be read"),
        ([PROMPT, "--steps", "999999999"], "--steps 999999999 is out of range"),
        ([PROMPT, "--words", "dog"], "the word 'dog' is not in the prompt; its words are 'a', 'red'"),
        ([PROMPT, "--words", " , "], "--words names no word"),
        ([PROMPT, "--layers", "text*"], "no cross-attention layer matches 'text*'; there are down_blocks.0"),
        ([PROMPT, "--num-inference-steps", "0"], "0 steps are not possible"),
        ([PROMPT, "--guidance-scale", "nan"], "guidance nan is out of range"),
        ([""], "the prompt is empty"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_is_one_sentence(run: Denoscope, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    assert_refused(run(*arguments), sentence)
    assert files(tmp_path) == []


def test_a_model_without_attention_is_refused(
    denoscope: Denoscope, exact_pipe: "StableDiffusionPipeline", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("denoscope.pipelines.load", lambda *_: exact_pipe)
    assert_refused(denoscope("attention", PROMPT, "--model", "exact-shapes"), "has no cross-attention")


def test_where_a_part_of_the_picture_looks(run: Denoscope, loaded_pipe: "StableDiffusionPipeline") -> None:
    ended = run(PROMPT, *QUICK, "--self", "0.5,0,1,0.5", "--out", "run")
    assert ended.code == 0
    table = read("run/attention.nc")
    pipe = copy.deepcopy(loaded_pipe)
    plan = plan_generation(pipe, PROMPT, steps=4)
    seen = trace_generation(pipe, plan, region=(0.5, 0, 1, 0.5), x0=False).trace
    np.testing.assert_allclose(table["attention"].isel(word=0), seen["self_attention"].mean("layer"), atol=1e-6)
    assert table["word"].values.tolist() == ["the region"]


def test_the_negative_prompts_words(run: Denoscope) -> None:
    ended = run(PROMPT, *QUICK, "--branch", "uncond", "--negative-prompt", "a blue square", "--out", "run", "--json")
    assert list(json.loads(ended.out)["effective_area"]) == ["blue", "square"]
    assert read("run/attention.nc").attrs["branch"] == "uncond"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--branch", "uncond"], "only with --negative-prompt"),
        (["--branch", "both"], "give cond or uncond"),
        (["--self", "0.2"], "give left,top,right,bottom"),
        (["--self", "0.5,0,0.2,1"], "in that order"),
    ],
)
def test_branches_and_regions_that_are_none(run: Denoscope, arguments: list[str], told: str, tmp_path: Path) -> None:
    assert_refused(run(PROMPT, *arguments), told)
    assert files(tmp_path) == []


def test_heads_are_kept_apart(run: Denoscope, loaded_pipe: "StableDiffusionPipeline") -> None:
    ended = run(PROMPT, *QUICK, "--words", "circle", "--heads", "--out", "run")
    assert ended.code == 0
    names = ["attention.nc", "curve.svg", "grid.png", "grid.svg", "heads.png", "heads.svg", "images/final.png"]
    assert files(Path("run")) == [*names, "run.json"]
    assert RunFolder.open("run").manifest.arguments["heads"] is True
    table = read("run/attention.nc")
    pipe = copy.deepcopy(loaded_pipe)
    with observe(pipe, heads=True, x0=False) as watch:
        pipe(PROMPT, num_inference_steps=4, guidance_scale=7.5, generator=torch.Generator().manual_seed(0))
    seen = watch.trace.attention.values.astype(np.float64)  # word, step, layer, head, y, x
    assert table.attention_heads.dims == ("word", "layer", "head", "y", "x")
    np.testing.assert_allclose(table.attention_heads, np.nanmean(seen, 1), atol=1e-6)
    # What is measured of words is that of the mean over heads, as without --heads.
    np.testing.assert_allclose(table.attention, np.nanmean(seen, (2, 3)), atol=1e-6)
    share = np.nanmean(seen, 1)[table.word.values.tolist().index("circle")].reshape(len(table.layer), -1, 64)
    share = share / share.sum(-1, keepdims=True)
    area = np.exp(-(share * np.log(share)).sum(-1)) / 64
    layer, head = np.unravel_index(np.nanargmin(area), area.shape)
    lines = ended.out.splitlines()
    at = lines.index("sharpest heads for 'circle', effective area")
    assert lines[at + 1].split() == [str(table.layer.values[layer]), "head", str(head), f"{np.nanmin(area):.3f}"]
    texts = [element.text for element in ElementTree.parse("run/heads.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert "head 0" in texts
    assert "mid_block.0.0" in texts
    told = json.loads(run(PROMPT, *QUICK, "--heads", "--words", "circle", "--out", "two", "--json").out)
    assert told["sharpest_heads"][0]["layer"] == str(table.layer.values[layer])


def test_features_are_written(run: Denoscope, loaded_pipe: "StableDiffusionPipeline") -> None:
    ended = run(PROMPT, *QUICK, "--features", "mid_block, up_blocks.*", "--out", "run")
    assert ended.code == 0
    names = [f"features/{layer}.nc" for layer in ("mid_block", "up_blocks.0", "up_blocks.1", "up_blocks.2")]
    manifest = RunFolder.open("run").manifest
    assert [name for name in manifest.files if name.startswith("features/")] == names
    assert RunFolder.open("run").damaged() == []
    assert manifest.arguments["features"] == "mid_block, up_blocks.*"
    pipe = copy.deepcopy(loaded_pipe)
    with observe(pipe, attention=None, features=["mid_block"]) as watch:
        pipe(PROMPT, num_inference_steps=4, guidance_scale=7.5, generator=torch.Generator().manual_seed(0))
    found, expected = read("run/features/mid_block.nc"), watch.features["mid_block"]
    assert set(found.data_vars) == {"mean", "std", "grid"}
    for name in found.data_vars:
        np.testing.assert_array_equal(found[name], expected[name].astype(np.float32))
    assert found.branch.values.tolist() == expected.branch.values.tolist()
    assert run(PROMPT, *QUICK, "--features", "auto", "--self", "0,0,1,1", "--out", "two").code == 0
    assert "features/mid_block.nc" in files(Path("two"))


def test_debug_prints_a_line_for_each_step_and_layer(run: Denoscope) -> None:
    ended = run(PROMPT, *QUICK, "--layers", "mid_block*", "--features", "mid_block", "--debug", "--out", "run")
    assert ended.code == 0
    lines = [line.split("  ") for line in ended.err.splitlines() if line.startswith("step ")]
    attention = "mid_block.attentions.0.transformer_blocks.0.attn2"
    assert [line[:3] for line in lines] == [
        [f"step {step}", layer, reads]
        for step in range(4)
        for layer, reads in ((attention, "attention"), ("mid_block", "features"))
    ]
    assert all(line[-1].endswith(" ms") for line in lines)
    assert "step " not in ended.out.replace("first step", "").replace("last step", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--features", "middle"], "is called 'middle'; its parts are conv_in"),
        (["--features", " , "], "--features names no layer"),
        (["--heads", "--self", "0,0,1,1"], "leave one of them out"),
    ],
)
def test_layers_and_heads_that_are_none(run: Denoscope, arguments: list[str], told: str, tmp_path: Path) -> None:
    assert_refused(run(PROMPT, *arguments), told)
    assert files(tmp_path) == []
