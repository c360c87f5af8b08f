"""What other tools get wrong: fused projections, adapters, further branches, compiled models."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from diffusers import DiffusionPipeline, StableDiffusionPipeline
from family_calls import PROMPT, TEXT, call
from family_layouts import LAYOUTS
from held_against import check_words
from tiny_families import loaded, saved

from denoscope import ObserveError, observe
from denoscope.observer import plan_generation, trace_generation
from denoscope.pipelines.adapters import Branch


def family(name: str, folder: Path) -> DiffusionPipeline:
    return loaded(name, saved(name, folder))


def draw(pipe: StableDiffusionPipeline, **kwargs: object) -> None:
    settings = {"num_inference_steps": 2, "output_type": "latent", "height": 64, "width": 64} | kwargs
    pipe(PROMPT, generator=torch.Generator().manual_seed(5), **settings)


def maps(pipe: StableDiffusionPipeline, **kwargs: object) -> xr.DataArray:
    with observe(pipe) as watch:
        draw(pipe, **kwargs)
    found: xr.DataArray = watch.trace.attention
    return found


def test_fused_projections_are_seen_rightly(pipe: StableDiffusionPipeline) -> None:
    apart = maps(pipe)
    pipe.unet.fuse_qkv_projections()
    np.testing.assert_allclose(maps(pipe), apart, atol=1e-5)


def test_fused_projections_that_leave_out_norms_are_refused(tmp_path: Path) -> None:
    pipe = family("sd3.5", tmp_path)
    pipe.transformer.fuse_qkv_projections()
    with pytest.raises(ObserveError, match="unfuse_qkv_projections"):
        observe(pipe)


def test_an_ip_adapter_is_left_in_place_and_the_text_is_what_is_read(pipe: StableDiffusionPipeline) -> None:
    width, state = 32, {}
    torch.manual_seed(1)
    cross = [key for key in pipe.unet.attn_processors if "attn2" in key]
    for number, key in enumerate(cross):
        layer = pipe.unet.get_submodule(key.removesuffix(".processor"))
        for part in ("to_k_ip", "to_v_ip"):
            # diffusers numbers all processors, self-attention being the even ones
            state[f"{2 * number + 1}.{part}.weight"] = torch.randn(layer.to_k.out_features, width)
    projection = {
        "proj.weight": torch.randn(4 * width, 16),
        "proj.bias": torch.zeros(4 * width),
        "norm.weight": torch.ones(width),
        "norm.bias": torch.zeros(width),
    }
    plain = maps(pipe)
    pipe.unet._load_ip_adapter_weights([{"image_proj": projection, "ip_adapter": state}])
    pipe.set_ip_adapter_scale(0.0)
    processors = dict(pipe.unet.attn_processors)
    pictures = [torch.randn(2, 1, 16)]
    np.testing.assert_allclose(maps(pipe, ip_adapter_image_embeds=pictures), plain, atol=1e-5)
    pipe.set_ip_adapter_scale(1.0)
    assert float(abs(maps(pipe, ip_adapter_image_embeds=pictures) - plain).max()) > 1e-3
    assert pipe.unet.attn_processors == processors


def test_a_second_call_a_step_has_the_negative_prompt(tmp_path: Path) -> None:
    pipe = family("flux", tmp_path)
    settings = {"prompt": PROMPT, "num_inference_steps": 2, "height": 16, "width": 16, "output_type": "latent"}
    branches: tuple[Branch, ...] = ("cond", "uncond")
    for branch in branches:
        with observe(pipe, branch=branch) as watch:
            pipe(**settings, negative_prompt="blue", true_cfg_scale=3.0, generator=torch.Generator().manual_seed(0))
        trace = watch.trace
        assert trace.sizes["step"] == 2
        assert trace.word.values.tolist() == (["blue"] if branch == "uncond" else list(TEXT["flux"]))
        # From pure noise ε is known, whatever the prompt; from then on it isn't.
        assert float(trace.guidance.isel(step=0).max()) == 0
        assert float(trace.guidance.isel(step=1).min()) > 0
        if branch == "cond":
            cond = trace.attention
    with observe(pipe) as watch:
        pipe(**settings, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(watch.trace.attention.isel(step=0), cond.isel(step=0), atol=1e-6)


@pytest.mark.parametrize(("name", "branch"), [("instruct-pix2pix", "image"), ("pag", "perturbed")])
def test_branches_that_only_some_have(name: str, branch: str, tmp_path: Path) -> None:
    pipe = family(name, tmp_path)
    found = {}
    for asked in ("cond", "uncond", branch):
        with observe(pipe, branch=asked, features=["mid_block"]) as watch:  # type: ignore[arg-type]
            call(name, pipe)
        found[asked] = watch.trace.token_mass.isel(step=1)
        assert watch.trace.sizes["word"] == (7 if asked in ("cond", "perturbed") else 0)  # the negative prompt is empty
        assert watch.trace.attrs["branch"] == asked
        assert set(watch.features["mid_block"].branch.values) == {"cond", "uncond", branch}
    assert float(abs(found["cond"] - found["uncond"]).max()) > 1e-5
    assert float(abs(found["cond"] - found[branch]).max()) > 1e-7
    other = family("sdxl", tmp_path / "other")
    with observe(other, branch=branch) as watch:  # type: ignore[arg-type]
        call("sdxl", other)
    with pytest.raises(ObserveError, match=f"no call had the branch '{branch}'"):
        _ = watch.trace


def test_sdxls_unguided_branch_is_uniform_without_a_negative_prompt(tmp_path: Path) -> None:
    pipe = family("sdxl", tmp_path)
    pipe.register_to_config(force_zeros_for_empty_prompt=True)
    with observe(pipe, branch="uncond") as watch:
        call("sdxl", pipe)
    assert watch.trace.sizes["word"] == 0
    np.testing.assert_allclose(watch.trace.token_mass.sel(token_kind="padding"), 1, atol=1e-6)


def test_the_unguided_branch_has_the_words_of_the_negative_prompt(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe, branch="uncond") as watch:
        draw(pipe, negative_prompt="a blue square")
    assert watch.trace.word.values.tolist() == ["a", "blue", "square"]
    negative = watch.trace.attention
    with observe(pipe) as other:
        pipe(
            "a blue square", negative_prompt=PROMPT, num_inference_steps=1, output_type="latent", height=64, width=64,
            generator=torch.Generator().manual_seed(5),
        )  # fmt: skip
    np.testing.assert_allclose(negative.isel(step=0), other.trace.attention.isel(step=0), atol=1e-6)


def test_a_compiled_denoiser_is_refused(pipe: StableDiffusionPipeline) -> None:
    pipe.unet = torch.compile(pipe.unet)
    with pytest.raises(ObserveError, match="compiled"):
        observe(pipe)


def test_half_precision_is_summed_in_float32(pipe: StableDiffusionPipeline) -> None:
    pipe.to(torch.bfloat16)
    with observe(pipe) as watch:
        draw(pipe)
    mass = watch.trace.token_mass.sum("token_kind")
    np.testing.assert_allclose(mass, 1, atol=1e-5)


def test_features_are_the_layers_own_output(pipe: StableDiffusionPipeline) -> None:
    seen: list[torch.Tensor] = []
    handle = pipe.unet.mid_block.register_forward_hook(lambda _m, _a, output: seen.append(output.clone()))
    with observe(pipe, features=["mid_block", "down_blocks.*"], feature_grid=2) as watch:
        draw(pipe)
    handle.remove()
    found = watch.features
    assert list(found) == ["down_blocks.0", "down_blocks.1", "down_blocks.2", "mid_block"]
    for step in range(2):
        for row, branch in enumerate(("uncond", "cond")):
            output = seen[step][row].double().numpy()
            told = found["mid_block"].sel(branch=branch).isel(step=step, sample=0)
            np.testing.assert_allclose(told["mean"], output.mean((1, 2)), rtol=2e-3, atol=2e-3)
            np.testing.assert_allclose(told["std"], output.std((1, 2)), rtol=2e-3, atol=2e-3)
            quarter = output[:, : output.shape[1] // 2, : output.shape[2] // 2].mean((1, 2))
            np.testing.assert_allclose(told["grid"].isel(gy=0, gx=0), quarter, rtol=2e-3, atol=2e-3)
    with pytest.raises(ObserveError, match="is called 'middle'; its parts are conv_in"):
        observe(pipe, features=["middle"])


def test_a_region_that_is_none(pipe: StableDiffusionPipeline) -> None:
    with pytest.raises(ObserveError, match="left, top, right, bottom"):
        observe(pipe, attention="self", region=(0.5, 0, 0.2, 1))


@pytest.mark.parametrize("name", ["sd", "sdxl", "sd3", "flux", "flux2", "pixart-sigma", "kandinsky-decoder"])
def test_a_model_that_is_moved_to_its_device_part_by_part(name: str, tmp_path: Path) -> None:
    """By ``enable_model_cpu_offload``. Sequential offload has no device here: diffusers itself fails on the CPU."""
    pipe = family(name, tmp_path)
    plain = call(name, pipe)
    pipe.enable_model_cpu_offload(device="cpu")
    moved = call(name, pipe)
    np.testing.assert_allclose(moved, plain, atol=1e-5)
    check_words(pipe, partial(call, name, pipe), LAYOUTS[name], kept=outline)


def outline(pipe: DiffusionPipeline) -> dict[str, object]:
    """What there is, by name, and how many hooks: offloading itself makes its own anew in each call."""
    return {
        f"{part}.{name}": (set(vars(module)), len(module._forward_hooks), len(module._forward_pre_hooks))
        for part, whole in pipe.components.items()
        if isinstance(whole, torch.nn.Module)
        for name, module in whole.named_modules()
    }


def test_a_model_without_its_third_encoder_can_be_planned_and_told_its_prompt(tmp_path: Path) -> None:
    pipe = family("sd3-without-t5", tmp_path)
    plan = plan_generation(pipe, PROMPT, steps=2, size=(16, 16))
    assert trace_generation(pipe, plan).trace.word.values.tolist() == list(TEXT["sd3-without-t5"])
    with observe(pipe, prompt=PROMPT) as watch:
        call("sd3-without-t5", pipe)
    assert watch.trace.sizes["word"] == 7


@pytest.mark.parametrize("length", [64, 300])
def test_a_told_prompt_may_be_padded_to_another_length(length: int, tmp_path: Path) -> None:
    pipe = family("sd3", tmp_path)
    settings = {"num_inference_steps": 1, "height": 16, "width": 16, "output_type": "latent"}
    seen = []
    for told in (None, PROMPT):
        with observe(pipe, prompt=told) as watch:
            pipe(PROMPT, max_sequence_length=length, generator=torch.Generator().manual_seed(0), **settings)
        seen.append(watch.trace.attention)
    np.testing.assert_array_equal(seen[0], seen[1])


def test_a_grid_without_cells_is_refused(pipe: StableDiffusionPipeline) -> None:
    with pytest.raises(ObserveError, match="feature_grid must be at least 1"):
        observe(pipe, features=True, feature_grid=0)
