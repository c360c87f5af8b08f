"""Precision, recall, density, coverage against sorted distances, published figures and chance."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from denoscope.metrics import FeatureError, copied, expected_coverage, nearest, prdc
from denoscope.metrics import neighbours as neighbours_module


def test_against_sorted_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours_module, "_BLOCK", 500)
    rng = np.random.default_rng(0)
    real, fake = rng.normal(size=(60, 3)), rng.normal(size=(45, 3)) * 0.7 + 0.4
    between = cdist(real, fake)
    of_real, of_fake = (np.sort(cdist(x, x), 1)[:, 3] for x in (real, fake))
    assert prdc(real, fake, nearest_k=3) == {
        "precision": (between <= of_real[:, None]).any(0).mean(),
        "recall": (between <= of_fake).any(1).mean(),
        "density": pytest.approx((between < of_real[:, None]).sum(0).mean() / 3),
        "coverage": (between < of_real[:, None]).any(1).mean(),
    }
    indices, distances = nearest(fake, real, 4)
    np.testing.assert_array_equal(indices, between.T.argsort(1)[:, :4])
    np.testing.assert_allclose(distances, np.sort(between.T, 1)[:, :4], rtol=1e-9)


def test_coverage_of_equal_laws() -> None:
    rng = np.random.default_rng(2)
    found = [prdc(rng.normal(size=(200, 2)), rng.normal(size=(300, 2)), nearest_k=4)["coverage"] for _ in range(60)]
    assert np.mean(found) == pytest.approx(expected_coverage(200, 300, 4), abs=4 * np.std(found) / 60**0.5)


def test_far_from_the_origin_distances_keep_their_digits() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 40, 3))
    assert prdc(x + 1e6, y + 1e6) == prdc(x, y)


def test_copies_are_their_own_last_neighbours() -> None:
    """A picture's ball must not end at itself, wherever among its copies it is sorted."""
    twins = np.repeat(np.arange(6.0)[:, None], 2, 0)
    np.testing.assert_array_equal(neighbours_module.radii(twins, 1), 0)
    np.testing.assert_array_equal(neighbours_module.radii(twins, 2), 1)


def test_copied_pictures_are_known() -> None:
    rng = np.random.default_rng(4)
    training, fresh = rng.normal(size=(2, 800, 4))
    assert copied(training[:300] + 1e-3, training).all()
    assert copied(fresh, training).mean() == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize(
    ("real", "fake", "told"),
    [
        (np.ones((20, 2)), np.random.default_rng(0).normal(size=(20, 2)), "the real features are the same"),
        (np.random.default_rng(0).normal(size=(20, 2)), np.ones((20, 2)), "the generated features are the same"),
        (np.eye(5), np.eye(5), "5 features have no neighbour number 5"),
        (np.eye(6), np.ones((6, 2)), "6 and 2 dimensions"),
    ],
)
def test_what_is_refused(real: NDArray[np.float64], fake: NDArray[np.float64], told: str) -> None:
    with pytest.raises(FeatureError, match=told):
        prdc(real, fake)
