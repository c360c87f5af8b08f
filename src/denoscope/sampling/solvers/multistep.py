"""Solvers that reuse the denoiser's earlier answers: one evaluation a step."""

import math
from typing import Final, Literal

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from denoscope.sampling.levels import Level
from denoscope.sampling.loop import Record, Solver, Step
from denoscope.sampling.solvers.single import falling, move

Variable = Literal["ratio", "log"]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
FEW_STEPS: Final = 15
"""Below so many steps DPM-Solver++ ends with lower orders, for stability (Lu et al. 2022b, appendix)."""


def adams(order: int = 4, variable: Variable = "ratio", lower_order_final: bool = False) -> Solver:
    """Linear multistep: ε as a polynomial through the last ``order`` answers, integrated over σ/α exactly.

    With the polynomial in σ/α it is LMS of k-diffusion, with one in log(σ/α) DEIS (Zhang & Chen 2023, eq. 15, with
    log ρ). The first steps have fewer answers to go by; from pure noise a step is Euler's.

    Raises :class:`ValueError` when ``order`` is not 1 to 4 or the variable is unknown.
    """
    if not 1 <= order <= 4:
        raise ValueError(f"order must be 1 to 4, not {order}")
    if variable not in ("ratio", "log"):
        raise ValueError(f"unknown variable {variable!r}; known are ratio, log")

    def step(step: Step, z: Tensor) -> Tensor:
        record, here, there = step.observe(z), step.here, step.there
        usable = _usable(order, step, lower_order_final)
        past = [known for known in list(step.records)[-usable:] if known.level.alpha > 0]
        if here.alpha == 0:
            return move(record, there)
        weights = adams_weights([known.level.ratio for known in past], here.ratio, there.ratio, variable)
        integral = sum((w * known.epsilon for w, known in zip(weights, past, strict=True)), torch.zeros_like(z))
        return there.alpha * (z / here.alpha + integral)

    return step


def adams_weights(nodes: list[float], start: float, end: float, variable: Variable) -> list[float]:
    """∫ from ``start`` to ``end`` of each Lagrange polynomial of the nodes, over r = σ/α.

    The polynomials are in r or in log r. Log r has no end at 0: there, what the nearest node says is held.

    >>> adams_weights([1.0], 1.0, 0.25, "ratio")
    [-0.75]
    >>> [round(w, 6) for w in adams_weights([3.0, 2.0], 2.0, 1.0, "ratio")]
    [0.5, -1.5]
    """
    if variable == "log" and end == 0:
        return [0.0] * (len(nodes) - 1) + [end - start]
    scale = (lambda r: r) if variable == "ratio" else np.log
    places = scale(np.array(nodes))
    if variable == "ratio":
        points, weights = (start + end) / 2 + (end - start) / 2 * _NODES, (end - start) / 2 * _WEIGHTS
        at = points
    else:
        low, high = math.log(start), math.log(end)
        at = (low + high) / 2 + (high - low) / 2 * _NODES
        weights = (high - low) / 2 * _WEIGHTS * np.exp(at)  # dr = r d(log r)
    result = []
    for k, node in enumerate(places):
        others = np.delete(places, k)
        lagrange = Polynomial.fromroots(others) if len(others) else Polynomial([1.0])
        result.append(float((weights * lagrange(at)).sum() / lagrange(node)))
    return result


def dpmpp_2m(eta: float = 0.0, lower_order_final: bool = True) -> Solver:
    """DPM-Solver++(2M) (Lu et al. 2022b, algorithm 2), midpoint form; with ``eta`` > 0 its SDE form."""
    return _exponential(2, eta, lower_order_final)


def dpmpp_3m(eta: float = 0.0, lower_order_final: bool = True) -> Solver:
    """DPM-Solver++(3M), the third-order multistep solver; with ``eta`` > 0 its SDE form."""
    return _exponential(3, eta, lower_order_final)


