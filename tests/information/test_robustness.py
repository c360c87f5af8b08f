"""Gains against the dense Jacobian, drift against the pipeline's own call with changed embeddings."""

import numpy as np
import pytest
import torch
import xarray as xr
from diffusers import StableDiffusionPipeline
from torch import Tensor

from denoscope.information.calls import Call, watched
from denoscope.information.conditioning import conditioning, predict
from denoscope.information.errors import InformationError
from denoscope.information.robustness import by_part, leading_direction, robustness
from denoscope.pipelines.errors import ModelError

PROMPT = "a red circle"
CALL: dict[str, object] = {"num_inference_steps": 3}


@pytest.fixture
def seen(pipe: StableDiffusionPipeline) -> list[Call]:
    """The calls of the generation that is measured."""
    found: list[Call] = []
    with watched(pipe, found.append):
        drawn(pipe)
    return found


def drawn(pipe: StableDiffusionPipeline, **more: object) -> Tensor:
    own = {"prompt": PROMPT, "guidance_scale": 1.0, "output_type": "latent", **CALL, **more}
    found: Tensor = pipe(generator=torch.Generator("cpu").manual_seed(0), **own).images
    return found


def dense(pipe: StableDiffusionPipeline, call: Call) -> tuple[Tensor, Tensor]:
    """The denoiser's output at a call's latents, and its Jacobian there."""
    given = conditioning(pipe, PROMPT, guidance_scale=1.0, **CALL)
    z = call.z.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        value = predict(pipe, z, call.timestep, given).flatten()
        rows = [torch.autograd.grad(one, z, retain_graph=True)[0].flatten() for one in value]
    return value.detach(), torch.stack(rows)


def test_gain_of_the_output_is_the_jacobian_along_the_direction(
    pipe: StableDiffusionPipeline, seen: list[Call]
) -> None:
    before = drawn(pipe)
    found = robustness(pipe, PROMPT, of="latent", size=1e-3, draws=2, num_inference_steps=3)
    assert torch.equal(drawn(pipe), before)
    noise = torch.Generator("cpu").manual_seed(0)
    for step, call in enumerate(seen):
        value, jacobian = dense(pipe, call)
        for draw, direction in enumerate(torch.randn(2, *call.z.shape[1:], generator=noise)):
            moved = jacobian @ direction.flatten() / direction.norm()
            expected = float(moved.norm() * call.z.norm() / value.norm())
            assert float(found.output_gain[draw, step]) == pytest.approx(expected, rel=0.02)


def test_adversarial_direction_is_the_leading_singular_vector(pipe: StableDiffusionPipeline, seen: list[Call]) -> None:
    call, given = seen[1], conditioning(pipe, PROMPT, guidance_scale=1.0, **CALL)

    def output(z: Tensor) -> Tensor:
        return predict(pipe, z, call.timestep, given)

    value, jacobian = dense(pipe, call)
    values, right = torch.linalg.svd(jacobian)[1:]
    start = torch.randn(1, *call.z.shape[1:], generator=torch.Generator().manual_seed(1))
    unit = leading_direction(output, call.z, start, 1e-3).flatten()
    assert float(unit.norm()) == pytest.approx(1, abs=1e-5)
    assert float((jacobian @ unit).norm()) > 0.95 * float(values[0])
    assert float((jacobian @ start.flatten()).norm() / start.norm()) < 0.7 * float(values[0])
    assert float((right[:3] @ unit).norm()) > 0.9
    found = robustness(pipe, PROMPT, of="latent", direction="adversarial", size=1e-3, draws=1, num_inference_steps=3)
    largest = float(values[0] * call.z.norm() / value.norm())
    assert 0.95 * largest < float(found.output_gain[0, 1]) < 1.02 * largest


def test_drift_is_that_of_a_call_with_changed_embeddings(pipe: StableDiffusionPipeline) -> None:
    size = 0.05
    found = robustness(pipe, PROMPT, of="prompt", size=size, draws=1, layers=["mid_block"], num_inference_steps=3)
    states = conditioning(pipe, PROMPT, guidance_scale=1.0, **CALL).states
    noise = torch.Generator("cpu").manual_seed(0)
    for _ in range(4):  # one direction a step, then that of the drift
        direction = torch.randn(1, *states.shape[1:], generator=noise)
    changed = states + size * states.norm() * direction / direction.norm()
    plain: list[Tensor] = []
    other: list[Tensor] = []
    with watched(pipe, lambda call: plain.append(call.z.clone())):
        drawn(pipe, prompt=None, prompt_embeds=states)
    with watched(pipe, lambda call: other.append(call.z.clone())):
        drawn(pipe, prompt=None, prompt_embeds=changed)
    for step in (1, 2):
        distance = float((other[step] - plain[step]).norm() / plain[step].norm()) / size
        assert float(found.drift[0, step]) == pytest.approx(distance, rel=1e-2)
    assert np.isnan(found.drift[0, 0])
    assert found.gain.sizes == {"draw": 1, "step": 3, "layer": 1}


def test_a_change_of_the_latents_arrives_as_it_is(pipe: StableDiffusionPipeline) -> None:
    found = robustness(pipe, PROMPT, of="latent", draws=3, num_inference_steps=3)
    assert np.allclose(found.drift[:, 1], 1, rtol=1e-4)


def test_what_cannot_be_measured_is_refused(pipe: StableDiffusionPipeline, exact_pipe: StableDiffusionPipeline) -> None:
    with pytest.raises(InformationError, match="between 0 and 1"):
        robustness(pipe, PROMPT, size=0)
    with pytest.raises(InformationError, match="at least one draw"):
        robustness(pipe, PROMPT, draws=0)
    with pytest.raises(ModelError, match="only knows captions"):  # it has words in the place of embeddings
        robustness(exact_pipe, PROMPT, draws=1, num_inference_steps=2)
    found = robustness(exact_pipe, PROMPT, of="latent", draws=2, num_inference_steps=3)
    assert found.sizes["layer"] == 0
    assert bool(np.isfinite(found.output_gain).all())


def test_rows_are_geometric_means_with_students_interval() -> None:
    gain = np.exp(np.array([[[0.0], [2.0]], [[2.0], [4.0]]]))  # (draw, step, layer)
    found = xr.Dataset(
        {
            "gain": (("draw", "step", "layer"), gain),
            "output_gain": (("draw", "step"), gain[..., 0]),
            "drift": (("draw", "step"), np.array([[np.nan, 3.0], [np.nan, 3.0]])),
        },
        {"layer": ["mid"], "logsnr": ("step", [-1.0, 1.0])},
    )
    mid, output, drift = by_part(found)
    assert mid.part == "mid"
    assert mid.mean == pytest.approx(np.exp(2))
    reach = 6.3138 * np.sqrt(2) / np.sqrt(2)  # t(.95; 1) times the error of two draws at 1 and 3
    assert np.log([mid.low, mid.high]) == pytest.approx([2 - reach, 2 + reach], rel=1e-4)
    assert (mid.greatest, mid.at) == pytest.approx((np.exp(3), 1.0))
    assert output[1:] == mid[1:]
    assert drift[1:] == pytest.approx((3, 3, 3, 3, 1))
