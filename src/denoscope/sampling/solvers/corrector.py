"""Predictor–corrector sampling (Song et al. 2021, "Score-based generative modeling through SDEs")."""

import math

from torch import Tensor

from denoscope.sampling.loop import Solver, Step


def with_langevin(predictor: Solver, steps: int = 1, snr: float = 0.16) -> Solver:
    """A solver whose every step is followed by ``steps`` Langevin steps at the level it reached.

    The step's size is 2·(snr·‖n‖/‖score‖)², with each sample's own norms: the paper's algorithms 4
    and 5 average them over the batch, which would make a sample depend on its company. After the last
    step, where no noise is left, nothing is corrected.

    Raises :class:`ValueError` when ``steps`` is below 1 or ``snr`` is not positive.
    """
    if steps < 1 or not snr > 0:
        raise ValueError(f"steps must be at least 1 and snr positive, not {steps!r} and {snr!r}")

    def step(step: Step, z: Tensor) -> Tensor:
        z, there = predictor(step, z), step.there
        for _ in range(steps if there.sigma > 0 else 0):
            score = -step.evaluate(z, there).epsilon / there.sigma
            noise = step.noise(z)
            size = 2 * (snr * _norm(noise) / _norm(score).clamp(min=1e-12)) ** 2
            z = z + size * score + (2 * size).sqrt() * noise
        return z

    return step


def _norm(sample: Tensor) -> Tensor:
    """Each sample's norm over everything but the batch, shaped to multiply it."""
    flat = sample.flatten(1).norm(dim=1) / math.sqrt(max(1, sample[0].numel()))
    return flat.reshape(-1, *[1] * (sample.dim() - 1))
