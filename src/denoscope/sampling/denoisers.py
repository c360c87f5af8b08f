"""Networks as denoisers: thin wrappers that turn any network's prediction into x0 at any level.

A network is trained on levels of its own family. z·(α_own/α) at the same logsnr is what it knows, so every denoiser
here can be sampled along every grid: a variance-preserving network along EDM's levels, or the other way round.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from denoscope.sampling.levels import Level
from denoscope.sampling.loop import Denoise
from denoscope.schedules import ContinuousSchedule, NoiseSchedule, PredictionType, convert_prediction

Network = Callable[..., object]
"""Called as ``network(z, timesteps, **cond)`` with ``(B, …)`` and ``(B,)``; returns the prediction, a tensor of the
shape of ``z``, or diffusers' output that holds it as ``sample``."""


def discrete(
    network: Network,
    schedule: NoiseSchedule,
    prediction_type: PredictionType = "epsilon",
    **cond: Tensor,
) -> Denoise:
    """A network trained on the timesteps of a discrete schedule, such as any DDPM, or a diffusers U-Net.

    Between timesteps, t is interpolated in logsnr and passed as a fraction; whole timesteps are passed as integers.
    Pure noise is the schedule's last level if that has less than e⁻⁸ of signal.

    Raises :class:`ValueError` for levels noisier or cleaner than the schedule's, and for ε at zero terminal SNR.
    """
    if prediction_type == "epsilon" and schedule.alphas_cumprod[-1] == 0:
        raise ValueError(
            "a network that predicts epsilon can't be sampled from zero terminal SNR: it was told nothing there"
        )

    def denoise(z: Tensor, level: Level) -> Tensor:
        timestep = timestep_of(schedule, level)
        alpha, sigma = _variance_preserving(level)
        own = z * _rescaling(level, alpha, sigma)
        predicted = _tensor(network(own, timestep.expand(len(z)).to(z.device), **cond))
        return convert_prediction(predicted, prediction_type, "sample", own, alpha, sigma)

    return denoise


def continuous(
    network: Network,
    schedule: ContinuousSchedule,
    prediction_type: PredictionType = "epsilon",
    time_scale: float = 1000.0,
    **cond: Tensor,
) -> Denoise:
    """A network told ``time_scale``·t of a schedule in continuous time, at levels of the variance-preserving kind.

    t is looked up in 10,000 levels of the schedule, between which it is interpolated in logsnr.

    Raises :class:`ValueError` for levels beyond t = 10⁻⁴ and t = 1.
    """
    table = schedule.table(10_000)

    def told(z: Tensor, timesteps: Tensor, **cond: Tensor) -> object:
        return network(z, (time_scale * (timesteps.double() + 1) / len(table)).to(z.dtype), **cond)

    return discrete(told, table, prediction_type, **cond)


def timestep_of(schedule: NoiseSchedule, level: Level) -> Tensor:
    """The timestep with this level's logsnr: int64 where it is a whole one, float32 between two.

    Raises :class:`ValueError` for a level beyond the schedule's ends.

    >>> schedule = NoiseSchedule.linear()
    >>> timestep_of(schedule, Level(float(schedule.alpha[500]), float(schedule.sigma[500])))
    tensor(500)
    """
    table = -schedule.logsnr  # rises
    place = torch.tensor(-level.logsnr, dtype=torch.float64)
    last = len(table) - 1
    if level.alpha == 0 and float(table[-1]) >= 8:
        return torch.tensor(last)
    slack = 1e-6
    if not float(table[0]) - slack <= float(place) <= float(table[-1]) + slack:
        raise ValueError(
            f"logsnr {level.logsnr:.3f} is beyond the schedule's levels, "
            f"{-float(table[-1]):.3f} to {-float(table[0]):.3f}"
        )
    above = min(max(int(torch.searchsorted(table, place)), 1), last) if last else 0
    below = max(above - 1, 0)
    if above == below:
        return torch.tensor(above)
    width = float(table[above] - table[below])
    fraction = (float(place) - float(table[below])) / width if math.isfinite(width) else 0.0
    t = below + min(max(fraction, 0.0), 1.0)
    return torch.tensor(round(t)) if abs(t - round(t)) < 1e-6 else torch.tensor(t, dtype=torch.float32)


