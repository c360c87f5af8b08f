"""Whole outputs of layers on disk: the layers' own numbers, nothing half-written, no memory that grows."""

import gc
import json
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline
from family_calls import PROMPT
from tiny_families import loaded, saved

from denoscope import ObserveError, observe
from denoscope.observer import read_raw
from denoscope.observer.raw import RawWriter

BLOCK = "mid_block.attentions.0.transformer_blocks.0"


def draw(pipe: StableDiffusionPipeline, **kwargs: object) -> torch.Tensor:
    settings = {"num_inference_steps": 3, "output_type": "latent", "height": 64, "width": 64} | kwargs
    latents: torch.Tensor = pipe(PROMPT, generator=torch.Generator().manual_seed(5), **settings).images
    return latents


def test_they_are_the_layers_own_numbers(pipe: StableDiffusionPipeline, tmp_path: Path) -> None:
    own: dict[str, list[torch.Tensor]] = {"mid_block": [], BLOCK: []}
    hooks = [
        pipe.unet.get_submodule(name).register_forward_hook(lambda _m, _a, out, told=told: told.append(out.clone()))
        for name, told in own.items()
    ]
    folder = tmp_path / "new" / "raw"
    with observe(pipe, features=list(own), raw_features=folder, raw_dtype="float32") as watch:
        draw(pipe, num_images_per_prompt=2)
        with pytest.raises(ObserveError, match="when the observe block has ended"):
            _ = watch.raw
    for hook in hooks:
        hook.remove()
    found = watch.raw
    assert found["mid_block"].dims == ("step", "branch", "sample", "channel", "y", "x")
    assert found[BLOCK].dims == ("step", "branch", "sample", "place", "channel")
    for name, told in own.items():
        assert found[name].dtype == np.float32
        for step, output in enumerate(told):
            for branch, rows in (("uncond", output[:2]), ("cond", output[2:])):
                np.testing.assert_array_equal(found[name].sel(branch=branch).isel(step=step), rows)
    assert found["mid_block"].timestep.values.tolist() == pipe.scheduler.timesteps.tolist()
    np.testing.assert_array_equal(found["mid_block"].logsnr, watch.trace.logsnr)
    assert sorted(path.name for path in folder.iterdir()) == sorted(["index.json", "mid_block.npy", f"{BLOCK}.npy"])
    assert np.load(folder / "mid_block.npy").shape == (3, 2, 2, 32, 2, 2)  # numpy alone reads it


