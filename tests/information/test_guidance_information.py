"""Information from one generation: against the exact posterior, finite differences, and the picture unwatched."""

import copy
import math

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline
from numpy.typing import NDArray
from scipy.integrate import trapezoid

from benchmarks.slot_worlds import SlotShapes, slot_pipeline
from denoscope.data.worlds.shapes.captions import parse
from denoscope.data.worlds.shapes.exact import conditions
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, SIZES, VALUES, table
from denoscope.information.calls import Call, watched
from denoscope.information.conditioning import conditioning, predict
from denoscope.information.errors import InformationError
from denoscope.information.gradient_flow import gradient_flow
from denoscope.information.guidance_information import pointwise_information, truncated_logistic, word_information
from denoscope.information.leaving_out import without, words_of
from denoscope.information.levels import uniform_timesteps
from denoscope.observer import ObserveError

PROMPT = "a small striped red circle on the left"


@pytest.fixture(scope="module")
def exact() -> tuple[StableDiffusionPipeline, SlotShapes]:
    return slot_pipeline("pooled")


def drawn(pipe: StableDiffusionPipeline, prompt: str, seed: int, **call: object) -> bytes:
    out = pipe(prompt=prompt, generator=torch.Generator("cpu").manual_seed(seed), output_type="np", **call)
    picture: NDArray[np.uint8] = np.rint(out.images[0] * 255).astype(np.uint8)
    return picture.tobytes()


def test_rates_are_those_of_the_exact_denoiser(exact: tuple[StableDiffusionPipeline, SlotShapes]) -> None:
    """½·SNR·‖x̂₀(all) − x̂₀(rest)‖², by the world's closed form at the latents of each step; the sum by trapezoid."""
    pipe, world = exact
    timesteps = uniform_timesteps(pipe.scheduler, 12, -6, 2)
    found = word_information(pipe, PROMPT, ["small"], seed=2, timesteps=timesteps)
    seen: list[Call] = []
    with watched(pipe, seen.append):
        drawn(pipe, PROMPT, 2, guidance_scale=1.0, timesteps=timesteps)
    texts = [conditions([parse(text)], torch.float64) for text in (PROMPT, "a striped red circle on the left")]
    rates = []
    for call in seen:
        every, rest = (world.denoise(call.z, call.level.logsnr, given) for given in texts)
        rates.append(math.exp(call.level.logsnr) / 2 * (every - rest)[0].square().sum(0).numpy())
    assert np.allclose(found.rate[0], rates, rtol=1e-3, atol=1e-5)
    sums = np.sum(rates, axis=(1, 2))
    levels = found.logsnr.values
    assert float(found.total[0]) == pytest.approx(float(trapezoid(sums, levels)), rel=1e-3)
    assert float(found.injected.sum()) == pytest.approx(float(found.total[0]))
    assert float(found.written[0, 5].sum()) == pytest.approx(float(trapezoid(sums[:6], levels[:6])), rel=1e-3)
    assert found.rate.dims == ("word", "step", "y", "x")
    assert found.attrs["quantity"] == "information"


@pytest.mark.parametrize("how", ["omit", "mask", "neutral"])
def test_ways_of_leaving_out_agree_where_words_stand_alone(
    exact: tuple[StableDiffusionPipeline, SlotShapes], how: str
) -> None:
    pipe, _ = exact
    found = word_information(
        pipe,
        PROMPT,
        ["small", "red"],
        how=how,  # type: ignore[arg-type]
        neutral={"small": "the", "red": "the"},
        num_inference_steps=6,
    )
    plain = word_information(pipe, PROMPT, ["small", "red"], num_inference_steps=6)
    assert found.word.values.tolist() == ["small", "red"]
    assert np.allclose(found.rate, plain.rate)
    assert float(plain.total.min()) > 0.05


def test_the_picture_is_the_one_unwatched(pipe: StableDiffusionPipeline) -> None:
    random = torch.get_rng_state()
    call = {"num_inference_steps": 3, "guidance_scale": 4.0, "eta": 1.0, "negative_prompt": "small"}
    found = word_information(pipe, "a red circle above a red square", gradient=True, seed=3, **call)  # type: ignore[arg-type]
    assert found.word.values.tolist() == ["a", "red", "circle", "above", "a#2", "red#2", "square"]
    assert found.picture.values.tobytes() == drawn(pipe, "a red circle above a red square", 3, **call)
    assert torch.equal(torch.get_rng_state(), random)
    assert found.attrs["quantity"] == "guidance effort"
    assert all(weight.grad is None for weight in pipe.unet.parameters())
    assert found.gradient.shape == (7, 3)
    assert float(found.gradient.min()) > 0


