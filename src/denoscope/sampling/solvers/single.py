"""Solvers that look at the present step alone.

In z = α·x0 + σ·ε the probability-flow ODE is dz = x0·dα + ε·dσ for every family of levels. A step that holds x0 and ε
still is DDIM, DPM-Solver++ of first order, and Euler's method in EDM's coordinates, all at once.
"""

import math
from typing import Literal

from torch import Tensor

from denoscope.sampling.levels import Level
from denoscope.sampling.loop import Record, Solver, Step


def falling(here: Level, there: Level) -> float:
    """r'/r of two levels' noise-to-signal ratios, e^(−h) in the terms of DPM-Solver; 0 from pure noise or to none.

    >>> falling(Level(0.0, 1.0), Level(0.6, 0.8)), falling(Level(1.0, 4.0), Level(1.0, 1.0))
    (0.0, 0.25)
    """
    return (there.sigma * here.alpha) / (there.alpha * here.sigma)


def move(record: Record, there: Level) -> Tensor:
    """The record's x0 and ε at another level."""
    # (σ'/σ)·z + (α' − α·σ'/σ)·x0: exact where α or σ' is zero.
    scale = there.sigma / record.level.sigma
    return scale * record.z + (there.alpha - record.level.alpha * scale) * record.x0


def ddim(eta: float = 0.0) -> Solver:
    """DDIM (Song et al. 2021, eq. 12 and 16): deterministic at ``eta = 0``, DDPM's ancestral sampler at 1.

    The noise has variance η²·(1−ᾱ')/(1−ᾱ)·(1−ᾱ/ᾱ') for a variance-preserving grid. At η = 0 none is drawn. The same as
    Euler's method of EDM and, at η = 1, as "Euler ancestral".

    Raises :class:`ValueError` when ``eta`` is not in [0, 1].
    """
    if not 0 <= eta <= 1:
        raise ValueError(f"eta must be in [0, 1], not {eta!r}")

    def step(step: Step, z: Tensor) -> Tensor:
        record, there = step.observe(z), step.there
        if eta == 0 or there.sigma == 0:
            return move(record, there)
        up = eta * math.sqrt(1 - falling(step.here, there) ** 2)  # share of σ' that is fresh noise
        kept = math.sqrt(1 - up**2)
        return there.alpha * record.x0 + there.sigma * (kept * record.epsilon + up * step.noise(z))

    return step


def ddpm(variance: Literal["fixed_small", "fixed_large"] = "fixed_small") -> Solver:
    """Ancestral sampling (Ho et al. 2020, algorithm 2): the posterior's mean and one of its two bounds on variance.

    ``fixed_small`` is exact for data that is one point, ``fixed_large`` for data that is standard normal. The last step
    draws no noise where it ends at none.

    Raises :class:`ValueError` for another name.
    """
    if variance == "fixed_small":
        return ddim(eta=1.0)
    if variance != "fixed_large":
        raise ValueError(f"unknown variance {variance!r}; known are fixed_small, fixed_large")

    def step(step: Step, z: Tensor) -> Tensor:
        record, here, there = step.observe(z), step.here, step.there
        mean = there.alpha * record.x0 + there.sigma * falling(here, there) * record.epsilon
        if there.sigma == 0:
            return mean
        # The variance of z given z' (for variance-preserving levels: β).
        forward = here.sigma**2 - (here.alpha / there.alpha * there.sigma) ** 2
        return mean + math.sqrt(forward) * step.noise(z)

    return step


def heun(churn: float = 0.0, churn_range: tuple[float, float] = (0.0, math.inf), noise_scale: float = 1.0) -> Solver:
    """Heun's method, second order, two evaluations a step (Karras et al. 2022, algorithms 1 and 2).

    With ``churn`` (S_churn) noise is added before each step whose σ/α lies in ``churn_range``, at most so much that σ/α
    grows by the factor √2.

    The last step, to no noise, is Euler's.
    """

    def step(step: Step, z: Tensor) -> Tensor:
        here, there = step.here, step.there
        gamma = min(churn / len(step.grid), math.sqrt(2) - 1)
        if gamma > 0 and churn_range[0] <= here.ratio <= churn_range[1] and math.isfinite(here.ratio):
            raised = here.at_ratio(here.ratio * (1 + gamma))
            z = z + noise_scale * math.sqrt(raised.sigma**2 - here.sigma**2) * step.noise(z)
            record = step.evaluate(z, raised)
            step.records.append(record)
        else:
            record = step.observe(z)
        ahead = move(record, there)
        if there.sigma == 0:
            return ahead
        then = step.evaluate(ahead, there)
        # Trapezoidal rule for ∫ x0 dα + ε dσ.
        return ahead + 0.5 * (
            (there.alpha - record.level.alpha) * (then.x0 - record.x0)
            + (there.sigma - record.level.sigma) * (then.epsilon - record.epsilon)
        )

    return step


def dpm2() -> Solver:
    """The midpoint method, at the geometric mean of both σ/α: second order, two evaluations a step.

    It is DPM-Solver-2 (Lu et al. 2022, algorithm 1) in EDM's coordinates, as in k-diffusion. Steps from pure noise or
    to no noise, which have no middle, are Euler's.
    """

    def step(step: Step, z: Tensor) -> Tensor:
        here, there, record = step.here, step.there, step.observe(z)
        between = _middle(here, there)
        if between is None:
            return move(record, there)
        middle = step.evaluate(move(record, between), between)
        return z + (there.alpha - here.alpha) * middle.x0 + (there.sigma - here.sigma) * middle.epsilon

    return step


def dpmpp_2s() -> Solver:
    """DPM-Solver++(2S) with its middle at half the logsnr (Lu et al. 2022b, algorithm 1): two evaluations a step.

    Steps from pure noise or to no noise are of first order.
    """

    def step(step: Step, z: Tensor) -> Tensor:
        here, there, record = step.here, step.there, step.observe(z)
        between = _middle(here, there)
        if between is None:
            return move(record, there)
        middle = step.evaluate(move(record, between), between)
        return move(Record(here, z, middle.x0), there)

    return step


def _middle(here: Level, there: Level) -> Level | None:
    """The level at half the logsnr between two, on the straight line or the circle that they lie on."""
    if here.alpha == 0 or there.sigma == 0:
        return None
    ratio = math.sqrt(here.ratio * there.ratio)
    if here.alpha == there.alpha:
        return here.at_ratio(ratio)
    powers = [level.alpha**2 + level.sigma**2 for level in (here, there)]
    if math.isclose(powers[0], powers[1], rel_tol=1e-9):
        alpha = math.sqrt(powers[0] / (1 + ratio**2))
    else:
        # α and σ on a straight line: α + c·σ is constant.
        slope = (there.alpha - here.alpha) / (there.sigma - here.sigma)
        alpha = (here.alpha - slope * here.sigma) / (1 - slope * ratio)
    return Level(alpha, alpha * ratio)
