"""Objectives against what normal data says in closed form."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from denoscope.schedules import NoiseSchedule, PredictionType, convert_prediction
from denoscope.schedules.continuous import linear as linear_in_time
from denoscope.schedules.continuous import log_linear
from denoscope.training.draws import Draws
from denoscope.training.objectives import Objective, ddpm, edm, flow, learned_variance, min_snr, p2, score

SCHEDULES = {"linear": NoiseSchedule.linear(), "cosine": NoiseSchedule.cosine()}


def silent(z: Tensor, t: Tensor) -> Tensor:
    return torch.zeros_like(z)


def mean_loss(objective: Objective, network: Callable[..., Tensor], std: float = 1.0, n: int = 2000) -> float:
    generator = torch.Generator().manual_seed(0)
    clean = std * torch.randn(n, 200, generator=generator)
    return float(objective(network, clean, Draws.of(n)).mean())


@pytest.mark.parametrize(("name", "floor"), [("linear", 0.27551), ("cosine", 0.49558)])
def test_bayes_loss_of_epsilon_on_standard_normal_data(name: str, floor: float) -> None:
    schedule = SCHEDULES[name]

    def exact(z: Tensor, t: Tensor) -> Tensor:
        return z * schedule.sigma[t].float()[:, None]  # E[ε | z] for x0 ~ N(0, 1)

    assert mean_loss(ddpm(schedule), exact) == pytest.approx(floor, abs=2e-3)
    # By the formula of the floor, s = ½: mean of ᾱs²/(ᾱs² + 1 − ᾱ).
    kept = schedule.alphas_cumprod * 0.25
    wanted = float((kept / (kept + 1 - schedule.alphas_cumprod)).mean())

    def exact_half(z: Tensor, t: Tensor) -> Tensor:
        power = schedule.alphas_cumprod[t] * 0.25 + 1 - schedule.alphas_cumprod[t]
        return z * (schedule.sigma[t] / power).float()[:, None]

    assert mean_loss(ddpm(schedule), exact_half, std=0.5) == pytest.approx(wanted, abs=2e-3)


def test_what_a_silent_network_loses() -> None:
    assert mean_loss(ddpm(SCHEDULES["linear"]), silent) == pytest.approx(1, abs=5e-3)
    assert mean_loss(ddpm(SCHEDULES["cosine"], "v_prediction"), silent) == pytest.approx(1, abs=5e-3)
    assert mean_loss(edm(sigma_data=0.5), silent, std=0.5) == pytest.approx(1, abs=5e-3)
    assert mean_loss(flow(), silent) == pytest.approx(2, abs=1e-2)  # ε − x0 has variance 1 + 1
    assert mean_loss(score(linear_in_time()), silent) == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("kind", ["epsilon", "sample", "v_prediction", "flow_prediction"])
def test_min_snr_makes_every_prediction_the_same_loss(kind: PredictionType) -> None:
    """A network whose x0 is off by a constant: min(SNR, 5) times its square, however it says it."""
    schedule, off = SCHEDULES["cosine"], 0.1

    def network(z: Tensor, t: Tensor) -> Tensor:

        return convert_prediction(
            torch.full_like(z, 0.3 + off), "sample", kind, z, schedule.alpha[t], schedule.sigma[t]
        )

    clean = torch.full((1000, 4), 0.3)
    weighted = ddpm(schedule, kind, min_snr(5.0, kind))
    found = float(weighted(network, clean.double(), Draws.of(len(clean))).mean())
    wanted = float(schedule.logsnr.exp().clamp(max=5).mean()) * off**2
    assert found == pytest.approx(wanted, rel=2e-2)


def test_p2_weight() -> None:
    logsnr = torch.tensor([-2.0, 0.0, 3.0])
    assert p2(k=1.0, gamma=0.5)(logsnr).tolist() == pytest.approx([(1 + math.exp(x)) ** -0.5 for x in logsnr.tolist()])


def test_likelihood_weighting_measures_nats() -> None:
    """With the exact ε̂ of N(0, 1) data, E(ε − ε̂)² = ᾱ, and ½·∫ ᾱ dλ over logsnr λ is ½·[log(1 + e^λ)]."""
    schedule = log_linear(0.01, 100.0, family="vp")

    def exact(z: Tensor, t: Tensor) -> Tensor:
        return z * schedule.alpha_sigma(t.double() / 1000)[1].float()[:, None]

    ends = schedule.logsnr(torch.tensor([1e-5, 1 - 1e-5]))
    wanted = 0.5 * float(torch.nn.functional.softplus(ends[0]) - torch.nn.functional.softplus(ends[1])) * 200
    assert mean_loss(score(schedule, "likelihood"), exact, n=5000) == pytest.approx(wanted, rel=1e-2)


def test_learned_variance() -> None:
    schedule = NoiseSchedule.linear()

    def network(share: float) -> Callable[[Tensor, Tensor], Tensor]:
        def said(z: Tensor, t: Tensor) -> Tensor:
            return torch.cat([torch.zeros_like(z), torch.full_like(z, share)], dim=1)

        return said

    def bound(share: float) -> float:
        clean = torch.zeros(1000, 10)
        losses = learned_variance(schedule, vlb_weight=1.0)(network(share), clean, Draws.of(len(clean)))
        return (float(losses.mean()) - 1) / 1000

    # x0 = 0: what is off is ε itself, with variance 1, so the best Σ for each step is β̃ + scale², in closed form.
    remaining, betas = schedule.alphas_cumprod, schedule.betas
    before = torch.cat([torch.ones(1).double(), remaining[:-1]])
    small = betas * (1 - before) / (1 - remaining)
    small[0] = small[1]
    scale = betas / ((1 - remaining).sqrt() * (1 - betas).sqrt())
    for share, power in ((-1.0, small), (1.0, betas)):
        wanted = 0.5 * (power.log() - small.log() + small / power + scale**2 / power - 1)
        assert bound(share) == pytest.approx(float(wanted.mean()), rel=5e-2)

    with pytest.raises(ValueError, match="6 output channels, not 3"):
        learned_variance(schedule)(silent, torch.zeros(2, 3, 4, 4), Draws.of(2))


def test_the_bound_does_not_teach_epsilon() -> None:
    schedule = NoiseSchedule.linear()
    weight = torch.zeros(2, requires_grad=True)

    def network(z: Tensor, t: Tensor) -> Tensor:
        return torch.cat([z * weight[0], z * 0 + weight[1]], dim=1)

    clean = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    grads = []
    for factor in (0.0, 1.0):
        losses = learned_variance(schedule, factor)(network, clean, Draws.of(len(clean)))
        grads.append(torch.autograd.grad(losses.mean(), weight)[0])
    assert float(grads[0][0]) == pytest.approx(float(grads[1][0]))
    assert float(grads[0][1]) == 0
    assert float(grads[1][1]) != 0


def test_times_of_flow_matching() -> None:
    told: list[Tensor] = []

    def network(z: Tensor, t: Tensor) -> Tensor:
        told.append(t / 1000)
        return torch.zeros_like(z)

    for objective in (flow(), flow(shift=3.0), flow("logit_normal")):
        objective(network, torch.zeros(4000, 1), Draws.of(4000))
    assert float(told[0].median()) == pytest.approx(0.5, abs=0.01)
    assert float(told[1].median()) == pytest.approx(0.75, abs=0.01)  # 3·½/(1 + 2·½)
    logits = torch.logit(told[2].double())
    assert float(logits.mean()) == pytest.approx(0, abs=0.01)
    assert float(logits.std()) == pytest.approx(1, abs=0.01)


def test_a_batch_covers_all_levels() -> None:
    for n in (1, 7, 64):
        drawn = Draws.of(n, seed=n).stratified()
        assert sorted((drawn * n).long().tolist()) == list(range(n))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="zero terminal SNR"):
        ddpm(NoiseSchedule.cosine().zero_terminal_snr())
    ddpm(NoiseSchedule.cosine().zero_terminal_snr(), "v_prediction")
    with pytest.raises(ValueError, match="shift"):
        flow(shift=0.0)
    with pytest.raises(ValueError, match="unknown distribution"):
        flow("normal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"shape \(2, 3\) where \(2, 4\)"):
        ddpm(NoiseSchedule.linear())(lambda z, t: z[:, :3], torch.zeros(2, 4), Draws.of(2))