def test_effort_is_the_squared_scale(pipe: StableDiffusionPipeline) -> None:
    def first(scale: float) -> float:
        found = word_information(pipe, "a red circle", ["red"], guidance_scale=scale, num_inference_steps=2)
        return float(found.rate.isel(step=0).sum())  # the latents of the first step are the same

    assert first(3.0) == pytest.approx(9 * first(1.0), rel=1e-3)


def test_gradients_are_finite_differences(loaded_pipe: StableDiffusionPipeline) -> None:
    pipe = copy.deepcopy(loaded_pipe).to(torch.float64)
    given = conditioning(pipe, "a red circle", guidance_scale=1.0)
    word = words_of(pipe, "a red circle", ["red"])[0]
    generator = torch.Generator().manual_seed(0)
    z, direction = torch.randn(2, 1, 4, 8, 8, generator=generator, dtype=torch.float64)
    for towards in (None, direction):
        slopes = []
        for column in word.positions:
            for feature in range(given.states.shape[2]):
                ends = []
                for sign in (1, -1):
                    states = given.states.clone()
                    states[0, column, feature] += sign * 1e-5
                    with torch.no_grad():
                        out = predict(pipe, z, 500, given.with_states(states))
                    ends.append(float(out.square().sum() / 2 if towards is None else (out * towards).sum()))
                slopes.append((ends[0] - ends[1]) / 2e-5)
        right = float(np.linalg.norm(slopes))
        assert float(gradient_flow(pipe, z, 500, given, [word.positions], towards)[0]) == pytest.approx(right, rel=1e-5)


def test_pointwise_information_is_the_log_ratio(exact: tuple[StableDiffusionPipeline, SlotShapes]) -> None:
    """A striped red circle's picture decides its size, so log p(x | small) − log p(x) is log 2 for a small one."""
    pipe, world = exact
    rows = table("whole")
    mine = [VALUES["colour"].index("red"), 0, SIZES.index("small"), 1]
    own = np.flatnonzero((rows[:, : len(ATTRIBUTES)] == mine).all(1))
    clean = world.templates["whole"][0, own].reshape(-1, *world.shape)
    call = {"n": 128, "location": -2.5, "scale": 1.0, "span": (-12.0, 5.0)}
    right = pointwise_information(pipe, clean, "a small striped red circle", "a striped red circle", **call)  # type: ignore[arg-type]
    assert float(right.standard.mean()) == pytest.approx(math.log(2), abs=0.2)
    assert float(right.orthogonal.mean()) == pytest.approx(math.log(2), abs=0.2)
    assert float(right.orthogonal.min()) >= 0
    assert float(right.orthogonal_error.mean()) < float(right.standard_error.mean())
    wrong = pointwise_information(pipe, clean, "a large striped red circle", "a striped red circle", **call)  # type: ignore[arg-type]
    assert float(wrong.standard.max()) < 0


def test_levels_have_their_density() -> None:
    shares = (np.arange(20000) + 0.5) / 20000
    points, density = truncated_logistic(shares, -1.0, 1.5, -5.4, 7.1)
    assert points.min() >= -5.4
    assert points.max() <= 7.1
    assert (1 / density).mean() == pytest.approx(7.1 + 5.4, rel=1e-3)  # the integral of 1
    assert (points**2 / density).mean() == pytest.approx((7.1**3 + 5.4**3) / 3, rel=2e-3)


def test_bad_questions_are_refused(pipe: StableDiffusionPipeline) -> None:
    with pytest.raises(ObserveError, match="'blue' is not in the prompt"):
        word_information(pipe, "a red circle", ["blue"])
    with pytest.raises(InformationError, match="no neutral substitute"):
        word_information(pipe, "a red circle", ["red"], how="neutral")
    given = conditioning(pipe, "a red circle")
    word = words_of(pipe, "a red circle", ["red"])[0]
    with pytest.raises(InformationError, match="omit, mask, neutral"):
        without(pipe, given, word, "forget")  # type: ignore[arg-type]
    with pytest.raises(InformationError, match=r"-5.36 to 7.07"):
        pointwise_information(pipe, torch.zeros(1, 4, 8, 8), "a red circle", span=(-12.0, 5.0))
    with pytest.raises(InformationError, match="at least 2"):
        pointwise_information(pipe, torch.zeros(1, 4, 8, 8), "a red circle", n=1)
