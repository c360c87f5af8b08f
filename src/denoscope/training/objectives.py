"""What a denoiser is trained to minimise: one loss a sample, for every family of diffusion model.

An objective is a function ``objective(network, clean, draws, **cond) → (B,)``; whoever trains takes the mean.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor

from denoscope.schedules import (
    ContinuousSchedule,
    NoiseSchedule,
    PredictionType,
    convert_prediction,
    min_snr_weight,
    q_sample,
)
from denoscope.training.draws import Draws

Network = Callable[..., Tensor]
"""Called as ``network(z, timesteps, **cond)``."""

Weight = Callable[[Tensor], Tensor]
"""A sample's weight, by its logsnr, both ``(B,)``."""


class Objective(Protocol):
    """A loss for each sample of a batch."""

    def __call__(self, network: Network, clean: Tensor, draws: Draws, **cond: Tensor) -> Tensor:
        """Losses ``(B,)`` for clean samples ``(B, …)``; what is random comes from ``draws``."""


def ddpm(
    schedule: NoiseSchedule, prediction_type: PredictionType = "epsilon", weight: Weight | None = None
) -> Objective:
    """Squared error of a prediction at a timestep drawn uniformly (Ho et al. 2020, eq. 14; Salimans & Ho 2022 for v).

    Raises :class:`ValueError` for ε at zero terminal SNR, where there is nothing to learn from it.

    >>> silent = lambda z, t: torch.zeros_like(z)
    >>> losses = ddpm(NoiseSchedule.linear())(silent, torch.zeros(4, 1000), Draws.of(4))
    >>> losses.shape, round(float(losses.mean()))
    (torch.Size([4]), 1)
    """
    if prediction_type == "epsilon" and schedule.alphas_cumprod[-1] == 0:
        raise ValueError("epsilon can't be learnt at zero terminal SNR: it is the input there; predict v or x0")

    def objective(network: Network, clean: Tensor, draws: Draws, **cond: Tensor) -> Tensor:
        t = (draws.stratified() * len(schedule)).long().clamp(max=len(schedule) - 1)
        alpha, sigma, logsnr = (
            table[t].to(clean.device) for table in (schedule.alpha, schedule.sigma, schedule.logsnr)
        )
        noise = draws.noise(clean)
        z = q_sample(clean, noise, alpha, sigma)
        wanted = _target(prediction_type, clean, noise, z, alpha, sigma)
        losses = squared_error(network(z, t.to(clean.device), **cond), wanted)
        return losses if weight is None else losses * weight(logsnr).to(losses)

    return objective


def min_snr(gamma: float = 5.0, prediction_type: PredictionType = "epsilon") -> Weight:
    """min(SNR, γ) as a weight on x0 (Hang et al. 2023), in the terms of the prediction."""
    return lambda logsnr: min_snr_weight(logsnr, gamma, prediction_type)


def p2(k: float = 1.0, gamma: float = 1.0) -> Weight:
    """1/(k + SNR)^γ on the ε-loss (Choi et al. 2022, "Perception prioritized training", eq. 8).

    >>> p2()(torch.tensor([0.0]))
    tensor([0.5000])
    """
    return lambda logsnr: (k + logsnr.exp()) ** -gamma


def as_epsilon(prediction_type: PredictionType) -> Weight:
    """The weight with which a loss on v or x0 is the loss on ε: σ-free noise levels count as ε has them.

    >>> as_epsilon("v_prediction")(torch.tensor([0.0]))
    tensor([0.5000])
    """
    match prediction_type:
        case "epsilon":
            return torch.ones_like
        case "sample":
            return torch.exp
        case "v_prediction":
            return torch.sigmoid
    raise ValueError(f"no weight turns the loss on {prediction_type} into the one on epsilon")


def score(
    schedule: ContinuousSchedule, weight: Literal["simple", "likelihood"] = "simple", time_scale: float = 1000.0
) -> Objective:
    """Continuous-time denoising score matching (Song et al. 2021, eq. 7), of a network that predicts ε at z and t.

    ``simple`` weights every time alike. ``likelihood`` weights ‖ε − ε̂‖² by −½·d logsnr/dt, which bounds the negative
    log-likelihood in nats (Kingma et al. 2021, eq. 17). Times are drawn from [10⁻⁵, 1 − 10⁻⁵]. The network is told
    ``time_scale``·t, as sinusoidal embeddings tell little of numbers below one apart.
    """

    def objective(network: Network, clean: Tensor, draws: Draws, **cond: Tensor) -> Tensor:
        t = draws.stratified().clamp(1e-5, 1 - 1e-5)
        alpha, sigma = (level.to(clean.device) for level in schedule.alpha_sigma(t))
        noise = draws.noise(clean)
        z = q_sample(clean, noise, alpha, sigma)
        errors = (network(z, (t * time_scale).to(clean), **cond) - noise).float().square().flatten(1)
        if weight == "simple":
            return errors.mean(1)
        step = 1e-6
        slope = (schedule.logsnr(t + step) - schedule.logsnr(t - step)) / (2 * step)
        return errors.sum(1) * (-slope / 2).to(errors)

    return objective


