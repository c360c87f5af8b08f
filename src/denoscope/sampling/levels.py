"""The noise levels that a sampler visits.

A level is a pair (α, σ) with z = α·x0 + σ·ε, so that variance-preserving schedules, EDM's (α = 1) and flow matching
(α + σ = 1) are one thing to a solver, and pure noise (α = 0) is a level like any other.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from denoscope.schedules import Family, NoiseSchedule


class Level(NamedTuple):
    """One noise level: z = α·x0 + σ·ε.

    >>> Level(0.6, 0.8).logsnr
    -0.575...
    """

    alpha: float
    sigma: float

    @property
    def ratio(self) -> float:
        """σ/α, the noise level in EDM's coordinates z/α; infinite where no signal is left."""
        return self.sigma / self.alpha if self.alpha > 0 else math.inf

    @property
    def logsnr(self) -> float:
        """log(α²/σ²); infinite at either end."""
        if self.sigma == 0:
            return math.inf
        return 2 * math.log(self.alpha / self.sigma) if self.alpha > 0 else -math.inf

    def at_ratio(self, ratio: float) -> "Level":
        """The level of this σ/α with the same α: what is reached by adding noise alone."""
        return Level(self.alpha, self.alpha * ratio)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """N + 1 noise levels, noisiest first; a sampler takes N steps between them.

    ``alpha`` and ``sigma`` are ``(N + 1,)`` float64. Raises :class:`ValueError` when the noise does not fall from each
    level to the next.

    >>> grid = Grid.from_ratios([80.0, 1.0, 0.0])
    >>> len(grid), grid[1]
    (2, Level(alpha=0.7071..., sigma=0.7071...))
    """

    alpha: Tensor
    sigma: Tensor

    def __post_init__(self) -> None:
        """Check the levels and keep float64 copies of them."""
        for name in ("alpha", "sigma"):
            object.__setattr__(self, name, getattr(self, name).detach().to("cpu", torch.float64, copy=True))
        if self.alpha.dim() != 1 or self.alpha.shape != self.sigma.shape or len(self.alpha) < 2:
            raise ValueError(
                f"a grid needs lists of at least two levels, not alpha {tuple(self.alpha.shape)} "
                f"and sigma {tuple(self.sigma.shape)}"
            )
        if not bool(((self.alpha >= 0) & (self.sigma >= 0) & (self.alpha + self.sigma > 0)).all()):
            raise ValueError("alpha and sigma must not be negative, nor both zero")
        # Compared as products: a ratio would be infinite at pure noise.
        falls = self.sigma[1:] * self.alpha[:-1] < self.sigma[:-1] * self.alpha[1:]
        if not bool(falls.all()):
            at = int((~falls).nonzero()[0])
            raise ValueError(f"the noise must fall at every step; it does not from level {at} to {at + 1}")

    def __len__(self) -> int:
        """N, the number of steps."""
        return len(self.alpha) - 1

    def __getitem__(self, index: int) -> Level:
        """The level before step ``index``; ``grid[len(grid)]`` is where the sampler ends."""
        if not 0 <= index <= len(self):
            raise IndexError(f"level {index} of a grid with levels 0 to {len(self)}")
        return Level(float(self.alpha[index]), float(self.sigma[index]))

    def __iter__(self) -> Iterator[Level]:
        """All N + 1 levels."""
        return (self[index] for index in range(len(self) + 1))

    @classmethod
    def from_ratios(cls, ratios: Tensor | list[float], family: Family = "vp") -> Self:
        """From noise relative to signal, σ/α ``(N + 1,)``, falling; ``inf`` is pure noise, which EDM's family lacks.

        >>> Grid.from_ratios([3.0, 1.0, 0.0], "flow").sigma.tolist()
        [0.75, 0.5, 0.0]
        """
        ratio = torch.as_tensor(ratios, dtype=torch.float64)
        endless = ratio.isinf()
        if family == "ve":
            if bool(endless.any()):
                raise ValueError("pure noise is no level of the variance-exploding family, where alpha is 1")
            return cls(torch.ones_like(ratio), ratio)
        alpha = 1 / (1 + ratio**2).sqrt() if family == "vp" else 1 / (1 + ratio)
        sigma = torch.where(endless, 1.0, ratio * alpha)
        return cls(alpha, sigma)

    @classmethod
    def from_timesteps(
        cls, schedule: NoiseSchedule, timesteps: Tensor, final: Literal["clean", "first"] = "clean"
    ) -> Self:
        """The schedule's levels at these timesteps ``(N,)``, falling, and one more at which the sampler ends.

        ``final`` says which: no noise at all (diffusers' ``set_alpha_to_one``), or the schedule's cleanest level, which
        leaves its noise in the result. A list that ends at timestep 0 already is there: with ``"first"`` its last entry
        is where the sampler ends, one step earlier.

        >>> grid = Grid.from_timesteps(NoiseSchedule.linear(), torch.tensor([999, 499]))
        >>> [round(level.logsnr, 2) for level in grid]
        [-10.12, -2.46, inf]
        """
        alphas_cumprod = schedule.alphas_cumprod[timesteps]
        if final == "clean":
            alphas_cumprod = torch.cat([alphas_cumprod, torch.ones(1, dtype=torch.float64)])
        elif int(timesteps[-1]) != 0:
            alphas_cumprod = torch.cat([alphas_cumprod, schedule.alphas_cumprod[:1]])
        return cls(alphas_cumprod.sqrt(), (1 - alphas_cumprod).sqrt())

    @classmethod
    def flow(cls, steps: int, shift: float = 1.0) -> Self:
        """Flow matching's grid: t from 1 (noise) to 0 in equal steps, shifted: t' = s·t/(1 + (s−1)·t).

        The shift is eq. 23 of Esser et al. 2024. Raises :class:`ValueError` when it is not positive.

        >>> Grid.flow(2, shift=3.0).sigma.tolist()
        [1.0, 0.75, 0.0]
        """
        if not shift > 0:
            raise ValueError(f"shift must be positive, not {shift!r}")
        t = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
        t = shift * t / (1 + (shift - 1) * t)
        return cls(1 - t, t)
