"""The Inception score against its two ends, a direct sum, and the formula of others."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from denoscope.metrics import FeatureError, inception_score, inception_score_splits, vendi_score


def test_a_direct_sum() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 7)) * 3
    shares = softmax(logits, axis=1)
    mean = shares.mean(0)
    wanted = np.exp(np.mean([sum(p * np.log(p / q) for p, q in zip(row, mean, strict=True)) for row in shares]))
    assert inception_score(logits).value == pytest.approx(wanted, rel=1e-12)


def test_parts_are_cut_as_others_cut_them() -> None:
    logits = np.random.default_rng(1).normal(size=(103, 5)) * 2
    mixed = logits[np.random.RandomState(2020).permutation(103)]
    wanted = [inception_score(mixed[i * 103 // 10 : (i + 1) * 103 // 10]).value for i in range(10)]
    np.testing.assert_allclose(inception_score_splits(logits), wanted, rtol=1e-12)
    ordered = [inception_score(part).value for part in (logits[:50], logits[50:100], logits[100:])]
    np.testing.assert_allclose(inception_score_splits(logits, shuffle=False, rows=50), ordered, rtol=1e-12)


def test_the_interval_covers_what_sets_of_this_size_have_in_the_mean() -> None:
    rng = np.random.default_rng(2)

    def drawn() -> NDArray[np.float64]:
        return rng.normal(size=(200, 6)) * rng.uniform(0, 4, (200, 1))

    truth = np.mean([inception_score(drawn()).value for _ in range(2000)])
    found = [inception_score(drawn()) for _ in range(300)]
    assert 0.86 <= np.mean([one.low < truth < one.high for one in found]) <= 0.94


def test_certain_answers_are_no_nan() -> None:
    logits = np.full((4, 3), -1e4)
    logits[:, 0] = 0
    assert inception_score(logits) == (1, 1, 1)
    with pytest.raises(FeatureError, match="4 pictures can't be cut into 10 parts"):
        inception_score_splits(logits)


def test_vendi_counts_what_differs() -> None:
    rng = np.random.default_rng(3)
    kinds = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    few = kinds[rng.integers(0, 3, 300) % 3]
    shares = np.bincount([int(row @ kinds.T @ np.arange(8) + 0.5) for row in few], minlength=3) / 300
    assert vendi_score(few) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-9)
    wide, tall = rng.normal(size=(20, 50)), rng.normal(size=(50, 20))
    for x in (wide, tall):
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        values = np.linalg.eigvalsh(unit @ unit.T / len(x)).clip(1e-300)
        assert vendi_score(x) == pytest.approx(np.exp(-(values * np.log(values)).sum()), rel=1e-9)
    with pytest.raises(FeatureError, match="feature 1 has the length 0"):
        vendi_score([[1.0, 0.0], [0.0, 0.0]])
