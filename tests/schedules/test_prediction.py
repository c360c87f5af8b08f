"""Predictions in one another's words, against known x0 and ε and against diffusers."""

import math
from itertools import permutations
from typing import Protocol, get_args

import diffusers
import pytest
import torch
from torch import Tensor

from denoscope.schedules import NoiseSchedule, PredictionType, convert_prediction, min_snr_weight, q_sample


class Scheduler(Protocol):
    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor: ...
    def get_velocity(self, sample: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor: ...


CLASS_NAME = "DDPMScheduler"
TYPES: tuple[PredictionType, ...] = get_args(PredictionType)


def case(vp: bool) -> tuple[Tensor, Tensor, dict[PredictionType, Tensor]]:
    """Levels (B,) of alpha and sigma, and all four predictions of the same known truth, float64."""
    generator = torch.Generator().manual_seed(0)
    clean, noise = torch.randn(2, 3, 2, 4, 4, generator=generator, dtype=torch.float64)
    sigma = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    alpha = (1 - sigma**2).sqrt() if vp else 1 - sigma
    a, s = alpha[:, None, None, None], sigma[:, None, None, None]
    return (
        alpha,
        sigma,
        {
            "epsilon": noise,
            "sample": clean,
            "v_prediction": a * noise - s * clean,
            "flow_prediction": noise - clean,
        },
    )


@pytest.mark.parametrize("vp", [True, False], ids=["variance preserving", "flow matching"])
@pytest.mark.parametrize(("from_", "to"), list(permutations(TYPES, 2)))
def test_every_prediction_follows_from_every_other(from_: PredictionType, to: PredictionType, vp: bool) -> None:
    alpha, sigma, truth = case(vp)
    z = q_sample(truth["sample"], truth["epsilon"], alpha, sigma)
    found = convert_prediction(truth[from_], from_, to, z, alpha, sigma)
    torch.testing.assert_close(found, truth[to], rtol=1e-9, atol=1e-9)
    single = convert_prediction(truth[from_][:1], from_, to, z[:1], float(alpha[0]), float(sigma[0]))
    torch.testing.assert_close(single, truth[to][:1], rtol=1e-9, atol=1e-9)


def test_noise_and_velocity_as_in_diffusers() -> None:
    schedule = NoiseSchedule.cosine()
    scheduler: Scheduler = getattr(diffusers, CLASS_NAME)(beta_schedule="squaredcos_cap_v2")
    steps = torch.tensor([0, 10, 500, 999])
    clean, noise = torch.randn(2, 4, 3, 5, 5)
    alpha, sigma = schedule.alpha[steps], schedule.sigma[steps]
    z = q_sample(clean, noise, alpha, sigma)
    torch.testing.assert_close(z, scheduler.add_noise(clean, noise, steps), atol=1e-5, rtol=1e-5)
    v = convert_prediction(clean, "sample", "v_prediction", z, alpha, sigma)
    torch.testing.assert_close(v, scheduler.get_velocity(clean, noise, steps), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_samples_still_get_their_noise(dtype: torch.dtype) -> None:
    # In bfloat16 this alpha rounds to 1: only the arithmetic must not happen there.
    schedule = NoiseSchedule.cosine()
    clean, noise = torch.zeros(1, 8).to(dtype), torch.ones(1, 8).to(dtype)
    z = q_sample(clean, noise, schedule.alpha[:1], schedule.sigma[:1])
    assert z.dtype == dtype
    assert float(z[0, 0]) == pytest.approx(float(schedule.sigma[0]), rel=4e-3)
    x0 = convert_prediction(noise, "epsilon", "sample", z, schedule.alpha[:1], schedule.sigma[:1])
    assert x0.dtype == dtype


def test_what_does_not_follow_is_refused() -> None:
    z = torch.randn(2, 3)
    with pytest.raises(ValueError, match="no signal"):
        convert_prediction(z, "epsilon", "sample", z, torch.tensor([0.5, 0.0]), torch.tensor([0.5, 1.0]))
    with pytest.raises(ValueError, match="no noise"):
        convert_prediction(z, "sample", "epsilon", z, 1.0, 0.0)
    # v and ε − x0 tell both at both ends.
    for words in ("v_prediction", "flow_prediction"):
        for alpha in (0.0, 1.0):
            for to in TYPES:
                assert convert_prediction(z, words, to, z, alpha, 1 - alpha).isfinite().all()


def test_unknown_names_are_refused() -> None:
    z = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="unknown prediction type 'score'"):
        convert_prediction(z, "score", "sample", z, 0.5, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown prediction type 'score'"):
        min_snr_weight(z, 5.0, "score")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gamma"):
        min_snr_weight(z, 0.0, "sample")


def test_weights_make_all_predictions_the_same_loss() -> None:
    alpha, sigma, truth = case(vp=True)
    logsnr = 2 * (alpha.log() - sigma.log())
    z = q_sample(truth["sample"], truth["epsilon"], alpha, sigma)
    guess = truth["sample"] + torch.randn(truth["sample"].shape, dtype=torch.float64)
    losses = []
    for words in TYPES:
        error = convert_prediction(guess, "sample", words, z, alpha, sigma) - truth[words]
        losses.append(min_snr_weight(logsnr, 5.0, words) * error.square().mean((1, 2, 3)))
    wanted = torch.tensor([min(math.exp(x), 5.0) for x in logsnr]) * (guess - truth["sample"]).square().mean((1, 2, 3))
    for loss in losses:
        torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("words", TYPES)
def test_weights_are_finite_at_both_ends(words: PredictionType) -> None:
    ends = torch.tensor([-math.inf, -200.0, 200.0, math.inf])
    weights = min_snr_weight(ends, 5.0, words)
    if words in ("v_prediction", "flow_prediction"):
        assert weights.tolist() == pytest.approx([0, 0, 0, 0])
    else:
        assert weights.tolist() == pytest.approx([1, 1, 0, 0] if words == "epsilon" else [0, 0, 5, 5])
