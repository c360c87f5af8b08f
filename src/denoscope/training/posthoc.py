"""Averages of weights of any width, put together after training (Karras et al. 2024, section 3.2 and appendix C)."""

import re
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from denoscope.training.checkpoints import CheckpointError, read_tensors, write_tensors
from denoscope.training.ema import Ema, power_exponent

_NAME: Final = re.compile(r"(\d+)-([0-9.]+)\.safetensors")


def save_snapshot(folder: Path, average: Ema, sigma_rel: float) -> Path:
    """Write a power-function average as ``STEP-SIGMA_REL.safetensors``; returns its path.

    Raises :class:`CheckpointError` when the disk refuses.
    """
    path = folder / f"{average.updates:08d}-{sigma_rel:g}.safetensors"
    write_tensors(path, average.average, {})
    return path


def posthoc_average(folder: Path, sigma_rel: float, step: int | None = None) -> dict[str, Tensor]:
    """The weights averaged with a width of ``sigma_rel`` at ``step`` (the last one), from the snapshots in ``folder``.

    Each snapshot is the weights' history averaged by a known profile; the wanted profile is fitted by them in least
    squares, and the snapshots are mixed with the same coefficients (algorithm 3). Snapshots after ``step`` are not
    looked at. Memory: two sets of weights.

    Raises :class:`CheckpointError` when there is no snapshot at or before ``step``, or one can't be read.
    """
    found = sorted((int(m[1]), float(m[2]), path) for path in folder.glob("*") if (m := _NAME.fullmatch(path.name)))
    used = [entry for entry in found if step is None or entry[0] <= step]
    if not used:
        raise CheckpointError(f"{folder} holds no snapshots{'' if step is None else f' up to step {step}'}")
    coefficients = mixing_coefficients(
        [(t, power_exponent(width)) for t, width, _ in used],
        (used[-1][0] if step is None else step, power_exponent(sigma_rel)),
    )
    mixed: dict[str, Tensor] = {}
    for (_, _, path), coefficient in zip(used, coefficients, strict=True):
        for name, value in read_tensors(path)[0].items():
            if not value.is_floating_point():
                mixed[name] = value
                continue
            share = value.double() * float(coefficient)
            mixed[name] = mixed[name] + share if name in mixed else share
    return {name: value.float() if value.is_floating_point() else value for name, value in mixed.items()}


def mixing_coefficients(profiles: list[tuple[int, float]], wanted: tuple[int, float]) -> NDArray[np.float64]:
    """How much of each profile (t, γ) makes up the ``wanted`` one best, in least squares: ``(len(profiles),)``.

    A profile (t, γ) weighs the weights of time τ ≤ t by (γ + 1)·τ^γ/t^(γ + 1).

    >>> abs(mixing_coefficients([(100, 16.97), (100, 6.94)], (100, 6.94)).round(6)).tolist()
    [0.0, 1.0]
    """
    # Bordered by the condition that they add up to one, so that weights which never moved come out as they are.
    n = len(profiles)
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = [[_product(a, b) for b in profiles] for a in profiles]
    system[n, n] = 0
    against = np.array([_product(a, wanted) for a in profiles] + [1.0])
    return np.linalg.lstsq(system, against, rcond=1e-12)[0][:n]


def _product(a: tuple[int, float], b: tuple[int, float]) -> float:
    """∫ of the product of two profiles, by powers of the ratio of their times, which can't overflow."""
    (t_a, gamma_a), (t_b, gamma_b) = sorted((a, b))
    shrink = (t_a / t_b) ** (gamma_b + 1) / t_a
    return (gamma_a + 1) * (gamma_b + 1) / (gamma_a + gamma_b + 1) * shrink
