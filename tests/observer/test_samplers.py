"""Samplers that call the denoiser twice for a level, keep earlier answers, or add noise of their own."""

from functools import partial

import pytest
from diffusers import (
    DiffusionPipeline,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    HeunDiscreteScheduler,
    KDPM2AncestralDiscreteScheduler,
    LMSDiscreteScheduler,
    PNDMScheduler,
    SchedulerMixin,
    UniPCMultistepScheduler,
)
from family_calls import call
from family_layouts import LAYOUTS
from held_against import check_words
from tiny_families import loaded, saved

FLOW = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DiffusionPipeline]:
    folder = tmp_path_factory.mktemp("families")
    return {name: loaded(name, saved(name, folder / name)) for name in ("sd", "sd3", "flux")}


@pytest.mark.parametrize(
    ("family", "sampler", "calls"),
    [
        ("sd", HeunDiscreteScheduler(), 3),  # all levels twice but the last
        ("sd", KDPM2AncestralDiscreteScheduler(), 3),
        ("sd", DPMSolverMultistepScheduler(), 2),
        ("sd", DPMSolverMultistepScheduler(algorithm_type="sde-dpmsolver++", use_karras_sigmas=True), 2),
        ("sd", EulerAncestralDiscreteScheduler(), 2),
        ("sd", UniPCMultistepScheduler(), 2),
        ("sd", LMSDiscreteScheduler(), 2),
        ("sd", PNDMScheduler(skip_prk_steps=True), 3),  # one level more to begin with
        ("sd3", FlowMatchHeunDiscreteScheduler(), 3),
        ("sd3", DPMSolverMultistepScheduler(**FLOW), 2),
        ("flux", DPMSolverMultistepScheduler(**FLOW, use_dynamic_shifting=True, time_shift_type="exponential"), 2),
        ("flux", UniPCMultistepScheduler(**FLOW), 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SchedulerMixin) else str(value),
)
def test_every_call_is_a_step_and_is_seen_rightly(
    family: str, sampler: SchedulerMixin, calls: int, families: dict[str, DiffusionPipeline]
) -> None:
    pipe = families[family]
    pipe.scheduler = sampler
    draw = partial(call, family, pipe)
    check_words(pipe, draw, LAYOUTS[family], steps=calls)
