"""Where the steps of a sampler lie: timesteps of a discrete schedule, or noise levels σ/α.

Timesteps are found in integer arithmetic. In floating point, ``trailing`` yields one step too many for 62 of the
numbers of steps up to 1,000.
"""

from typing import Literal

import torch
from torch import Tensor

from denoscope.schedules import NoiseSchedule

Spacing = Literal["leading", "linspace", "trailing"]


def spaced_timesteps(train_steps: int, steps: int, spacing: Spacing = "trailing", offset: int = 0) -> Tensor:
    """``steps`` timesteps of ``train_steps``, noisiest first: ``(steps,)`` int64, strictly falling.

    - ``leading``: multiples of T//N, plus ``offset`` (lowered where the last one would lie beyond T − 1). Ends at the
      offset, starts below T − 1.
    - ``linspace``: from T − 1 to 0 in equal parts, rounded; a single step is T − 1.
    - ``trailing``: from T − 1 down by T/N, rounded. Lin et al. 2023, table 2.

    Halves are rounded to the even neighbour, as NumPy and therefore diffusers round them.

    Raises :class:`ValueError` when ``steps`` is not in 1…T, the offset is negative, or ``spacing`` is unknown.

    >>> spaced_timesteps(1000, 4).tolist(), spaced_timesteps(1000, 5, "leading", 1).tolist()
    ([999, 749, 499, 249], [801, 601, 401, 201, 1])
    """
    if not 1 <= steps <= train_steps:
        raise ValueError(f"a schedule of {train_steps} timesteps has 1 to {train_steps} steps to take, not {steps}")
    if offset < 0:
        raise ValueError(f"offset must not be negative, not {offset}")
    k = torch.arange(steps - 1, -1, -1)
    match spacing:
        case "leading":
            ratio = train_steps // steps
            return k * ratio + min(offset, train_steps - 1 - (steps - 1) * ratio)
        case "linspace":
            if steps == 1:
                return torch.tensor([train_steps - 1])
            return _divide(k * (train_steps - 1), steps - 1)
        case "trailing":
            return _divide((k + 1) * train_steps, steps) - 1
        case _:
            raise ValueError(f"unknown spacing {spacing!r}; known are leading, linspace, trailing")


def _divide(numerators: Tensor, denominator: int) -> Tensor:
    """Whole numbers nearest to the quotients, halves to the even one; integer arithmetic throughout."""
    rounded_up = (2 * numerators + denominator) // (2 * denominator)
    half = (2 * numerators + denominator) % (2 * denominator) == 0
    return rounded_up - (half & (rounded_up % 2 == 1)).long()


def ratio_range(schedule: NoiseSchedule) -> tuple[float, float]:
    """The least and greatest finite σ/α of a schedule.

    >>> least, greatest = ratio_range(NoiseSchedule.linear())
    >>> round(least, 7), round(greatest, 3)
    (0.0100005, 157.407)
    """
    ratios = (-schedule.logsnr / 2).exp()
    finite = ratios[ratios.isfinite()]
    return float(finite.min()), float(finite.max())


def karras_ratios(steps: int, least: float, greatest: float, rho: float = 7.0) -> Tensor:
    """σ/α at equal distances in σ^(1/ρ), then 0: ``(steps + 1,)`` float64 (Karras et al. 2022, eq. 5).

    >>> karras_ratios(3, 0.002, 80.0).round(decimals=3).tolist()
    [80.0, 2.515, 0.002, 0.0]
    """
    _check(steps, least, greatest)
    u = torch.linspace(0, 1, steps, dtype=torch.float64)
    ends = greatest ** (1 / rho), least ** (1 / rho)
    return _closed((ends[0] + u * (ends[1] - ends[0])) ** rho)


def exponential_ratios(steps: int, least: float, greatest: float) -> Tensor:
    """σ/α at equal distances in log σ, which are equal distances in logsnr, then 0: ``(steps + 1,)`` float64.

    >>> exponential_ratios(3, 0.01, 100.0).round(decimals=6).tolist()
    [100.0, 1.0, 0.01, 0.0]
    """
    _check(steps, least, greatest)
    u = torch.linspace(0, 1, steps, dtype=torch.float64)
    return _closed(greatest ** (1 - u) * least**u)


ALIGN_YOUR_STEPS: dict[str, tuple[float, ...]] = {
    "sd15": (14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029),
    "sdxl": (14.615, 6.315, 3.771, 2.181, 1.342, 0.862, 0.555, 0.380, 0.234, 0.113, 0.029),
    "svd": (700.0, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002),
}
"""The published ten-step lists of Sabour et al. 2024, "Align your steps"."""


def align_your_steps_ratios(steps: int, family: str = "sd15") -> Tensor:
    """The optimised σ/α of "Align your steps", then 0: ``(steps + 1,)`` float64.

    Other numbers of steps than ten follow by interpolation in log σ, as the authors advise.

    >>> align_your_steps_ratios(10, "sdxl")[:3].round(decimals=6).tolist()
    [14.615, 6.315, 3.771]
    """
    if family not in ALIGN_YOUR_STEPS:
        raise ValueError(f"no published steps for {family!r}; known are {', '.join(ALIGN_YOUR_STEPS)}")
    published = torch.tensor(ALIGN_YOUR_STEPS[family], dtype=torch.float64)
    _check(steps, float(published[-1]), float(published[0]))
    # Ten steps need eleven published levels of which the last is replaced by 0.
    place = torch.arange(steps, dtype=torch.float64) * (len(published) - 1) / steps
    below = place.floor().long()
    logs = published.log()
    return _closed(torch.lerp(logs[below], logs[below + 1], place - below).exp())


def _check(steps: int, least: float, greatest: float) -> None:
    if steps < 1:
        raise ValueError(f"at least one step is needed, not {steps}")
    if not 0 < least <= greatest < float("inf"):
        raise ValueError(f"the noise levels must be finite, positive and in order, not {least:g} to {greatest:g}")


def _closed(ratios: Tensor) -> Tensor:
    return torch.cat([ratios, torch.zeros(1, dtype=torch.float64)])
