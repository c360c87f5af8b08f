"""Schedules in continuous time: t from 0 (clean) to 1 (noise), told by logsnr(t) alone.

α and σ follow from logsnr and from how they belong together (:data:`Family`), so a schedule is one falling function. A
discrete table is that function looked up at T places.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from denoscope.schedules.noise import NoiseSchedule

Family = Literal["vp", "ve", "flow"]
"""How α and σ belong together: α² + σ² = 1, α = 1, or α + σ = 1."""

LogSnr = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class ContinuousSchedule:
    """A falling function ``logsnr(t)`` of t in [0, 1], float64 in and out, of any shape; ±inf at the ends is allowed.

    >>> schedule = cosine()
    >>> schedule.logsnr(torch.tensor([0.25, 0.5, 0.75])).round(decimals=4)
    tensor([ 1.7627,  0.0000, -1.7627], dtype=torch.float64)
    """

    function: LogSnr
    family: Family = "vp"

    def logsnr(self, t: Tensor) -> Tensor:
        """log(α²/σ²) at times ``t``, float64, of the shape of ``t``.

        Raises :class:`ValueError` for times outside [0, 1].
        """
        t = t.to(torch.float64)
        if not bool(((t >= 0) & (t <= 1)).all()):
            raise ValueError(f"times lie in [0, 1], not {float(t.min()):g} to {float(t.max()):g}")
        return self.function(t)

    def alpha_sigma(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """α and σ at times ``t``, float64, each of the shape of ``t``.

        >>> [round(float(x), 4) for x in flow().alpha_sigma(torch.tensor(0.25))]
        [0.75, 0.25]
        """
        logsnr = self.logsnr(t)
        if self.family == "vp":
            return torch.sigmoid(logsnr).sqrt(), torch.sigmoid(-logsnr).sqrt()
        if self.family == "flow":
            return torch.sigmoid(logsnr / 2), torch.sigmoid(-logsnr / 2)
        return torch.ones_like(logsnr), (-logsnr / 2).exp()

    def table(self, steps: int = 1000) -> NoiseSchedule:
        """The variance-preserving table of the levels at t = 1/T, 2/T … 1: ``(T,)``.

        Raises :class:`ValueError` when the function does not fall from each of them to the next.
        """
        t = torch.arange(1, steps + 1, dtype=torch.float64) / steps
        return NoiseSchedule(torch.sigmoid(self.logsnr(t)))


def cosine(shift: float = 0.0) -> ContinuousSchedule:
    """α = cos(πt/2), σ = sin(πt/2) (Kingma et al. 2021, appendix; Hoogeboom et al. 2023, eq. 5).

    ``shift`` is added to logsnr: 2·log(64/d) for pictures of d × d (Hoogeboom et al. 2023, "Simple diffusion", eq. 7).
    """
    return ContinuousSchedule(lambda t: -2 * torch.tan(math.pi / 2 * t).log() + shift)


def linear(beta_min: float = 0.1, beta_max: float = 20.0) -> ContinuousSchedule:
    """The VP-SDE: ᾱ = exp(−½t²·(β_max − β_min) − t·β_min) (Song et al. 2021, eq. 33); the limit of DDPM's betas.

    >>> round(float(linear().logsnr(torch.tensor(1.0))), 3)
    -10.05
    """

    def function(t: Tensor) -> Tensor:
        decay = t**2 * (beta_max - beta_min) / 2 + t * beta_min
        return -decay - torch.log(-torch.expm1(-decay))

    return ContinuousSchedule(function)


def sigmoid(start: float = -3.0, end: float = 3.0, tau: float = 1.0) -> ContinuousSchedule:
    """ᾱ a piece of a sigmoid, scaled to [0, 1] (Jabri et al. 2023, "RIN", algorithm in appendix B; Chen 2023)."""

    def function(t: Tensor) -> Tensor:
        first, last = (1 / (1 + math.exp(-edge / tau)) for edge in (start, end))
        remaining = (last - torch.sigmoid((t * (end - start) + start) / tau)) / (last - first)
        remaining = remaining.clamp(0, 1)
        return remaining.log() - torch.log1p(-remaining)

    return ContinuousSchedule(function)


def laplace(location: float = 0.0, scale: float = 0.5) -> ContinuousSchedule:
    """logsnr drawn from a Laplace distribution, by its quantile function (Hang et al. 2024, table 1)."""

    def function(t: Tensor) -> Tensor:
        side = torch.sign(0.5 - t)
        return location - scale * side * torch.log1p(-2 * (0.5 - t).abs())

    return ContinuousSchedule(function)


def log_linear(sigma_min: float = 0.002, sigma_max: float = 80.0, family: Family = "ve") -> ContinuousSchedule:
    """log(σ/α) rises in proportion to t: the VE-SDE's geometric schedule (Song et al. 2021, eq. 31).

    Raises :class:`ValueError` unless ``0 < sigma_min < sigma_max``.
    """
    _check(sigma_min, sigma_max)
    low, high = math.log(sigma_min), math.log(sigma_max)
    return ContinuousSchedule(lambda t: -2 * (low + t * (high - low)), family)


def karras(
    sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0, family: Family = "ve"
) -> ContinuousSchedule:
    """(σ/α)^(1/ρ) rises in proportion to t (Karras et al. 2022, eq. 5).

    Raises :class:`ValueError` unless ``0 < sigma_min < sigma_max``.
    """
    _check(sigma_min, sigma_max)
    low, high = sigma_min ** (1 / rho), sigma_max ** (1 / rho)
    return ContinuousSchedule(lambda t: -2 * rho * (low + t * (high - low)).log(), family)


def flow(shift: float = 1.0) -> ContinuousSchedule:
    """α = 1 − t', σ = t' with t' = s·t/(1 + (s − 1)·t) (Esser et al. 2024, eq. 23): logsnr is 2·log((1 − t)/(s·t)).

    Raises :class:`ValueError` when ``shift`` is not positive.

    >>> [round(float(x), 4) for x in flow(shift=3.0).alpha_sigma(torch.tensor(0.5))]
    [0.25, 0.75]
    """
    if not shift > 0:
        raise ValueError(f"shift must be positive, not {shift!r}")
    return ContinuousSchedule(lambda t: 2 * (torch.log1p(-t) - t.log() - math.log(shift)), "flow")


BASE_TOKENS: Final = 256
MAX_TOKENS: Final = 4096


def flow_shift(tokens: int, base_shift: float = 0.5, max_shift: float = 1.15) -> float:
    """The shift of a picture of so many latent tokens: e^μ, μ on a line through (256, ½) and (4096, 1.15), as in Flux.

    >>> round(flow_shift(256), 4), round(flow_shift(4096), 4)
    (1.6487, 3.1582)
    """
    slope = (max_shift - base_shift) / (MAX_TOKENS - BASE_TOKENS)
    return math.exp(base_shift + slope * (tokens - BASE_TOKENS))


def _check(sigma_min: float, sigma_max: float) -> None:
    if not 0 < sigma_min < sigma_max < math.inf:
        raise ValueError(f"sigmas must be finite, positive and in order, not {sigma_min:g} and {sigma_max:g}")
