"""Kernel distances against loops, closed forms and the formulas of others."""

import numpy as np
import pytest
from numpy.typing import NDArray

from denoscope.metrics import FeatureError, gaussian_mmd, kernel_distance, kernel_interval, kernel_subsets
from denoscope.metrics import kernel as kernel_module

Array = NDArray[np.float64]


def test_against_loops_over_pairs() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 3)), rng.normal(size=(5, 3)) + 1

    def k(one: Array, other: Array) -> float:
        return float((one @ other / 3 + 1) ** 3)

    same_x = np.mean([k(x[i], x[j]) for i in range(7) for j in range(7) if i != j])
    same_y = np.mean([k(y[i], y[j]) for i in range(5) for j in range(5) if i != j])
    both = np.mean([k(one, other) for one in x for other in y])
    assert kernel_distance(x, y) == pytest.approx(same_x + same_y - 2 * both, rel=1e-12)


def test_blocks_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(33, 4)) + 0.5
    whole, interval, cmmd = kernel_distance(x, y), kernel_interval(x, y), gaussian_mmd(x, y)
    monkeypatch.setattr(kernel_module, "_BLOCK", 120)
    assert kernel_distance(x, y) == pytest.approx(whole, rel=1e-12)
    assert kernel_interval(x, y) == pytest.approx(interval, rel=1e-9)
    assert gaussian_mmd(x, y) == pytest.approx(cmmd, rel=1e-9)


def moment(power: int, mean: float) -> float:
    """E[x^power] of N(mean, 1)."""
    return [1.0, mean, mean**2 + 1, mean**3 + 3 * mean][power]


def test_normal_distributions_in_one_dimension() -> None:
    """(xy + 1)³ is the sum of binomials times (xy)^p, so that the squared MMD is Σ C(3, p)·(E x^p − E y^p)²."""
    shift = 0.7
    truth = sum(binomial * (moment(p, 0) - moment(p, shift)) ** 2 for p, binomial in enumerate((1, 3, 3, 1)))
    rng = np.random.default_rng(2)
    found = [kernel_distance(rng.normal(size=(200, 1)), rng.normal(size=(150, 1)) + shift) for _ in range(200)]
    assert np.mean(found) == pytest.approx(truth, abs=4 * float(np.std(found)) / 14)


@pytest.mark.parametrize(("shift", "width"), [(0.0, 64), (0.5, 6)])
def test_the_interval_covers_the_truth(shift: float, width: int) -> None:
    """Of equal laws too, in as many dimensions as let the sum over the kernel's directions be nearly normal."""
    rng = np.random.default_rng(3)
    # By the same expansion over several dimensions: the mean over many pairs of independent large sets.
    big_x, big_y = rng.normal(size=(2, 4000, width))
    more_x, more_y = rng.normal(size=(2, 4000, width))
    cubic = kernel_module.cubic
    truth = 0.0
    if shift:
        big_y, more_y = big_y + shift, more_y + shift
        truth = float(cubic(big_x, more_x).mean() + cubic(big_y, more_y).mean())
        truth -= float(cubic(big_x, more_y).mean() + cubic(more_x, big_y).mean())
    found = [kernel_interval(rng.normal(size=(150, width)), rng.normal(size=(200, width)) + shift) for _ in range(300)]
    assert 0.86 <= np.mean([one.low < truth < one.high for one in found]) <= 0.94


def test_subsets_have_the_truth_as_their_mean() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(300, 5)), rng.normal(size=(250, 5)) + 0.5
    found = kernel_subsets(x, y, subsets=400, size=60)
    assert found.shape == (400,)
    assert found.mean() == pytest.approx(kernel_distance(x, y), abs=4 * found.std() / 20)
    drawn = np.random.RandomState(2020)
    one = x[drawn.choice(300, 60, replace=False)]
    assert kernel_distance(one, y[drawn.choice(250, 60, replace=False)]) == pytest.approx(found[0], rel=1e-12)


def test_cmmd_against_its_formula() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(9, 4)), rng.normal(size=(6, 4))

    def mean(one: Array, other: Array) -> float:
        return float(np.mean([[np.exp(-((p - q) ** 2).sum() / 200) for q in other] for p in one]))

    assert gaussian_mmd(x, y) == pytest.approx(1000 * (mean(x, x) + mean(y, y) - 2 * mean(x, y)), rel=1e-9)


def test_what_is_refused() -> None:
    with pytest.raises(FeatureError, match="subsets of 1000 can't be drawn from 20 features"):
        kernel_subsets(np.ones((20, 2)), np.ones((30, 2)))
    with pytest.raises(FeatureError, match="2 and 3 dimensions"):
        kernel_distance(np.ones((5, 2)), np.ones((5, 3)))