def _exponential(order: int, eta: float, lower_order_final: bool) -> Solver:
    """x0 as a polynomial in λ = log(α/σ), integrated with the weight e^λ that the ODE has.

    With λ' − λ = h, H = (1 + η)·h and q = e^(−h):
    z' = (σ'/σ)·q^η·z + α'·[(1 − e^(−H))·x0 + φ₂·D₁ − φ₃·D₂] + σ'·√(1 − q^(2η))·n.
    """
    if not 0 <= eta <= 1:
        raise ValueError(f"eta must be in [0, 1], not {eta!r}")

    def step(step: Step, z: Tensor) -> Tensor:
        record, here, there = step.observe(z), step.here, step.there
        q, usable = falling(here, there), _usable(order, step, lower_order_final)
        if q == 0:  # from pure noise, or to none: h is infinite
            usable = 1
        growth = 1 - q ** (1 + eta)
        change = growth * record.x0
        if usable > 1:
            change = change + _corrections(list(step.records)[-usable:], -math.log(q), 1 + eta)
        result = there.sigma / here.sigma * q**eta * z + there.alpha * change
        if eta > 0 and there.sigma > 0:
            result = result + there.sigma * math.sqrt(1 - q ** (2 * eta)) * step.noise(z)
        return result

    return step


def _corrections(records: list[Record], h: float, stretch: float) -> Tensor:
    """What the second and third order add to the first one's (1 − e^(−H))·x0.

    The third order integrates x0 ≈ m + s·D₁ + s²·D₂, s = (λ − λ₀)/h, exactly. The published code has half of the last
    term, which leaves it of second order.
    """
    stretched = stretch * h
    growth = -math.expm1(-stretched)
    now, before = records[-1], records[-2]
    near = _distance(before.level, now.level) / h
    first = (now.x0 - before.x0) / near
    if len(records) == 2 or records[-3].level.alpha == 0:
        return 0.5 * growth * first
    far = _distance(records[-3].level, before.level) / h
    curve = (first - (before.x0 - records[-3].x0) / far) / (near + far)
    phi2 = 1 - growth / stretched
    return phi2 * (first + near * curve) + (1 - 2 * phi2 / stretched) * curve


def _usable(order: int, step: Step, lower_order_final: bool) -> int:
    """How many answers a step may look at."""
    usable = min(order, len(step.records))
    ending = lower_order_final and len(step.grid) < FEW_STEPS
    return min(usable, len(step.grid) - step.index) if ending else usable


def _distance(noisier: Level, cleaner: Level) -> float:
    """λ of the cleaner level minus that of the noisier one."""
    return (cleaner.logsnr - noisier.logsnr) / 2


def plms() -> Solver:
    """Pseudo linear multistep, fourth order (Liu et al. 2022, "PNDM"): Adams–Bashforth on ε, for equal timesteps.

    The first step takes two evaluations, as there is no past to go by. The coefficients presume steps of equal length
    in the timestep: give it a grid of evenly spaced timesteps.
    """
    coefficients = ([1.0], [3 / 2, -1 / 2], [23 / 12, -16 / 12, 5 / 12], [55 / 24, -59 / 24, 37 / 24, -9 / 24])

    def step(step: Step, z: Tensor) -> Tensor:
        record, here, there = step.observe(z), step.here, step.there
        past = list(step.records)[::-1][:4]
        if len(past) == 1 and there.sigma > 0:
            ahead = step.evaluate(move(record, there), there)
            epsilon = (record.epsilon + ahead.epsilon) / 2
        else:
            parts = [weight * known.epsilon for weight, known in zip(coefficients[len(past) - 1], past, strict=True)]
            epsilon = torch.stack(parts).sum(0)
        if here.alpha == 0:
            return move(record, there)
        x0 = (z - here.sigma * epsilon) / here.alpha
        return move(Record(here, z, x0), there)

    return step
