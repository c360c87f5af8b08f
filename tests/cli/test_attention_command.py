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
        "self": None,
        "heads": False,
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
        (["--self", "0.5,0,1,0.5", "--heads"], "leave one out"),
        (["--features", " , "], "--features names no layer"),
        (["--features", "middle"], "is called 'middle'; its parts are conv_in"),
        (["--features", "mid_block,up_blocks.7"], "is called 'up_blocks.7'"),
    ],
)
def test_branches_and_regions_that_are_none(run: Denoscope, arguments: list[str], told: str, tmp_path: Path) -> None:
    assert_refused(run(PROMPT, *arguments), told)
    assert files(tmp_path) == []


def test_heads_apart(run: Denoscope, loaded_pipe: "StableDiffusionPipeline", tmp_path: Path) -> None:
    ended = run(PROMPT, *QUICK, "--words", "circle,red", "--heads", "--out", "run")
    assert ended.code == 0
    assert {"run/heads.png", "run/heads.svg"} <= set(files(tmp_path))
    assert {"heads.png", "heads.svg"} <= set(RunFolder.open("run").manifest.files)
    table = read("run/attention.nc")
    pipe = copy.deepcopy(loaded_pipe)
    seen = trace_generation(pipe, plan_generation(pipe, PROMPT, steps=4), heads=True, x0=False).trace["attention"]
    apart = table["attention_heads"]
    assert apart.dims == ("shown_word", "shown_step", "layer", "head", "y", "x")
    assert (apart["shown_word"].values.tolist(), apart["shown_step"].values.tolist()) == (["red", "circle"], [0, 3])
    for word, number in (("red", 1), ("circle", 2)):
        expected = seen.values[number][[0, 3]]
        np.testing.assert_allclose(apart.sel(shown_word=word), expected, atol=1e-6)
    # Heads of a layer are averaged before layers are: these have different numbers of them.
    means = np.nanmean(np.nanmean(seen.values, axis=3), axis=2)
    np.testing.assert_allclose(table["attention"], means, atol=1e-6)
    shown = next(line for line in ended.out.splitlines() if line.startswith("heads of "))
    layer = shown.split()[2]
    maps = np.nanmean(seen.sel(word="red").values[[0, 3]], axis=(0, 2)).reshape(seen.sizes["layer"], -1)
    share = maps / maps.sum(1, keepdims=True)
    assert layer == seen["layer"].values[np.exp(-(share * np.log(share)).sum(1)).argmin()]
    assert shown.endswith("for 'red'")
    texts = [element.text for element in ElementTree.parse("run/heads.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert f"'red' in the heads of {layer}" in texts
    heads = pipe.unet.get_submodule(layer).heads
    assert [text for text in texts if text and text.startswith("head ")] == [f"head {head}" for head in range(heads)]


def test_heads_in_json(run: Denoscope) -> None:
    layer = "mid_block.attentions.0.transformer_blocks.0.attn2"
    ended = run("a circle", *QUICK, "--heads", "--layers", "mid_block.*", "--out", "run", "--json")
    assert json.loads(ended.out)["heads"] == {"word": "circle", "layer": layer}


@pytest.mark.parametrize(
    ("asked", "layers"),
    [
        ("mid_block, up_blocks.*", ["mid_block", "up_blocks.0", "up_blocks.1", "up_blocks.2"]),
        ("auto", ["down_blocks.2", "mid_block", "up_blocks.1"]),
    ],
)
def test_features_are_those_of_the_trace(
    run: Denoscope, loaded_pipe: "StableDiffusionPipeline", asked: str, layers: list[str]
) -> None:
    assert run(PROMPT, *QUICK, "--features", asked, "--out", "run").code == 0
    folder = RunFolder.open("run")
    assert "features.nc" in folder.manifest.files
    assert folder.damaged() == []
    pipe = copy.deepcopy(loaded_pipe)
    seen = trace_generation(pipe, plan_generation(pipe, PROMPT, steps=4), features=layers, x0=False).features
    with xr.open_datatree("run/features.nc", engine="h5netcdf") as tree:
        assert sorted(tree.children) == layers
        for layer in layers:
            for name in ("mean", "std", "grid"):
                np.testing.assert_array_equal(tree[layer][name], seen[layer][name].astype("float32"))
            assert list(tree[layer].coords["branch"].values) == ["cond", "uncond"]


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
    assert all("step " not in line for line in ended.out.splitlines() if " ms" in line)


def test_help_shows_how_heads_and_features_are_asked_for(denoscope: Denoscope) -> None:
    told = " ".join(denoscope("attention", "--help").out.split())
    assert "--heads" in told
    assert "--features" in told
    assert "--debug" in told
    assert "mid_block,up_blocks.*" in told
