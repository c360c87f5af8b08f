"""UniPC: a predictor of any order and a corrector that costs no evaluation (Zhao et al. 2023)."""

import math

import torch
from torch import Tensor

from denoscope.sampling.levels import Level
from denoscope.sampling.loop import Record, Solver, Step
from denoscope.sampling.solvers.single import falling, move


def unipc(order: int = 2, lower_order_final: bool = True) -> Solver:
    """UniPC with B₂(h) = e^h − 1 on predictions of x0 (Zhao et al. 2023, algorithms 5 to 8).

    Each step first corrects the sample that the step before predicted, now that the denoiser was asked there, and then
    predicts the next one. Steps from pure noise or to no noise are of first order and are not corrected.

    Raises :class:`ValueError` when ``order`` is not 1, 2 or 3.
    """
    if order not in (1, 2, 3):
        raise ValueError(f"order must be 1, 2 or 3, not {order}")

    def step(step: Step, z: Tensor) -> Tensor:
        left = len(step.grid) - step.index
        answer = step.evaluate(z, step.here)
        past = list(step.records)
        if past:
            # The order with which the step before predicted.
            used = _order(order, len(past), left + 1, lower_order_final)
            z = _advance(past[-used:], answer)
        step.records.append(Record(step.here, z, answer.x0))
        used = _order(order, len(step.records), left, lower_order_final)
        return _advance(list(step.records)[-used:], step.there)

    return step


def _order(order: int, known: int, left: int, lower_order_final: bool) -> int:
    return min(order, known, left) if lower_order_final else min(order, known)


def _advance(records: list[Record], to: Level | Record) -> Tensor:
    """From the last record to a level; with the denoiser's answer there (a record), corrected by it."""
    now, there = records[-1], to if isinstance(to, Level) else to.level
    q = falling(now.level, there)
    plain = move(now, there)
    if q == 0:
        return plain
    h = -math.log(q)
    distances = [(record.level.logsnr - now.level.logsnr) / 2 / h for record in records[:-1]]
    changes = [
        (record.x0 - now.x0) / distance
        for record, distance in zip(records[:-1], distances, strict=True)
        if math.isfinite(distance)
    ]
    places = [distance for distance in distances if math.isfinite(distance)]
    if isinstance(to, Record):
        places, changes = [*places, 1.0], [*changes, to.x0 - now.x0]
    if not places:
        return plain
    weights = [0.5] if len(places) == 1 else _weights(places, h)
    combined = torch.stack([weight * change for weight, change in zip(weights, changes, strict=True)]).sum(0)
    return plain + there.alpha * -math.expm1(-h) * combined


def _weights(places: list[float], h: float) -> list[float]:
    """Solve eq. 8: Σ ρ_m r_m^(k−1) = k!·φ_{k+1}(−h)/B, for k = 1 … number of places."""
    base = math.expm1(-h)
    phi, factorial, wanted = base / -h - 1, 1.0, []
    for k in range(1, len(places) + 1):
        wanted.append(phi * factorial / base)
        factorial *= k + 1
        phi = phi / -h - 1 / factorial
    rows = torch.tensor(
        [[place ** (k - 1) for place in places] for k in range(1, len(places) + 1)], dtype=torch.float64
    )
    solved: list[float] = torch.linalg.solve(rows, torch.tensor(wanted, dtype=torch.float64)).tolist()
    return solved
