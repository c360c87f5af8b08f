"""The text's part of a call: recorded as the pipeline makes it, called again, and put in another's place."""

import copy
import inspect
import sys
from pathlib import Path

import pytest
import torch
from diffusers import DDPMPipeline, DDPMScheduler, DiffusionPipeline, StableDiffusionPipeline, UNet2DModel
from torch import nn

from denoscope.information.calls import Call, watched
from denoscope.information.conditioning import conditioning, predict, replaced
from denoscope.information.errors import InformationError
from denoscope.pipelines import adapter_for

FAMILIES = ("sdxl", "sd3", "flux", "pixart-alpha")
A, B = "a red circle", "a blue square"


@pytest.fixture(scope="module", params=["sd", *FAMILIES])
def family(
    request: pytest.FixtureRequest, loaded_pipe: StableDiffusionPipeline, tmp_path_factory: pytest.TempPathFactory
) -> DiffusionPipeline:
    name = str(request.param)
    if name == "sd":
        return copy.deepcopy(loaded_pipe)
    sys.path.append(str(Path(__file__).parents[1] / "observer"))  # where the families are made, for this room alone too
    from tiny_families import loaded, saved

    return loaded(name, saved(name, tmp_path_factory.mktemp("family") / name))


def settings(pipe: DiffusionPipeline) -> dict[str, object]:
    more: dict[str, object] = {} if isinstance(pipe, StableDiffusionPipeline) else {"height": 16, "width": 16}
    if "use_resolution_binning" in inspect.signature(type(pipe).__call__).parameters:
        more["use_resolution_binning"] = False
    return {"num_inference_steps": 3, "guidance_scale": 3.0, **more}


def hooks(pipe: DiffusionPipeline) -> int:
    modules = [part for part in pipe.components.values() if isinstance(part, nn.Module)]
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for part in modules for m in part.modules())


def latents(pipe: DiffusionPipeline, prompt: str, **more: object) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(5)
    out = pipe(prompt=prompt, generator=generator, output_type="latent", **settings(pipe), **more)
    return torch.as_tensor(out.images)


def test_the_prediction_is_the_one_inside_the_call(family: DiffusionPipeline) -> None:
    given = conditioning(family, A, **settings(family))
    other = conditioning(family, B, **settings(family))
    seen: list[Call] = []
    with watched(family, seen.append):
        latents(family, A)
    assert [call.step for call in seen] == [0, 1, 2]
    for call in seen:
        with torch.no_grad():
            again = predict(family, call.z, call.timestep, given)
            different = predict(family, call.z, call.timestep, other)
        torch.testing.assert_close(again, call.prediction, rtol=1e-4, atol=1e-5)
        assert float((different - call.prediction).abs().max()) > 1e-4


def test_recording_leaves_nothing_behind(family: DiffusionPipeline) -> None:
    family.scheduler.set_timesteps(7, **({"mu": 1.0} if family.scheduler.config.get("use_dynamic_shifting") else {}))
    timesteps, state = family.scheduler.timesteps.clone(), dict(vars(family))
    before, random = hooks(family), torch.get_rng_state()
    conditioning(family, A, **settings(family))
    assert torch.equal(family.scheduler.timesteps, timesteps)
    assert torch.equal(torch.get_rng_state(), random)
    assert vars(family).keys() == state.keys()
    assert all(vars(family)[key] is value for key, value in state.items())
    assert hooks(family) == before


def test_a_text_in_anothers_place_draws_the_others_picture(family: DiffusionPipeline) -> None:
    plain, other = latents(family, A), latents(family, B)
    given = conditioning(family, B, **settings(family))
    with replaced(family, given):
        assert torch.equal(latents(family, A), other)
    with replaced(family, {3: given}):  # beyond the last step
        assert torch.equal(latents(family, A), plain)
    with replaced(family, {1: given, 2: None}):
        between = latents(family, A)
    assert not torch.equal(between, plain)
    assert torch.equal(latents(family, A), plain)


def test_the_switch_is_at_its_step(family: DiffusionPipeline) -> None:
    given = conditioning(family, B, **settings(family))
    calls: list[Call] = []
    with watched(family, calls.append):
        latents(family, A)
    plain = calls.copy()
    calls.clear()
    # The watching hook is the inner one: it sees what the denoiser returned.
    with replaced(family, {2: given}), watched(family, calls.append):
        latents(family, A)
    same = [torch.equal(one.prediction, two.prediction) for one, two in zip(plain, calls, strict=True)]
    assert same == [True, True, False]


def test_the_negative_prompt_stays(pipe: StableDiffusionPipeline) -> None:
    given = conditioning(pipe, B, guidance_scale=3.0, negative_prompt="small")
    both = latents(pipe, B, negative_prompt="plain")
    with replaced(pipe, given):
        assert torch.equal(latents(pipe, A, negative_prompt="plain"), both)
    assert not torch.equal(both, latents(pipe, B))


def test_pipelines_without_text_are_refused() -> None:
    network = UNet2DModel(
        sample_size=8,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
    )
    with pytest.raises(InformationError, match="reads no prompt"):
        conditioning(DDPMPipeline(network, DDPMScheduler()), A)


def test_errors_of_the_call_come_out_and_the_pipeline_is_whole(pipe: StableDiffusionPipeline) -> None:
    scheduler = pipe.scheduler
    with pytest.raises(ValueError, match="height"):
        conditioning(pipe, A, height=63, width=64)
    assert pipe.scheduler is scheduler
    assert not adapter_for(pipe).denoiser(pipe)._forward_pre_hooks
    assert bool(latents(pipe, A).isfinite().all())
