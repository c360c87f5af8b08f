"""Loading: a pipeline, or one sentence that says what is wrong."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import DDPMPipeline, DDPMScheduler, StableDiffusionPipeline, UNet2DModel
from safetensors.torch import load_file, save_file

import denoscope
from denoscope import ModelError
from denoscope.pipelines import adapter_for, model_sha256, sampling_defaults
from denoscope.pipelines.loading import EMBEDDED, pick_device


@pytest.fixture
def copy(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model to damage."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "copy"))


def test_a_folder_is_loaded(tiny_folder: Path) -> None:
    pipe = denoscope.load(tiny_folder, "cpu")
    assert type(pipe) is StableDiffusionPipeline
    assert (pipe.device, pipe.dtype) == (torch.device("cpu"), torch.float32)
    assert denoscope.load(str(tiny_folder), dtype=torch.bfloat16, device="cpu").unet.dtype == torch.bfloat16


def test_loading_warns_of_nothing(tiny_folder: Path, recwarn: pytest.WarningsRecorder) -> None:
    denoscope.load(tiny_folder, "cpu")
    assert [str(warning.message) for warning in recwarn] == []


def refusal(model: str | Path, device: str = "cpu") -> str:
    with pytest.raises(ModelError) as caught:
        denoscope.load(model, device)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 600
    return sentence


@pytest.mark.parametrize(
    "name", ["nowhere/at/all", "./missing", "shaped", "", "~nobody-here/model", "a\0b", "\udcff/x"]
)
def test_a_model_that_is_nowhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sentence = refusal(name)
    assert repr(name) in sentence
    assert "there is no folder" in sentence or "can't be looked up" in sentence


def test_a_name_too_long_for_a_path() -> None:
    assert "can't be looked up" in refusal("a" * 300)


def test_a_folder_without_a_pipeline(tmp_path: Path) -> None:
    assert "without model_index.json" in refusal(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", "3", "\xff"])
def test_a_damaged_index(tmp_path: Path, text: str) -> None:
    (tmp_path / "model_index.json").write_text(text, "latin-1")
    assert "model_index.json names no pipeline: the folder is damaged" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["NoSuchPipeline", "os", ["my_code", "MyPipeline"]])
def test_an_index_that_names_no_class_of_diffusers(tmp_path: Path, name: object) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": name}))
    assert "which is no pipeline of diffusers" in refusal(tmp_path)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def lose_a_weight(file: Path) -> None:
    weights = load_file(file)
    del weights[max(weights)]
    save_file(weights, file, {"format": "pt"})


def pickle_it(file: Path) -> None:
    torch.save(load_file(file), file.with_suffix(".bin"))
    file.unlink()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("unet/diffusion_pytorch_model.safetensors", cut),
        ("unet/diffusion_pytorch_model.safetensors", Path.unlink),
        ("unet/diffusion_pytorch_model.safetensors", lose_a_weight),
        ("unet/diffusion_pytorch_model.safetensors", pickle_it),
        ("unet/config.json", cut),
        ("vae/diffusion_pytorch_model.safetensors", lose_a_weight),
        ("text_encoder/model.safetensors", cut),
        ("text_encoder/model.safetensors", Path.unlink),
        ("tokenizer/tokenizer.json", cut),
        ("tokenizer/tokenizer.json", Path.unlink),
        ("scheduler/scheduler_config.json", Path.unlink),
    ],
)
def test_a_damaged_folder(copy: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(copy / name)
    assert repr(str(copy)) in refusal(copy)


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_path_named_like_an_embedded_model_is_a_path(
    tiny_folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no folder" in refusal(Path(name))
    Path(name).symlink_to(tiny_folder)
    expected = model_sha256(denoscope.load(tiny_folder, "cpu"))
    assert model_sha256(denoscope.load(Path(name), "cpu")) == expected
    assert model_sha256(denoscope.load(f"./{name}", "cpu")) == expected


def test_a_hub_id_without_a_network_ends_quickly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    started = time.perf_counter()
    sentence = refusal("nobody/no-such-model")
    assert time.perf_counter() - started < 20
    assert sentence.startswith("'nobody/no-such-model' is no folder here and did not come from the hub: ")


@pytest.mark.parametrize("device", ["", "gpu", "cpu:x", "meta", "hpu", "privateuseone", "cuda:99"])
def test_a_device_that_is_not_here(device: str, tiny_folder: Path) -> None:
    sentence = refusal(tiny_folder, device)
    assert sentence.startswith(f"device {device!r} ")
    assert sentence.endswith(": use cpu, or auto")


def test_auto_is_some_device() -> None:
    assert pick_device().type in ("cpu", "cuda", "mps")


class StableDiffusionFilmPipeline(DDPMPipeline):  # type: ignore[misc]
    """A pipeline of a user's own: what its call does with branches and text, nobody knows."""


def test_a_pipeline_of_another_class_names_the_nearest_supported_ones() -> None:
    unet = UNet2DModel(
        sample_size=8,
        block_out_channels=(8, 8),
        layers_per_block=1,
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
        norm_num_groups=4,
    )
    other = StableDiffusionFilmPipeline(unet, DDPMScheduler())
    message = "StableDiffusionFilmPipeline is not supported yet; the nearest supported pipelines are StableDiffusionP"
    with pytest.raises(ModelError, match=message):
        adapter_for(other)
    with pytest.raises(ModelError, match=message):
        denoscope.observe(other)


def test_the_hash_is_the_weights(tiny_folder: Path) -> None:
    pipe, again = denoscope.load(tiny_folder, "cpu"), denoscope.load(tiny_folder, "cpu")
    first = model_sha256(pipe)
    assert first is not None
    assert len(first) == 64
    assert first == model_sha256(again)
    assert first != model_sha256(denoscope.load(tiny_folder, "cpu", torch.bfloat16))
    for part in (again.unet, again.vae, again.text_encoder):
        weight = next(iter(part.parameters())).data.view(-1)
        kept = weight[0].clone()
        weight[0] += 1
        assert model_sha256(again) != first
        weight[0] = kept
    assert model_sha256(again) == first


def test_a_pipeline_without_weights_has_no_hash(exact_pipe: StableDiffusionPipeline) -> None:
    assert model_sha256(exact_pipe) is None


def test_defaults_are_the_folders_else_the_calls(copy: Path) -> None:
    pipe = denoscope.load(copy, "cpu")
    assert sampling_defaults(pipe).num_inference_steps == 50
    assert sampling_defaults(pipe).guidance_scale == 7.5
    (copy / "sampling.json").write_text('{"num_inference_steps": 25, "other": "x"}')
    assert sampling_defaults(pipe).num_inference_steps == 25
    assert sampling_defaults(pipe).guidance_scale == 7.5


@pytest.mark.parametrize("text", ["", "[1]", '{"guidance_scale": "much"}', '{"guidance_scale": null}', "\xff"])
def test_damaged_defaults(copy: Path, text: str) -> None:
    pipe = denoscope.load(copy, "cpu")
    (copy / "sampling.json").write_text(text, "latin-1")
    with pytest.raises(ModelError, match=r"sampling\.json holds no sampling defaults"):
        sampling_defaults(pipe)
