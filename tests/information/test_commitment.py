"""Commitment by switching prompts: known curves, the exact model, and agreement of times."""

from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch
import xarray as xr
from diffusers import StableDiffusionPipeline
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import kendalltau, spearmanr
from sklearn.linear_model import LogisticRegression

from benchmarks.slot_worlds import SlotShapes, slot_pipeline
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, SIZES, VALUES, table
from denoscope.information.agreement import agreement
from denoscope.information.commitment import Judge, commitment, commitment_time, fit_logistic
from denoscope.information.conditioning import Conditioning, conditioning, replaced
from denoscope.information.errors import InformationError
from denoscope.information.levels import uniform_timesteps
from denoscope.information.path_posterior import path_posterior

PROMPTS = ("a small striped red circle on the left", "a large striped red circle on the left")
REST = "a striped red circle on the left"


def test_the_fit_is_maximum_likelihood() -> None:
    rng = np.random.default_rng(0)
    logsnr = np.repeat(np.linspace(-6, 2, 12), 64)
    shown = (rng.random(len(logsnr)) < expit((logsnr + 2.3) / 0.7)).astype(float)
    right = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(logsnr[:, None], shown)
    middle, width = fit_logistic(logsnr, shown)
    assert middle == pytest.approx(-right.intercept_[0] / right.coef_[0, 0], abs=1e-3)
    assert width == pytest.approx(1 / right.coef_[0, 0], rel=1e-3)
    assert middle == pytest.approx(-2.3, abs=0.2)
    shown[:3] = np.nan
    assert fit_logistic(logsnr, shown)[0] == pytest.approx(middle, abs=0.05)


@pytest.mark.parametrize("shown", [[0, 0, 0], [1, 1, 1], [1, 0, 0]])
def test_no_time_where_there_is_none(shown: list[int]) -> None:
    assert np.isnan(fit_logistic([-1, 0, 1], shown)).all()


def test_the_interval_covers_and_a_prior_for_one_word_cancels() -> None:
    rng = np.random.default_rng(3)
    logsnr = np.linspace(-6, 2, 12)
    hits = 0
    for _ in range(16):
        # What begins with the second word is committed later by as much as the first is earlier.
        chances = expit((logsnr[None, :, None] + 2 + np.array([0.5, -0.5])[:, None, None]) / 0.6)
        first = (rng.random((2, 12, 32)) < chances).astype(float)
        found = xr.Dataset({"first": (("direction", "point", "seed"), first)}, coords={"logsnr": ("point", logsnr)})
        time = commitment_time(found, resamples=40)
        hits += time.low <= -2 <= time.high
        assert abs(time.time + 2) < 0.5
    assert hits >= 11  # of 16, at 90 %


def test_chance_is_counted() -> None:
    rng = np.random.default_rng(1)
    logsnr = np.repeat(np.linspace(-6, 2, 12), 200)
    shown = (rng.random(len(logsnr)) < 0.5 + 0.5 * expit((logsnr + 2) / 0.5)).astype(float)
    assert fit_logistic(logsnr, shown, 0.5)[0] == pytest.approx(-2, abs=0.25)
    assert fit_logistic(logsnr, shown)[0] < -3


@pytest.fixture(scope="module")
def exact() -> tuple[StableDiffusionPipeline, SlotShapes]:
    return slot_pipeline("pooled")


def nearest(world: SlotShapes) -> Judge:
    """Which size the nearest of the allowed templates has; pictures are cut to [0, 1], so templates are as well."""
    rows = table("whole")
    named = [VALUES["colour"].index("red"), 0, -1, VALUES["texture"].index("striped")]
    allowed = np.flatnonzero(np.all([rows[:, i] == index for i, index in enumerate(named) if index >= 0], axis=0))
    maps = world.templates["whole"][:, allowed].reshape(2, len(allowed), *world.shape)
    cut = (maps / 2 + 0.5).clamp(0, 1).permute(0, 1, 3, 4, 2).reshape(2 * len(allowed), -1).numpy()
    sizes = [SIZES[index] for index in rows[np.tile(allowed, 2), ATTRIBUTES.index("size")]]

    def judge(pictures: NDArray[np.uint8]) -> list[str | None]:
        held = pictures.reshape(len(pictures), 1, -1) / 255
        return [sizes[index] for index in np.abs(held - cut).sum(-1).argmin(1)]

    return judge


