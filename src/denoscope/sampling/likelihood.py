"""Exact likelihood along the probability-flow ODE (Song et al. 2021, eq. 39; Chen et al. 2018).

In EDM's coordinates y = z/α the ODE is dy/dr = (y − D(y; r))/r, and log p(y₀) = log p(y_R) + ∫ div(dy/dr) dr from the
cleanest level to the noisiest, where data is drowned and p(y_R) is normal.
"""

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from denoscope.sampling.levels import Grid, Level
from denoscope.sampling.loop import Denoise
from denoscope.sampling.noise import NoiseSource


def log_likelihood(
    denoise: Denoise,
    clean: Tensor,
    grid: Grid,
    *,
    divergence: Literal["exact", "hutchinson"] = "hutchinson",
    seeds: list[int] | None = None,
    probes: int = 1,
    prior: tuple[float, float] = (0.0, 0.0),
) -> Tensor:
    """log p of each sample in nats, ``(B,)`` float64, by Heun's method along ``grid`` from its end to its start.

    Samples are ``(B, …)``. The grid must end with some noise: what is measured is the density of data with that noise,
    in units of z/α. It must start where the data is drowned: ``prior`` is the data's mean and variance, which are added
    to the noise's there. ``exact`` takes a backward pass for each of a sample's numbers, ``hutchinson`` one for each
    probe of Rademacher signs, drawn from each sample's seed; its error has mean zero.

    Raises :class:`ValueError` when the grid ends without noise or starts from pure noise, or seeds are missing.
    """
    start, end = grid[0], grid[len(grid)]
    if end.sigma == 0 or start.alpha == 0:
        raise ValueError("likelihood needs a grid that starts with some signal and ends with some noise")
    if divergence == "hutchinson":
        if seeds is None or len(seeds) != len(clean):
            raise ValueError(f"Hutchinson's estimator needs a seed for each of {len(clean)} samples")
        source = NoiseSource(seeds)
        signs = [source.draw(clean).sign() for _ in range(probes)]
    else:
        signs = []
    y = clean.double()
    total = torch.zeros(len(clean), dtype=torch.float64, device=clean.device)
    ratios = [level.ratio for level in grid][::-1]
    for here, there in pairwise(ratios):
        slope, spread = _slope(denoise, y, here, signs)
        ahead_slope, ahead_spread = _slope(denoise, y + (there - here) * slope, there, signs)
        y = y + (there - here) * (slope + ahead_slope) / 2
        total = total + (there - here) * (spread + ahead_spread) / 2
    mean, variance = prior
    variance = variance + ratios[-1] ** 2
    size = clean[0].numel()
    squares = (y - mean).square().flatten(1).sum(1)
    return total - squares / (2 * variance) - size / 2 * math.log(2 * math.pi * variance)


def bits_per_dim(log_p: Tensor, size: int, bin_width: float = 2 / 255) -> Tensor:
    """Nats of a density as bits for each of a sample's ``size`` numbers, for data in bins of ``bin_width``: ``(B,)``.

    The density must be that of dequantised data; pictures in [−1, 1] have bins of 2/255.

    >>> log_p = torch.tensor([10 * math.log(255 / 2)])  # uniform within one bin, ten numbers
    >>> abs(float(bits_per_dim(log_p, 10))) < 1e-6
    True
    """
    return -(log_p / size + math.log(bin_width)) / math.log(2)


def _slope(denoise: Denoise, y: Tensor, ratio: float, signs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """dy/dr and its divergence, ``(B, …)`` and ``(B,)``."""
    level = Level(1.0, ratio)
    with torch.enable_grad():
        y = y.detach().requires_grad_()
        slope = (y - denoise(y, level)) / ratio
        found = torch.zeros(len(y), dtype=y.dtype, device=y.device)
        if signs:
            for sign in signs:
                (grad,) = torch.autograd.grad(slope, y, sign.to(slope), retain_graph=True)
                found = found + (grad * sign).flatten(1).sum(1) / len(signs)
        else:
            flat = slope.flatten(1)
            for k in range(flat.shape[1]):
                (grad,) = torch.autograd.grad(flat[:, k].sum(), y, retain_graph=True)
                found = found + grad.flatten(1)[:, k]
    return slope.detach(), found.detach()
