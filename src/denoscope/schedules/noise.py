"""Discrete variance-preserving schedules, as tables in float64.

Tables stay in float64 on the CPU: in bfloat16 the first 10 steps of the linear schedule and the first 21 of
the cosine one would add no noise at all. Look a level up here, and cast what you looked up.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

import torch
from torch import Tensor

SchedulerConfig = Mapping[str, bool | int | float | str]
_UNNAMED: Final[SchedulerConfig] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class NoiseSchedule:
    """T noise levels, cleanest first: ``alphas_cumprod`` is ᾱ, ``(T,)`` float64, strictly falling in [0, 1].

    ``scheduler_config`` says the same in the words of diffusers' scheduler configs; where a schedule has no
    name there (empty), :meth:`to_diffusers_config` spells the betas out.

    Raises :class:`ValueError` when the table is no such schedule.

    >>> schedule = NoiseSchedule.cosine()
    >>> len(schedule), schedule.logsnr[[0, 500, 999]].round(decimals=2).tolist()
    (1000, [10.09, -0.03, -19.84])
    """

    alphas_cumprod: Tensor
    scheduler_config: SchedulerConfig = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the table and keep a float64 copy of it."""
        table = self.alphas_cumprod.detach().to("cpu", torch.float64, copy=True)
        if table.dim() != 1 or len(table) == 0:
            raise ValueError(f"alphas_cumprod must be a list of numbers, not of shape {tuple(table.shape)}")
        inside = bool(((table >= 0) & (table <= 1)).all())  # False for NaN as well
        if not inside or not bool((table.diff() < 0).all()):
            raise ValueError("alphas_cumprod must fall strictly, within [0, 1]")
        object.__setattr__(self, "alphas_cumprod", table)
        object.__setattr__(self, "scheduler_config", dict(self.scheduler_config))

    def __len__(self) -> int:
        """T, the number of noise levels."""
        return len(self.alphas_cumprod)

    @property
    def alpha(self) -> Tensor:
        """How much of the clean sample is left, √ᾱ: ``(T,)`` float64.

        >>> bool(torch.allclose(NoiseSchedule.linear().alpha**2, NoiseSchedule.linear().alphas_cumprod))
        True
        """
        return self.alphas_cumprod.sqrt()

    @property
    def sigma(self) -> Tensor:
        """The standard deviation of the noise, √(1−ᾱ): ``(T,)`` float64."""
        return (1 - self.alphas_cumprod).sqrt()

    @property
    def logsnr(self) -> Tensor:
        """log(ᾱ/(1−ᾱ)): ``(T,)`` float64; −inf where no signal is left."""
        return self.alphas_cumprod.log() - torch.log1p(-self.alphas_cumprod)

    @property
    def betas(self) -> Tensor:
        """The variance that each step adds, 1 − ᾱₜ/ᾱₜ₋₁: ``(T,)`` float64 (Ho et al. 2020)."""
        before = torch.cat([torch.ones(1, dtype=torch.float64), self.alphas_cumprod[:-1]])
        return 1 - self.alphas_cumprod / before

    @classmethod
    def from_betas(cls, betas: Tensor, scheduler_config: SchedulerConfig = _UNNAMED) -> Self:
        """From the variances ``(T,)`` that the steps add, each in (0, 1].

        Raises :class:`ValueError` when they are not.

        >>> NoiseSchedule.from_betas(torch.tensor([0.5, 0.5])).alphas_cumprod.tolist()
        [0.5, 0.25]
        """
        return cls((1 - betas.to(torch.float64)).cumprod(0), scheduler_config)

    @classmethod
    def cosine(cls, steps: int = 1000, max_beta: float = 0.999) -> Self:
        """ᾱ(t) = cos²((t/T + 0.008)/1.008 · π/2), betas capped (Nichol & Dhariwal 2021, eq. 17).

        The same as diffusers' ``squaredcos_cap_v2``: betas have a cap and no floor, and ᾱ is what remains
        after the cap. At T = 1000 the cap binds at the last step alone and decides how much signal is left
        there.

        >>> float(NoiseSchedule.cosine().alphas_cumprod[-1])
        2.428...e-09
        """

        def remaining(step: int) -> float:
            return math.cos((step / steps + 0.008) / 1.008 * math.pi / 2) ** 2

        betas = [min(1 - remaining(step + 1) / remaining(step), max_beta) for step in range(steps)]
        # diffusers can't name another cap.
        named: SchedulerConfig = {"num_train_timesteps": steps, "beta_schedule": "squaredcos_cap_v2"}
        config = named if max_beta == 0.999 else _UNNAMED
        return cls.from_betas(torch.tensor(betas, dtype=torch.float64), config)

    @classmethod
    def cosine_floored(cls, steps: int = 1000) -> Self:
        """The cosine schedule with betas clipped to [1e-4, 0.9999], as many a tutorial has it.

        The floor lifts the first ten betas or so, and with them the noise that is left at the clean end.

        >>> round(float(NoiseSchedule.cosine_floored().betas[0]), 9)
        0.0001
        """
        return cls.from_betas(cls.cosine(steps, max_beta=1.0).betas.clamp(1e-4, 0.9999))

    @classmethod
    def from_sigmas(cls, sigmas: Tensor) -> Self:
        """From noise relative to signal, √((1−ᾱ)/ᾱ) ``(T,)``, rising: what diffusers and k-diffusion call sigmas.

        Raises :class:`ValueError` when they do not rise strictly from above zero.

        >>> NoiseSchedule.from_sigmas(torch.tensor([1.0, 3.0])).alphas_cumprod.tolist()
        [0.5, 0.1]
        """
        table = sigmas.to(torch.float64)
        if not bool((table > 0).all()) or not bool((table.diff() > 0).all()):
            raise ValueError("sigmas must rise strictly, from above zero")
        return cls(1 / (1 + table**2))

    @classmethod
    def linear(cls, steps: int = 1000, beta_start: float = 1e-4, beta_end: float = 0.02) -> Self:
        """Betas at equal distances (Ho et al. 2020).

        >>> float(NoiseSchedule.linear().alphas_cumprod[-1])
        4.0358...e-05
        """
        betas = torch.linspace(beta_start, beta_end, steps, dtype=torch.float64)
        return cls.from_betas(betas, _named("linear", steps, beta_start, beta_end))

    @classmethod
    def scaled_linear(cls, steps: int = 1000, beta_start: float = 0.00085, beta_end: float = 0.012) -> Self:
        """Square roots of betas at equal distances (Rombach et al. 2022); defaults as in Stable Diffusion.

        >>> float(NoiseSchedule.scaled_linear().alphas_cumprod[-1])
        0.00466...
        """
        betas = torch.linspace(beta_start**0.5, beta_end**0.5, steps, dtype=torch.float64) ** 2
        return cls.from_betas(betas, _named("scaled_linear", steps, beta_start, beta_end))

    @classmethod
    def from_diffusers(cls, scheduler: object) -> "NoiseSchedule":
        """The training levels of a diffusers scheduler that has ``alphas_cumprod``.

        A schedule that has a name is built anew in float64; another one is read from its float32 table.

        Raises :class:`ValueError` for a scheduler without such a table (flow matching, EDM), naming it.

        >>> from diffusers import DDPMScheduler
        >>> schedule = NoiseSchedule.from_diffusers(DDPMScheduler(beta_schedule="squaredcos_cap_v2"))
        >>> bool(torch.equal(schedule.alphas_cumprod, NoiseSchedule.cosine().alphas_cumprod))
        True
        """
        table = getattr(scheduler, "alphas_cumprod", None)
        if not isinstance(table, Tensor):
            raise ValueError(f"{type(scheduler).__name__} has no alphas_cumprod: it is no discrete diffusion schedule")
        config = dict(getattr(scheduler, "config", {}))
        name = None if config.get("trained_betas") is not None else config.get("beta_schedule")
        found: NoiseSchedule
        match name:
            case "linear":
                found = cls.linear(len(table), float(config["beta_start"]), float(config["beta_end"]))
            case "scaled_linear":
                found = cls.scaled_linear(len(table), float(config["beta_start"]), float(config["beta_end"]))
            case "squaredcos_cap_v2":
                found = cls.cosine(len(table))
            case _:
                return NoiseSchedule(table)  # as it is, rescaled or not
        return found.zero_terminal_snr() if config.get("rescale_betas_zero_snr") else found

    def zero_terminal_snr(self) -> "NoiseSchedule":
        """The same schedule stretched so that its last level is pure noise (Lin et al. 2023, algorithm 1).

        Such a schedule needs a network that predicts v or x0: at the last level nothing can be learnt from
        predicting the noise that is already the input.

        Raises :class:`ValueError` when the schedule has a single level.

        >>> float(NoiseSchedule.scaled_linear().zero_terminal_snr().alphas_cumprod[-1])
        0.0
        """
        if len(self) < 2:
            raise ValueError("a schedule of a single level can't be stretched to zero terminal SNR")
        alpha = self.alpha
        alpha = (alpha - alpha[-1]) * (alpha[0] / (alpha[0] - alpha[-1]))
        config = {**self.scheduler_config, "rescale_betas_zero_snr": True} if self.scheduler_config else _UNNAMED
        return NoiseSchedule(alpha**2, config)

    def to_diffusers_config(self) -> dict[str, bool | int | float | str | list[float]]:
        """The keys of a diffusers ``scheduler_config.json`` that describe this schedule.

        A schedule of zero terminal SNR needs a scheduler that knows ``rescale_betas_zero_snr`` (DDIM, DDPM,
        Euler, DPM-Solver++, UniPC, …); diffusers' multistep and Euler ones replace its ᾱ of zero by 2⁻²⁴.

        >>> NoiseSchedule.cosine().to_diffusers_config()
        {'num_train_timesteps': 1000, 'beta_schedule': 'squaredcos_cap_v2'}
        """
        if self.scheduler_config:
            return dict(self.scheduler_config)
        return {"num_train_timesteps": len(self), "trained_betas": [float(beta) for beta in self.betas]}


def _named(name: str, steps: int, beta_start: float, beta_end: float) -> SchedulerConfig:
    return {
        "num_train_timesteps": steps,
        "beta_schedule": name,
        "beta_start": beta_start,
        "beta_end": beta_end,
    }
