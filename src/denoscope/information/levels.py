"""Timesteps for given noise levels, within what a model was trained on."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from denoscope.information.errors import InformationError
from denoscope.schedules import logsnr_of, prediction_type_of

_FLOW_EDGE = 1e-3
"""Flow models are trained on all of (0, 1), where logsnr has no ends; this much is left out on both sides."""


def trained_range(scheduler: object) -> tuple[float, float]:
    """The least and the greatest logsnr that a scheduler's model was trained on.

    >>> from diffusers import DDIMScheduler
    >>> [round(end, 2) for end in trained_range(DDIMScheduler(beta_schedule="scaled_linear", beta_end=0.012,
    ...     beta_start=0.00085))]
    [-5.36, 7.07]
    """
    if prediction_type_of(scheduler) == "flow_prediction":
        end = 2 * float(np.log((1 - _FLOW_EDGE) / _FLOW_EDGE))
        return -end, end
    finite = _table(scheduler)
    finite = finite[np.isfinite(finite)]
    return float(finite[-1]), float(finite[0])


def timesteps_at(scheduler: object, logsnr: ArrayLike) -> Tensor:
    """The scheduler's timesteps, with fractions, at which the noise has these levels: float64 ``(N,)``.

    Raises :class:`InformationError` for a level outside of :func:`trained_range`.

    >>> from diffusers import DDIMScheduler
    >>> timesteps_at(DDIMScheduler(beta_schedule="squaredcos_cap_v2"), [-0.0252, 10.0]).round(decimals=2)
    tensor([4.9909e+02, 1.3000e-01], dtype=torch.float64)
    """
    asked = np.asarray(logsnr, dtype=np.float64).reshape(-1)
    low, high = trained_range(scheduler)
    if not bool(((asked >= low - 1e-9) & (asked <= high + 1e-9)).all()):
        raise InformationError(
            f"the model was trained on logsnr {low:.2f} to {high:.2f}, not on {asked.min():.2f} to {asked.max():.2f}: "
            "ask within its range"
        )
    if prediction_type_of(scheduler) == "flow_prediction":
        steps = int(getattr(scheduler, "config").num_train_timesteps)  # noqa: B009  # schedulers have no common type
        return torch.from_numpy(steps / (1 + np.exp(asked / 2)))
    table = _table(scheduler)
    known = np.flatnonzero(np.isfinite(table))
    return torch.from_numpy(np.interp(asked, table[known][::-1], known[::-1].astype(np.float64)))


def uniform_timesteps(scheduler: object, steps: int, low: float, high: float) -> list[int]:
    """Whole timesteps at levels uniform in logsnr from ``low`` to ``high``, the model's last one before them.

    For a sampler that takes ``timesteps`` (``DDPMScheduler``). Falling and without repetitions, so they may be fewer
    than ``steps`` where the model's own levels are wider apart.

    >>> from diffusers import DDPMScheduler
    >>> uniform_timesteps(DDPMScheduler(beta_schedule="squaredcos_cap_v2"), 4, -3, 3)
    [999, 858, 649, 341, 132]
    """
    asked = timesteps_at(scheduler, np.linspace(low, high, steps)).round().long().tolist()
    first = len(_table(scheduler)) - 1
    return sorted({first, *asked}, reverse=True)


def _table(scheduler: object) -> NDArray[np.float64]:
    count = int(getattr(scheduler, "config").num_train_timesteps)  # noqa: B009
    found: NDArray[np.float64] = logsnr_of(scheduler, torch.arange(count)).logsnr.numpy()
    return found
