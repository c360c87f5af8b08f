"""Likelihood along the ODE against normal densities."""

import math

import pytest
import scipy.stats
import torch
from torch import Tensor

from denoscope.sampling import Grid, Level
from denoscope.sampling.likelihood import bits_per_dim, log_likelihood
from denoscope.sampling.spacing import karras_ratios

MEAN, STD, END = 0.3, 0.5, 0.02
COUPLED = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)


def grid(steps: int) -> Grid:
    return Grid.from_ratios(karras_ratios(steps + 1, END, 80.0)[:-1], "ve")


def exact(z: Tensor, level: Level) -> Tensor:
    return MEAN + STD**2 / (STD**2 + level.sigma**2) * (z - MEAN)


def coupled(z: Tensor, level: Level) -> Tensor:
    gain = COUPLED @ torch.linalg.inv(COUPLED + level.sigma**2 * torch.eye(2, dtype=torch.float64))
    found: Tensor = z @ gain.T
    return found


def clean() -> Tensor:
    return MEAN + STD * torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def density(x: Tensor) -> Tensor:
    spread = math.sqrt(STD**2 + END**2)
    return torch.tensor(scipy.stats.norm.logpdf(x.numpy(), MEAN, spread).reshape(len(x), -1).sum(1))


def test_exact_divergence_gives_the_density_and_is_of_second_order() -> None:
    errors = []
    for steps in (32, 64):
        found = log_likelihood(exact, clean(), grid(steps), divergence="exact", prior=(MEAN, STD**2))
        errors.append(float((found - density(clean())).abs().max()))
    assert errors[1] < 0.1
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.3)


def test_hutchinson_is_exact_where_dimensions_are_apart() -> None:
    # A diagonal Jacobian: signs cancel, whatever they are.
    found = log_likelihood(exact, clean(), grid(64), seeds=list(range(5)), prior=(MEAN, STD**2))
    wanted = log_likelihood(exact, clean(), grid(64), divergence="exact", prior=(MEAN, STD**2))
    torch.testing.assert_close(found, wanted)


def test_hutchinson_is_right_on_average_where_they_are_not() -> None:
    x = torch.tensor([[0.4, -0.1]], dtype=torch.float64)
    noisy = COUPLED + END**2 * torch.eye(2, dtype=torch.float64)
    truth = float(scipy.stats.multivariate_normal.logpdf(x.numpy()[0], [0.0, 0.0], noisy.numpy()))
    whole = log_likelihood(coupled, x, grid(100), divergence="exact", prior=(0.0, 0.4))
    assert float(whole) == pytest.approx(truth, abs=0.02)
    many = log_likelihood(coupled, x.expand(400, 2), grid(100), seeds=list(range(400)), prior=(0.0, 0.4))
    assert float(many.std()) > 0
    assert float(many.mean()) == pytest.approx(float(whole), abs=4 * float(many.std()) / 20)


def test_a_sample_s_estimate_belongs_to_its_seed() -> None:
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    together = log_likelihood(coupled, x, grid(10), seeds=[1, 2, 3])
    alone = log_likelihood(coupled, x[1:2], grid(10), seeds=[2])
    torch.testing.assert_close(together[1:2], alone)


def test_bits_per_dim_of_uniform_pixels() -> None:
    # 256 values alike, each a bin of 2/255: 8 bits.
    log_p = torch.tensor([-12 * math.log(256 * 2 / 255)])
    assert float(bits_per_dim(log_p, 12)) == pytest.approx(8)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="seed for each of 5"):
        log_likelihood(exact, clean(), grid(4))
    with pytest.raises(ValueError, match="ends with some noise"):
        log_likelihood(exact, clean(), Grid.from_ratios([2.0, 0.0]), divergence="exact")
    with pytest.raises(ValueError, match="starts with some signal"):
        log_likelihood(exact, clean(), Grid.from_ratios([math.inf, 1.0]), divergence="exact")