def test_they_are_mapped_and_can_only_be_read(pipe: StableDiffusionPipeline, tmp_path: Path) -> None:
    with observe(pipe, attention=None, features=["mid_block"], raw_features=str(tmp_path / "raw")) as watch:
        draw(pipe)
    found = watch.raw["mid_block"]
    assert found.dtype == np.float16
    held: object = found.values
    while isinstance(held, np.ndarray) and not isinstance(held, np.memmap):
        held = held.base
    assert isinstance(held, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found.values[:] = 0
    pooled = watch.features["mid_block"]["mean"].transpose("step", "branch", "sample", "channel")
    assert found.branch.values.tolist() == pooled.branch.values.tolist() == ["cond", "uncond"]
    np.testing.assert_allclose(found.astype(np.float64).mean(("y", "x")), pooled, atol=2e-3)


def held_bytes(thing: object) -> int:
    """Bytes of all tensors and arrays that an object holds, at any depth."""
    seen: set[int] = set()
    queue, total = [thing], 0
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            total += item.untyped_storage().nbytes()
        elif isinstance(item, np.ndarray):
            total += item.nbytes
        elif isinstance(item, RawWriter | dict | list | tuple) or hasattr(item, "__slots__"):
            queue.extend(gc.get_referents(item))
    return total


def test_memory_does_not_grow_with_steps(pipe: StableDiffusionPipeline, tmp_path: Path) -> None:
    held: list[int] = []

    def after_step(_pipe: object, step: int, _timestep: object, kwargs: dict[str, object]) -> dict[str, object]:
        held.append(held_bytes(watch._features.raw))
        return kwargs

    with observe(pipe, features=["mid_block"], raw_features=tmp_path / "raw") as watch:
        draw(pipe, num_inference_steps=5, callback_on_step_end=after_step)
    assert held == [0] * 5  # nothing is kept once a step is written
    assert watch.raw["mid_block"].sizes["step"] == 5


def test_a_branch_that_comes_later_and_a_layer_that_is_left_out(tmp_path: Path) -> None:
    writer = RawWriter(tmp_path / "raw", "float32")
    writer.open()
    ones = torch.ones(1, 2, 2, 2)
    writer.take("a", "cond", 1 * ones)
    writer.end_step()
    writer.take("a", "uncond", 2 * ones)
    writer.take("a", "cond", 3 * ones)
    writer.take("b", "cond", 4 * ones[..., 0])
    writer.take("c", "cond", 5 * ones[..., 0, 0])
    writer.end_step()
    writer.take("b", "cond", 6 * ones[..., 0])
    writer.end_step()
    writer.finish([(9.0, 1.0, -np.inf), (5.0, 1.0, 0.0), (1.0, 1.0, 7.0)])
    found = read_raw(tmp_path / "raw")
    by_branch = found["a"].isel(sample=0, channel=0, y=0, x=0)
    np.testing.assert_array_equal(by_branch, [[1, np.nan], [3, 2], [np.nan, np.nan]])
    assert by_branch.branch.values.tolist() == ["cond", "uncond"]
    np.testing.assert_array_equal(found["b"].isel(branch=0, sample=0, place=0, channel=0), [np.nan, 4, 6])
    assert found["c"].dims == ("step", "branch", "sample", "channel")
    assert found["a"].logsnr.values.tolist() == [-np.inf, 0, 7]


def test_a_second_call_a_step_fills_its_branch(tmp_path: Path) -> None:
    pipe = loaded("flux", saved("flux", tmp_path / "model"))
    with observe(pipe, features=["transformer_blocks.0"], raw_features=tmp_path / "raw") as watch:
        pipe(
            prompt=PROMPT, negative_prompt="blue", true_cfg_scale=3.0, num_inference_steps=2, height=16, width=16,
            output_type="latent", generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
    found = watch.raw["transformer_blocks.0"]
    assert set(found.branch.values) == {"cond", "uncond"}
    assert bool(np.isfinite(found).all())
    assert float(abs(found.sel(branch="cond") - found.sel(branch="uncond")).max()) > 0


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_nothing_half_written_is_left(
    pipe: StableDiffusionPipeline, tmp_path: Path, error: type[BaseException] | None
) -> None:
    def stop(*_: object) -> NoReturn:
        assert any(tmp_path.rglob("*.npy"))
        raise (error or RuntimeError)("stopped here")

    if error is None:  # no step was made
        with observe(pipe, features=["mid_block"], raw_features=tmp_path / "raw"):
            pass
    else:
        watching = observe(pipe, features=["mid_block"], raw_features=tmp_path / "raw")
        with pytest.raises(error, match="stopped here"), watching:
            draw(pipe, callback_on_step_end=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_the_picture_drawn(
    pipe: StableDiffusionPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = draw(pipe)

    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("denoscope.observer.raw._LayerFile.append", full)
    with observe(pipe, features=["mid_block"], raw_features=tmp_path / "raw") as watch:
        assert torch.equal(draw(pipe), plain)
    with pytest.raises(ObserveError, match="No space left"):
        _ = watch.raw
    assert list(tmp_path.iterdir()) == []


def test_numbers_beyond_float16_are_told(pipe: StableDiffusionPipeline, tmp_path: Path) -> None:
    pipe.unet.mid_block.register_forward_hook(lambda _m, _a, out: out * 1e9)
    with observe(pipe, attention=None, features=["mid_block"], raw_features=tmp_path / "raw") as watch:
        draw(pipe)
    with pytest.raises(ObserveError, match="mid_block gives numbers beyond float16; observe with raw_dtype='float32'"):
        _ = watch.raw


def test_folders_that_will_not_do(pipe: StableDiffusionPipeline, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").write_text("mine")
    with pytest.raises(ObserveError, match="exists and is not empty"):
        observe(pipe, features=["mid_block"], raw_features=taken)
    with pytest.raises(ObserveError, match="name some by features"):
        observe(pipe, raw_features=tmp_path / "raw")
    with pytest.raises(ObserveError, match="give 'float16' or 'float32'"):
        observe(pipe, features=["mid_block"], raw_features=tmp_path / "raw", raw_dtype="int8")  # type: ignore[arg-type]
    (tmp_path / ".raw.partial").mkdir()
    with (
        pytest.raises(ObserveError, match="something else is writing"),
        observe(pipe, features=["mid_block"], raw_features=tmp_path / "raw"),
    ):
        pass
    with observe(pipe, features=["mid_block"]) as watch:  # and the pipeline can be observed again
        draw(pipe)
    with pytest.raises(ObserveError, match="observe with raw_features=FOLDER"):
        _ = watch.raw
    with pytest.raises(ObserveError, match="holds no raw features"):
        read_raw(taken)
    (tmp_path / "empty").mkdir()
    with observe(pipe, features=["mid_block"], raw_features=tmp_path / "empty") as watch:
        draw(pipe)
    assert json.loads((tmp_path / "empty" / "index.json").read_text())["layers"] == {"mid_block": ["cond", "uncond"]}
