"""Intervals of the Fréchet distance against the spread over many sets, and its limit against closed forms."""

import numpy as np
import pytest
from numpy.typing import NDArray

from denoscope.metrics import FeatureError, Moments, frechet_at_infinity, frechet_distance, frechet_interval
from denoscope.metrics.frechet import frechet_from_moments
from denoscope.metrics.frechet_interval import frechet_influences

Array = NDArray[np.float64]


def test_influences_are_the_derivative() -> None:
    """Against the change of the distance when one feature gets a little more weight."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3)), rng.normal(size=(50, 3)) + 0.3

    def weighted(weights: Array, x: Array) -> Moments:
        mean = weights @ x
        return Moments(len(x), mean, (x - mean).T @ ((x - mean) * weights[:, None]))

    of_a, of_b = frechet_influences(a, b)
    for which, x, found in (("a", a, of_a), ("b", b, of_b)):
        even = np.full(len(x), 1 / len(x))
        for picked in (0, 7):
            step = 1e-5
            ends = []
            for sign in (1, -1):
                weights = even * (1 - sign * step)
                weights[picked] += sign * step
                other = (
                    weighted(np.full(len(b), 1 / len(b)), b)
                    if which == "a"
                    else weighted(np.full(len(a), 1 / len(a)), a)
                )
                ends.append(frechet_from_moments(weighted(weights, x), other))
            assert found[picked] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=0.05, abs=0.02)
        assert found.mean() == pytest.approx(0, abs=1e-9)


def test_the_interval_covers_what_sets_of_this_size_have_in_the_mean() -> None:
    rng = np.random.default_rng(1)
    turn = rng.normal(size=(4, 4)) / 2 + np.eye(4)

    def sets() -> tuple[Array, Array]:
        return rng.normal(size=(300, 4)), rng.standard_t(8, size=(400, 4)) @ turn + 0.5

    truth = np.mean([frechet_distance(*sets()) for _ in range(2000)])
    found = [frechet_interval(*sets()) for _ in range(300)]
    assert 0.86 <= np.mean([one.low < truth < one.high for one in found]) <= 0.94


def test_few_features_take_halves() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(40, 64)), rng.normal(size=(40, 64)) + 0.2
    found = frechet_interval(a, b, repeats=50)
    assert found.value == pytest.approx(frechet_distance(a, b))
    assert found.low < found.value < found.high
    with pytest.raises(FeatureError, match="without an inverse"):
        frechet_influences(a, b)


def test_the_limit_of_two_normal_distributions() -> None:
    """N(0, 1) and N(½, 1) in 10 dimensions: ‖μ‖² = 2.5; sets of 600 are above it, their limit is not."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(60):
        a, b = rng.normal(size=(600, 10)), rng.normal(size=(600, 10)) + 0.5
        found.append((frechet_distance(a, b), frechet_at_infinity(a, b)))
    plain, limit = np.mean(found, 0)
    error = np.std(found, 0)[1] / 60**0.5
    assert plain - 2.5 > 4 * error
    assert limit == pytest.approx(2.5, abs=3 * error)


def test_a_reference_given_by_its_moments() -> None:
    rng = np.random.default_rng(4)
    a = rng.normal(size=(2000, 10))
    reference = Moments(10**9, np.zeros(10), np.eye(10))
    assert frechet_at_infinity(a, reference) == pytest.approx(0, abs=0.01)


def test_too_few_to_extrapolate() -> None:
    with pytest.raises(FeatureError, match="30 features of 20 dimensions are too few to extrapolate; 42 are needed"):
        frechet_at_infinity(np.random.default_rng(0).normal(size=(30, 20)), Moments(9, np.zeros(20), np.eye(20)))