def test_without_the_word_the_exact_model_shows_what_the_latents_hold(
    exact: tuple[StableDiffusionPipeline, SlotShapes],
) -> None:
    pipe, world = exact
    steps = uniform_timesteps(pipe.scheduler, 24, -6, 2)
    found = commitment(
        pipe,
        PROMPTS,
        ("small", "large"),
        nearest(world),
        seeds=range(32),
        points=3,
        span=(-5, 0),
        neutral=REST,
        chance=0.5,
        guidance_scale=1.0,
        timesteps=steps,
    )
    assert found["first"].dims == ("direction", "point", "seed")
    beliefs = path_posterior(pipe, PROMPTS, seeds=range(32), timesteps=steps, keep_latents=True)
    for point, step in enumerate(found.step.values):
        z = torch.from_numpy(beliefs.latents.values[:, step])
        held = world.belief(z, float(found.logsnr[point]), "size", REST).numpy()
        own = np.where(beliefs.intended.values == PROMPTS[0], held[:, 0], held[:, 1])
        error = (own * (1 - own)).sum() ** 0.5 / len(own)
        assert float(found.share[:, point].mean()) == pytest.approx(float(own.mean()), abs=3 * error + 0.02)
    time = commitment_time(found, resamples=20)
    assert -4.5 < time.time < -0.5


def test_the_exact_model_obeys_to_the_end(exact: tuple[StableDiffusionPipeline, SlotShapes]) -> None:
    pipe, world = exact
    found = commitment(
        pipe,
        PROMPTS,
        ("small", "large"),
        nearest(world),
        seeds=range(4),
        points=2,
        span=(-5, -1),
        guidance_scale=1.0,
        num_inference_steps=20,
    )
    assert float(found["first"].max()) == 0
    assert np.isnan(commitment_time(found).time)


def test_what_neither_shows_is_not_told(pipe: StableDiffusionPipeline) -> None:
    def judge(pictures: NDArray[np.uint8]) -> list[str | None]:
        assert pictures.shape == (3, 64, 64, 3)
        return ["green", None, "red"]

    call = {"seeds": [0, 1, 2], "points": 2, "num_inference_steps": 4, "guidance_scale": 2.0}
    found = commitment(pipe, ("a red circle", "a blue circle"), ("red", "blue"), judge, **call)  # type: ignore[arg-type]
    assert np.isnan(found["first"][:, :, :2]).all()
    assert found["first"][:, :, 2].values.tolist() == [[1, 1], [0, 0]]
    with pytest.raises(InformationError, match="no picture was told"):
        commitment_time(found.isel(seed=[0, 1]))
    with pytest.raises(InformationError, match="at least two steps"):
        commitment(pipe, ("a red circle", "a blue circle"), ("red", "blue"), judge, num_inference_steps=2)


def test_agreement_is_that_of_scipy_and_the_better_predictor_wins() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(-3, 1, 24)
    clusters = [f"context {i % 6}" for i in range(24)]
    near, far = truth + rng.normal(0, 0.2, 24), rng.normal(-3, 1, 24)
    gone = near.copy()
    gone[3] = np.nan
    times = {"t50": gone, "attention": far, "constant": np.full(24, -3.0)}
    found = agreement(times, truth, clusters, resamples=200)
    kept = np.arange(24) != 3
    assert found.attrs == {"cells": 23, "clusters": 6}
    assert found.spearman.values[0] == pytest.approx(spearmanr(near[kept], truth[kept]).statistic)
    assert found.kendall.values[1] == pytest.approx(kendalltau(far[kept], truth[kept]).statistic)
    assert np.isnan(found.spearman.values[2])
    assert found.distance.values[2] == pytest.approx(np.abs(truth[kept] + 3).mean())
    assert found.spearman_low[0] > found.spearman_high[1]
    assert bool((found.distance_low <= found.distance_high).all())
    with pytest.raises(InformationError, match="as many times"):
        agreement({"t50": truth[:5]}, truth, clusters)
    with pytest.raises(InformationError, match="at least 2 clusters"):
        agreement({"t50": truth}, truth, ["one"] * 24)


def test_the_step_that_is_told_is_the_first_of_the_other_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = slot_pipeline()
    switched: list[int] = []

    def heard(pipe: StableDiffusionPipeline, schedule: dict[int, Conditioning | None]) -> AbstractContextManager[None]:
        switched.extend(schedule)
        return replaced(pipe, schedule)

    monkeypatch.setattr("denoscope.information.commitment.replaced", heard)
    found = commitment(
        pipe,
        PROMPTS,
        ("small", "large"),
        lambda pictures: [None] * len(pictures),
        seeds=[0],
        points=2,
        num_inference_steps=6,
        guidance_scale=1.0,
    )
    assert switched == [*found["step"].values] * 2
    levels = conditioning(pipe, PROMPTS[0], num_inference_steps=6, guidance_scale=1.0).levels
    np.testing.assert_allclose(found["logsnr"], np.array(levels)[switched[:2]])
