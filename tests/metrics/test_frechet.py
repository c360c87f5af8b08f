"""The Fréchet distance against closed forms and SciPy's matrix root."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from denoscope.metrics import Moments, frechet_distance, frechet_from_moments
from denoscope.metrics.diversity import rms_pairwise_distance
from denoscope.metrics.frechet import FeatureError


def test_normal_distributions_with_commuting_covariances() -> None:
    """‖μ − ν‖² + Σ (√a − √b)², for covariances with the same eigenvectors."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    first, second = rng.uniform(0.1, 4, (2, 6))
    gap = rng.normal(size=6)
    a = Moments(10, np.zeros(6), (basis * first) @ basis.T)
    b = Moments(10, gap, (basis * second) @ basis.T)
    assert frechet_from_moments(a, b) == pytest.approx(gap @ gap + ((first**0.5 - second**0.5) ** 2).sum(), rel=1e-12)


def test_against_scipys_root() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(200, 8)), rng.normal(size=(150, 8)) @ rng.normal(size=(8, 8)) + 1
    ca, cb = np.cov(a.T), np.cov(b.T)
    gap = a.mean(0) - b.mean(0)
    wanted = gap @ gap + np.trace(ca + cb - 2 * np.real(sqrtm(ca @ cb)))
    assert frechet_distance(a, b) == pytest.approx(float(wanted), rel=1e-9)


def test_fewer_features_than_dimensions() -> None:
    """Rank-deficient covariances, by the nuclear norm of the centred data's product: no matrix root at all."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(20, 64)), rng.normal(size=(30, 64)) + 0.1
    centred_a, centred_b = (x - x.mean(0) for x in (a, b))
    cross = np.linalg.norm(centred_a @ centred_b.T, "nuc") / np.sqrt(19 * 29)
    gap = a.mean(0) - b.mean(0)
    wanted = gap @ gap + (centred_a**2).sum() / 19 + (centred_b**2).sum() / 29 - 2 * cross
    assert frechet_distance(a, b) == pytest.approx(wanted, rel=1e-6)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-8)


def test_parts_are_the_whole() -> None:
    x = np.random.default_rng(3).normal(size=(50, 5)) * 100 + 1e4
    merged = Moments.of(x[:7]).merged(Moments.of(x[7:30])).merged(Moments.of(x[30:]))
    np.testing.assert_allclose(merged.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(merged.covariance, np.cov(x.T), rtol=1e-9)


@pytest.mark.parametrize(
    ("features", "told"),
    [([[1.0, 2.0]], "at least 2 features"), ([[1.0], [np.nan]], "feature 1 is not finite"), ([1.0, 2.0], "must be")],
)
def test_features_that_can_not_be_compared(features: list[float], told: str) -> None:
    with pytest.raises(FeatureError, match=told):
        Moments.of(features)


def test_other_widths_are_refused() -> None:
    with pytest.raises(FeatureError, match="2 and 3 dimensions"):
        frechet_distance(np.eye(2), np.eye(3))


def test_diversity_is_the_mean_over_all_pairs() -> None:
    x = np.random.default_rng(4).normal(size=(30, 4))
    pairs = [((x[i] - x[j]) ** 2).sum() for i in range(30) for j in range(i)]
    assert rms_pairwise_distance(x) == pytest.approx(np.sqrt(np.mean(pairs)), rel=1e-12)