def edm(network: Network, sigma_data: float = 0.5, **cond: Tensor) -> Denoise:
    """EDM's preconditioning of a raw network F (Karras et al. 2022, eq. 7 and table 1).

    D(y; σ) = c_skip·y + c_out·F(c_in·y, ln σ/4) with y = z/α and σ the level's σ/α.

    Raises :class:`ValueError` at pure noise, which this family lacks.
    """

    def denoise(z: Tensor, level: Level) -> Tensor:
        if level.alpha == 0:
            raise ValueError("EDM's preconditioning has no level of pure noise; start from a finite sigma")
        sigma = level.ratio
        power = math.sqrt(sigma**2 + sigma_data**2)
        y = z / level.alpha
        told = torch.full((len(z),), math.log(sigma) / 4, dtype=z.dtype, device=z.device)
        raw = _tensor(network(y / power, told, **cond))
        return (sigma_data / power) ** 2 * y + sigma * sigma_data / power * raw

    return denoise


def flow(network: Network, time_scale: float = 1000.0, **cond: Tensor) -> Denoise:
    """A flow-matching network that predicts ε − x0 at z = (1 − t)·x0 + t·ε and is told ``time_scale``·t."""

    def denoise(z: Tensor, level: Level) -> Tensor:
        total = level.alpha + level.sigma
        t = level.sigma / total
        own = z / total
        told = torch.full((len(z),), t * time_scale, dtype=z.dtype, device=z.device)
        return own - t * _tensor(network(own, told, **cond))

    return denoise


def clipped(denoise: Denoise, bound: float = 1.0) -> Denoise:
    """x0 clamped to ±``bound``. Solvers take ε from the clamped x0, so both stay consistent."""
    return lambda z, level: denoise(z, level).clamp(-bound, bound)


def thresholded(denoise: Denoise, quantile: float = 0.995, greatest: float = math.inf) -> Denoise:
    """Dynamic thresholding (Saharia et al. 2022, section 2.3): x0 clamped to a quantile of |x0| and scaled to ±1.

    The quantile is each sample's own, at least 1 and at most ``greatest``; with ``greatest = 1`` it is a plain clip.

    Raises :class:`ValueError` when ``quantile`` is not in (0, 1] or ``greatest`` is below 1.
    """
    if not 0 < quantile <= 1 or greatest < 1:
        raise ValueError(f"quantile must be in (0, 1] and greatest at least 1, not {quantile!r} and {greatest!r}")

    def thresholding(z: Tensor, level: Level) -> Tensor:
        x0 = denoise(z, level)
        sizes = x0.flatten(1).abs().float()
        # A sort, as torch.quantile refuses more than 16 million numbers.
        place = quantile * (sizes.shape[1] - 1)
        ordered = sizes.sort(1).values
        low, high = ordered[:, math.floor(place)], ordered[:, math.ceil(place)]
        bound = torch.lerp(low, high, place - math.floor(place)).clamp(1, greatest)
        bound = bound.to(x0.dtype).reshape(-1, *[1] * (x0.dim() - 1))
        return x0.clamp(-bound, bound) / bound

    return thresholding


def _variance_preserving(level: Level) -> tuple[float, float]:
    length = math.hypot(level.alpha, level.sigma)
    return level.alpha / length, level.sigma / length


def _rescaling(level: Level, alpha: float, sigma: float) -> float:
    return sigma / level.sigma if level.sigma >= level.alpha else alpha / level.alpha


def _tensor(answer: object) -> Tensor:
    """The prediction out of whatever a network returns: a tensor, diffusers' output, or a tuple that it leads."""
    answer = getattr(answer, "sample", answer) if not isinstance(answer, Tensor) else answer
    if isinstance(answer, tuple):
        answer = answer[0]
    if not isinstance(answer, Tensor):
        raise TypeError(f"the network returned {type(answer).__name__}; a tensor, or an output with .sample, is needed")
    return answer