def edm(sigma_data: float = 0.5, p_mean: float = -1.2, p_std: float = 1.2) -> Objective:
    """EDM (Karras et al. 2022, table 1 and eq. 8): ln σ ~ N(p_mean, p_std²), a raw network F with preconditioning.

    The weight λ(σ)·c_out² is 1, so this is the plain squared error of F: 1 for F = 0 and data of spread ``sigma_data``.
    """

    def objective(network: Network, clean: Tensor, draws: Draws, **cond: Tensor) -> Tensor:
        u = draws.stratified().clamp(1e-6, 1 - 1e-6)
        sigma = (p_mean + p_std * torch.special.ndtri(u)).exp().to(clean.device)
        power = (sigma**2 + sigma_data**2).sqrt()
        y = q_sample(clean, draws.noise(clean), torch.ones_like(sigma), sigma)
        told = (sigma.log() / 4).to(clean)
        raw = network(_times(y, 1 / power), told, **cond)
        wanted = _times(clean.float() - _times(y.float(), (sigma_data / power) ** 2), power / (sigma * sigma_data))
        return squared_error(raw, wanted)

    return objective


def flow(
    times: Literal["uniform", "logit_normal"] = "uniform", shift: float = 1.0, time_scale: float = 1000.0
) -> Objective:
    """Flow matching: squared error on ε − x0 at z = (1 − t)·x0 + t·ε (Lipman et al. 2023; Esser et al. 2024, eq. 19).

    The network is told ``time_scale``·t. Times may be drawn from a logit-normal distribution, and are shifted as in
    sampling.

    Raises :class:`ValueError` when ``shift`` is not positive or ``times`` is unknown.
    """
    if not shift > 0:
        raise ValueError(f"shift must be positive, not {shift!r}")
    if times not in ("uniform", "logit_normal"):
        raise ValueError(f"unknown distribution of times {times!r}; known are uniform, logit_normal")

    def objective(network: Network, clean: Tensor, draws: Draws, **cond: Tensor) -> Tensor:
        t = draws.stratified()
        if times == "logit_normal":
            t = torch.sigmoid(torch.special.ndtri(t.clamp(1e-6, 1 - 1e-6)))
        t = (shift * t / (1 + (shift - 1) * t)).to(clean.device)
        noise = draws.noise(clean)
        z = q_sample(clean, noise, 1 - t, t)
        return squared_error(network(z, (t * time_scale).to(clean), **cond), noise - clean)

    return objective


def learned_variance(schedule: NoiseSchedule, vlb_weight: float = 1e-3) -> Objective:
    """L_hybrid of "Improved DDPM" (Nichol & Dhariwal 2021, eq. 15 and 16): ε, and a variance between its two bounds.

    The network returns twice the channels: ε and v, from which log Σ = v·log β + (1 − v)·log β̃ with v in [−1, 1] mapped
    to [0, 1]. The variational bound, in nats, trains the variance alone: ε is detached in it.
    """
    before = torch.cat([torch.ones(1, dtype=torch.float64), schedule.alphas_cumprod[:-1]])
    betas, remaining = schedule.betas, schedule.alphas_cumprod
    variance = betas * (1 - before) / (1 - remaining)
    log_small = torch.cat([variance[1:2], variance[1:]]).log()  # β̃ is zero at the first step (section 3.1)
    log_large = betas.log()

    def objective(network: Network, clean: Tensor, draws: Draws, **cond: Tensor) -> Tensor:
        t = (draws.stratified() * len(schedule)).long().clamp(max=len(schedule) - 1)
        noise = draws.noise(clean)
        z = q_sample(clean, noise, schedule.alpha[t].to(clean.device), schedule.sigma[t].to(clean.device))
        said = network(z, t.to(clean.device), **cond)
        if said.shape[1] != 2 * clean.shape[1]:
            raise ValueError(
                f"a learnt variance needs {2 * clean.shape[1]} output channels, not {said.shape[1]}: "
                f"epsilon and variance for each of {clean.shape[1]}"
            )
        epsilon, share = said.chunk(2, dim=1)
        share = (share.double() + 1) / 2
        log_variance = _times(share, log_large[t].to(share.device)) + _times(1 - share, log_small[t].to(share.device))
        # Both means have the same form, so they differ by the error on ε alone.
        scale = betas[t] / ((1 - remaining[t]).sqrt() * (1 - betas[t]).sqrt())
        gap = _times((noise - epsilon.detach()).double(), scale.to(clean.device)).square()
        truth = log_small[t].to(clean.device).reshape(-1, *[1] * (clean.dim() - 1))
        bound = 0.5 * (log_variance - truth + (truth - log_variance).exp() + gap * (-log_variance).exp() - 1)
        return squared_error(epsilon, noise) + vlb_weight * len(schedule) * bound.flatten(1).mean(1).to(clean.dtype)

    return objective


def squared_error(said: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared error of each sample, float32 at least: ``(B,)``.

    Raises :class:`ValueError` when the shapes differ.
    """
    if said.shape != wanted.shape:
        raise ValueError(f"the network returned shape {tuple(said.shape)} where {tuple(wanted.shape)} is wanted")
    dtype = torch.promote_types(said.dtype, torch.float32)
    return (said.to(dtype) - wanted.to(dtype)).square().flatten(1).mean(1)


def _target(
    prediction_type: PredictionType, clean: Tensor, noise: Tensor, z: Tensor, alpha: Tensor, sigma: Tensor
) -> Tensor:
    if prediction_type == "epsilon":
        return noise
    return convert_prediction(clean, "sample", prediction_type, z, alpha, sigma)


def _times(sample: Tensor, level: Tensor) -> Tensor:
    """``(B, …)`` times ``(B,)``, in the sample's dtype."""
    return sample * level.to(sample.dtype).reshape(-1, *[1] * (sample.dim() - 1))
