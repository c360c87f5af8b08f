"""Averages put together after training, against averages kept from the start and against their definition."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import nn

from denoscope.training.checkpoints import CheckpointError
from denoscope.training.draws import Draws
from denoscope.training.ema import Ema, power_exponent, power_function
from denoscope.training.posthoc import _product, mixing_coefficients, posthoc_average
from denoscope.training.trainer import TrainerConfig, train


@pytest.mark.parametrize("sigma_rel", [0.02, 0.05, 0.1, 0.25])
def test_the_exponent_gives_the_width(sigma_rel: float) -> None:
    """The profile (γ + 1)·t^γ on [0, 1] integrated numerically: its standard deviation is sigma_rel."""
    gamma = power_exponent(sigma_rel)
    moments = [quad(lambda t, k=k: (gamma + 1) * t ** (gamma + k), 0, 1, epsabs=1e-13)[0] for k in (0, 1, 2)]
    assert moments[0] == pytest.approx(1)
    assert np.sqrt(moments[2] - moments[1] ** 2) == pytest.approx(sigma_rel, rel=1e-6)


def test_widths_that_no_power_has_are_refused() -> None:
    for sigma_rel in (0.0, 0.3, -0.1):
        with pytest.raises(ValueError, match=r"between 0 and 0\.2886"):
            power_exponent(sigma_rel)


def test_products_of_profiles_are_integrals() -> None:
    for a, b in (((50, 16.97), (80, 6.94)), ((80, 3.0), (50, 30.0)), ((7, 1.0), (7, 2.0))):

        def both(t: float, a: tuple[int, float] = a, b: tuple[int, float] = b) -> float:
            return float(math.prod([(g + 1) * t**g / end ** (g + 1) for end, g in (a, b)]))

        assert _product(a, b) == pytest.approx(quad(both, 0, min(a[0], b[0]))[0], rel=1e-6)
        assert _product(a, b) == _product(b, a)


def test_a_running_average_has_the_profile_of_its_power() -> None:
    """Fed with the step number itself, the average is the profile's mean, (γ + 1)/(γ + 2)·t."""
    layer = nn.Linear(1, 1, bias=False).double()
    ema = Ema(layer, power_function(0.1))
    for step in range(1, 2001):
        with torch.no_grad():
            layer.weight.fill_(step)
        ema.update()
    gamma = power_exponent(0.1)
    assert float(ema.average["weight"]) == pytest.approx((gamma + 1) / (gamma + 2) * 2000, rel=1e-3)


def test_put_together_average_equals_the_one_kept_all_along(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1))
    kept = Ema(net, power_function(0.08))

    def loss(net: nn.Module, draws: Draws) -> torch.Tensor:
        x = draws.noise(torch.zeros(len(draws.rows), 3))
        predicted: torch.Tensor = net(x)[:, 0]
        return (predicted - x.prod(1)).square()

    config = TrainerConfig(
        steps=400, warmup=5, final_lr_fraction=1, batch_size=16, sigma_rels=(0.05, 0.1), snapshot_every=50
    )
    train(net, loss, config, tmp_path / "state.safetensors", lambda done: kept.update())
    mixed = posthoc_average(tmp_path / "snapshots", 0.08)
    last, wanted, found = (
        torch.cat([weights[name].flatten() for name in kept.average])
        for weights in (net.state_dict(), kept.average, mixed)
    )
    assert float((found - wanted).norm()) < 0.01 * float((last - wanted).norm())


def test_coefficients_find_a_snapshot_that_is_the_wanted_one() -> None:
    profiles = [(100, 17.0), (100, 7.0), (200, 17.0), (200, 7.0)]
    np.testing.assert_allclose(mixing_coefficients(profiles, (200, 17.0)), [0, 0, 1, 0], atol=1e-7)


def test_no_snapshots_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no snapshots"):
        posthoc_average(tmp_path, 0.1)
