"""The noise level at each step of a diffusers scheduler.

Schedulers speak of noise in three ways: ᾱ indexed by the timestep (DDIM, DDPM, PNDM, LCM, …), σ = √((1−ᾱ)/ᾱ)
by step (Euler, Heun, DPM-Solver++, UniPC, EDM, …), or the noise share t of flow matching. ``logsnr`` is
common to all.
"""

from typing import Final, NamedTuple, cast

import torch
from torch import Tensor

from denoscope.schedules.prediction import PredictionType

_FLOW_CLASSES: Final = ("FlowMatch", "FlowMap", "LTXEulerAncestralRF")
_EDM_CLASSES: Final = ("EDM", "CosineDPMSolver", "CMStochasticIterative")
_BETWEEN_CLASSES: Final = ("KDPM2", "DPMSolverSDE")
"""They also call the denoiser between their sigmas, and tell that noise by a fractional timestep only."""


class NoiseLevels(NamedTuple):
    """The noise at N timesteps: ``sigma`` and ``logsnr``, both ``(N,)`` float64.

    ``sigma`` is what diffusers calls so: noise relative to signal, √((1−ᾱ)/ᾱ) = exp(−logsnr/2), for
    diffusion; the noise share t of z = (1−t)·x0 + t·ε for flow matching.
    """

    sigma: Tensor
    logsnr: Tensor


def logsnr_of(scheduler: object, timesteps: Tensor) -> NoiseLevels:
    """The noise at which a scheduler calls the denoiser with these timesteps.

    ``timesteps`` is ``(N,)``: the scheduler's own list after ``set_timesteps``, a part of it, or (for
    schedulers with ``alphas_cumprod``) any training timesteps; fractions are interpolated in log σ as
    diffusers does. ``logsnr`` is
    log(ᾱ/(1−ᾱ)), for flow matching 2·log((1−t)/t); −inf where no signal is left.

    Raises :class:`ValueError` for a timestep that the scheduler does not have, and for a scheduler that
    speaks of noise in none of these ways, naming it.

    >>> from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
    >>> logsnr_of(DDIMScheduler(beta_schedule="squaredcos_cap_v2"), torch.tensor([999, 0])).logsnr
    tensor([-19.8..., 10.0...], dtype=torch.float64)
    >>> logsnr_of(FlowMatchEulerDiscreteScheduler(), torch.tensor([500.0]))
    NoiseLevels(sigma=tensor([0.5000], dtype=torch.float64), logsnr=tensor([0.], dtype=torch.float64))
    """
    asked = timesteps.detach().to("cpu", torch.float64).reshape(-1)
    name = type(scheduler).__name__
    if _is_flow(scheduler):
        share = _own_sigmas(scheduler, asked)
        if share is None:
            share = asked / _steps(scheduler)
        if bool(((share < 0) | (share > 1)).any()):
            raise ValueError(f"{name} has no noise share outside [0, 1]; the timesteps reach {asked.max():g}")
        return NoiseLevels(share, 2 * (torch.log1p(-share) - share.log()))
    alphas_cumprod = _tensor(scheduler, "alphas_cumprod")
    if alphas_cumprod is None and not name.startswith(_EDM_CLASSES):
        raise ValueError(f"{name} has neither alphas_cumprod nor sigmas of a known kind")
    sigma = None if name.startswith(_BETWEEN_CLASSES) else _own_sigmas(scheduler, asked)
    if sigma is not None:
        return NoiseLevels(sigma, -2 * sigma.log())
    if alphas_cumprod is None:
        raise ValueError(f"{name} has no step for some of these timesteps; take them from its own list")
    logsnr = _interpolate(alphas_cumprod.log() - torch.log1p(-alphas_cumprod), asked, name)
    return NoiseLevels((-logsnr / 2).exp(), logsnr)


def signal_and_noise(scheduler: object, level: NoiseLevels) -> tuple[float, float]:
    """α and σ of z = α·x₀ + σ·ε as the denoiser is given it, at the first of some levels.

    α² + σ² = 1 for diffusion, whatever the sampler itself holds; α + σ = 1 for flow matching.

    >>> from diffusers import FlowMatchEulerDiscreteScheduler
    >>> scheduler = FlowMatchEulerDiscreteScheduler()
    >>> signal_and_noise(scheduler, logsnr_of(scheduler, torch.tensor([250.0])))
    (0.75, 0.25)
    """
    if _is_flow(scheduler):
        sigma = float(level.sigma[0])
        return 1 - sigma, sigma
    logsnr = level.logsnr[0]
    return float(logsnr.sigmoid().sqrt()), float((-logsnr).sigmoid().sqrt())


def prediction_type_of(scheduler: object) -> PredictionType:
    """What a scheduler takes its network to predict; ``epsilon`` when it doesn't say.

    >>> from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
    >>> prediction_type_of(DDIMScheduler()), prediction_type_of(FlowMatchEulerDiscreteScheduler())
    ('epsilon', 'flow_prediction')
    """
    told = "flow_prediction" if _is_flow(scheduler) else _setting(scheduler, "prediction_type") or "epsilon"
    return cast(PredictionType, told)


def _is_flow(scheduler: object) -> bool:
    return (
        type(scheduler).__name__.startswith(_FLOW_CLASSES)
        or _setting(scheduler, "use_flow_sigmas") is True
        or _setting(scheduler, "prediction_type") == "flow_prediction"
    )


def _setting(scheduler: object, key: str) -> object:
    found: object = getattr(getattr(scheduler, "config", None), key, None)
    return found


def _steps(scheduler: object) -> int:
    steps = _setting(scheduler, "num_train_timesteps")
    return steps if isinstance(steps, int) else 1000


def _tensor(scheduler: object, name: str) -> Tensor | None:
    value = getattr(scheduler, name, None)
    return value.detach().to("cpu", torch.float64) if isinstance(value, Tensor) else None


def _own_sigmas(scheduler: object, asked: Tensor) -> Tensor | None:
    """The scheduler's sigmas at these timesteps, or None when it has no such list or not all of them."""
    sigmas, own = _tensor(scheduler, "sigmas"), _tensor(scheduler, "timesteps")
    # Sigmas have one more entry, the end. Some schedulers hold another table before set_timesteps.
    if sigmas is None or own is None or len(sigmas) != len(own) + 1 or len(asked) == 0:
        return None
    # A run of the list first: timesteps are repeated (Heun), or several sigmas rounded to one (Karras).
    for start in range(len(own) - len(asked) + 1):
        if torch.equal(own[start : start + len(asked)], asked):
            return sigmas[start : start + len(asked)]
    same = own[None, :] == asked[:, None]
    return sigmas[same.int().argmax(1)] if bool(same.any(1).all()) else None


def _interpolate(table: Tensor, asked: Tensor, name: str) -> Tensor:
    last = len(table) - 1
    if bool(((asked < 0) | (asked > last)).any()):
        raise ValueError(f"{name} knows timesteps 0 to {last}, not {asked.min():g} to {asked.max():g}")
    below = asked.floor().long()
    above = asked.ceil().long()
    # Whole timesteps are taken as they are: −inf times a weight of zero would be NaN.
    return torch.where(below == above, table[below], torch.lerp(table[below], table[above], asked - below))
