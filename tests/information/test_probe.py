"""The default estimator, against closed forms, scikit-learn, and populations that know nothing."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from denoscope.information import InformationError
from denoscope.information.estimators import folds_of, null_information, probe, shuffles, unlearnt

Array = NDArray[np.float64]


def design(values: int, contexts: int = 8, seeds: int = 16) -> tuple[NDArray[np.int64], ...]:
    """Label, context and seed of a whole population."""
    context, label, seed = np.meshgrid(range(contexts), range(values), range(seeds), indexing="ij")
    return label.ravel(), context.ravel(), seed.ravel()


def gaussian_classes(means: Array, labels: NDArray[np.int64], rng: np.random.Generator) -> Array:
    return means[labels] + rng.normal(size=(len(labels), means.shape[1]))


def true_information(means: Array, draws: int = 200_000) -> float:
    """log K − E[H(Y | x)] by the exact posterior, which is a softmax of Gaussian densities."""
    rng = np.random.default_rng(9)
    labels = rng.integers(len(means), size=draws)
    x = gaussian_classes(means, labels, rng)
    logits = -np.square(x[:, None] - means[None]).sum(-1) / 2
    own = logits[np.arange(draws), labels] - logsumexp(logits, axis=1)
    return float(np.log(len(means)) + own.mean())


@pytest.mark.parametrize(("values", "dims", "spread"), [(2, 3, 1.0), (4, 3, 1.2), (8, 20, 0.8)])
def test_gaussian_classes_are_measured_rightly(values: int, dims: int, spread: float) -> None:
    rng = np.random.default_rng(values)
    means = spread * rng.normal(size=(values, dims))
    labels, context, seed = design(values, 16, 32)
    found = probe(gaussian_classes(means, labels, rng), labels, context=context, seed=seed)
    error = found.pointwise.std() / len(labels) ** 0.5
    assert found.information == pytest.approx(true_information(means), abs=3 * error + 0.03)


def test_beliefs_are_those_of_discriminant_analysis_on_the_same_samples() -> None:
    rng = np.random.default_rng(1)
    labels, context, seed = design(4)
    x = gaussian_classes(rng.normal(size=(4, 5)), labels, rng)
    found = probe(x, labels, context=context, seed=seed)
    folds = folds_of(context, seed)
    expected = np.empty_like(found.log_belief)
    for block, learnt in zip(folds.blocks, folds.training, strict=True):
        training = np.concatenate([folds.blocks[other] for other in learnt])
        model = LinearDiscriminantAnalysis().fit(x[training], labels[training])
        expected[block] = model.predict_log_proba(x[block])
    own = expected[np.arange(len(labels)), labels] + np.log(4)
    assert found.information == pytest.approx(own.mean(), abs=0.03)  # shrinkage costs a little
    assert np.corrcoef(found.pointwise, own)[0, 1] > 0.98


@pytest.mark.parametrize("dims", [3, 100, 3000])
def test_nothing_is_found_where_nothing_is(dims: int) -> None:
    rng = np.random.default_rng(dims)
    labels, context, seed = design(8)
    of_context, of_seed = (4 * rng.normal(size=(count, dims)) for count in (8, 16))
    x = of_context[context] + of_seed[seed] + rng.normal(size=(len(labels), dims))
    assert abs(probe(x, labels, context=context, seed=seed).information) <= 0.02


def test_what_holds_in_one_context_alone_is_not_information() -> None:
    # In every context another direction tells the word: who has not seen the context can't know which.
    rng = np.random.default_rng(4)
    labels, context, seed = design(4)
    means = 3 * rng.normal(size=(8, 4, 60))
    x = means[context, labels] + rng.normal(size=(len(labels), 60))
    assert probe(x, labels, context=context, seed=seed).information < 0.05
    shared = 3 * rng.normal(size=(4, 60))[labels] + rng.normal(size=(len(labels), 60))
    assert probe(shared, labels, context=context, seed=seed).information > 1.3


def test_a_sample_is_asked_about_by_who_saw_neither_its_context_nor_its_seed() -> None:
    _, context, seed = design(3, 5, 7)
    folds = folds_of(context, seed)
    assert sorted(np.concatenate(folds.blocks)) == list(range(len(context)))
    for block, learnt in zip(folds.blocks, folds.training, strict=True):
        training = np.concatenate([folds.blocks[other] for other in learnt])
        assert not set(context[block]) & set(context[training])
        assert not set(seed[block]) & set(seed[training])


def test_one_context_holds_out_seeds_alone() -> None:
    _, context, seed = design(2, 1, 8)
    folds = folds_of(context, seed)
    assert len(folds.blocks) == 4
    assert all(len(learnt) == 3 for learnt in folds.training)


@pytest.mark.parametrize("kind", ["constant", "duplicated", "wide", "tiny", "perfect"])
def test_beliefs_are_finite_and_no_more_than_the_entropy(kind: str) -> None:
    rng = np.random.default_rng(2)
    labels, context, seed = design(3, 4, 4)
    x = {
        "constant": np.ones((48, 6)),
        "duplicated": np.repeat(rng.normal(size=(48, 1)), 50, axis=1),
        "wide": rng.normal(size=(48, 5000)),
        "tiny": 1e-12 * rng.normal(size=(48, 4)),
        "perfect": np.eye(3)[labels],
    }[kind]
    found = probe(x, labels, context=context, seed=seed)
    assert np.isfinite(found.log_belief).all()
    np.testing.assert_allclose(np.exp(found.log_belief).sum(1), 1, atol=1e-5)
    assert found.information <= found.entropy + 1e-9
    if kind == "perfect":
        assert found.information == pytest.approx(np.log(3), abs=0.05)


def test_unequal_values_have_their_own_prior() -> None:
    rng = np.random.default_rng(3)
    context, seed = (a.ravel() for a in np.meshgrid(range(16), range(32), indexing="ij"))
    labels = (rng.random(len(context)) < 0.2).astype(np.int64)
    found = probe(rng.normal(size=(len(labels), 3)), labels, context=context, seed=seed)
    assert abs(found.information) <= 0.02
    share = labels.mean()
    assert found.entropy == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share))


def test_shuffles_stay_within_context_and_seed() -> None:
    labels, context, seed = design(4, 3, 5)
    for drawn in shuffles(labels, context, seed, 20):
        for c in range(3):
            for s in range(5):
                assert sorted(drawn[(context == c) & (seed == s)]) == [0, 1, 2, 3]


def test_shuffled_labels_are_measured_as_one_by_one() -> None:
    rng = np.random.default_rng(6)
    labels, context, seed = design(3, 4, 8)
    x = rng.normal(size=(len(labels), 4)) + labels[:, None]
    together = null_information(x, labels, context=context, seed=seed, draws=7)
    drawn = shuffles(labels, context, seed, 7)
    alone = [probe(x, each, context=context, seed=seed).information for each in drawn]
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_shuffled_labels_say_what_nothing_looks_like() -> None:
    rng = np.random.default_rng(7)
    labels, context, seed = design(4)
    x = rng.normal(size=(len(labels), 20)) + 2 * rng.normal(size=(16, 20))[seed]
    null = null_information(x, labels, context=context, seed=seed, draws=100)
    assert np.abs(null).mean() < 1e-4  # means shrink to nothing where nothing is
    reached = np.quantile(null, 0.95)
    above: int = 0
    for _ in range(20):
        y = rng.normal(size=(len(labels), 20)) + 2 * rng.normal(size=(16, 20))[seed]
        above += int(probe(y, labels, context=context, seed=seed).information > reached)
    assert above <= 4  # 1 is expected; 4 or more has a probability of 2 %


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        (np.full((8, 2), np.nan), [0, 1] * 4, "finite"),
        (np.ones((8, 2)), [0, 2] * 4, "value 1 has no sample"),
        (np.ones((8, 2)), [-1, 0] * 4, "whole numbers"),
    ],
)
def test_what_can_t_be_measured_is_said(features: Array, labels: list[int], words: str) -> None:
    context, seed = np.repeat([0, 1], 4), np.tile([0, 0, 1, 1], 2)
    with pytest.raises(InformationError, match=words):
        probe(features, np.array(labels), context=context, seed=seed)


def test_one_context_and_one_seed_hold_nothing_out() -> None:
    nought = np.zeros(4, dtype=np.int64)
    with pytest.raises(InformationError, match="nothing can be held out"):
        probe(np.ones((4, 2)), np.array([0, 1, 0, 1]), context=nought, seed=nought)


def test_what_more_pictures_would_show_is_about_what_they_show() -> None:
    rng = np.random.default_rng(8)
    means = rng.normal(size=(8, 24)) * 0.5
    truth, told, more = true_information(means), [], []
    for repeat in range(10):
        rng = np.random.default_rng(repeat)
        labels, context, seed = design(8)
        x = gaussian_classes(means, labels, rng)
        told.append(probe(x, labels, context=context, seed=seed).information)
        more.append(unlearnt(x, labels, context=context, seed=seed))
    assert np.mean(told) < truth - 0.1
    assert np.mean(told) + np.mean(more) == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize("values", [3, 8])
def test_features_that_say_the_word_outright_are_measured(values: int) -> None:
    # What the branch with the prompt holds at the first step, and the log beliefs of a probe that is sure.
    labels, context, seed = design(values)
    sure = np.where(np.eye(values)[labels] > 0, 0.0, -8.0)
    found = probe(sure, labels, context=context, seed=seed)
    assert found.information == pytest.approx(np.log(values), abs=1e-3)


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-4, 1e-2])
def test_features_that_say_half_of_the_word_outright_are_measured(noise: float) -> None:
    # Two pairs of values that nothing tells apart: what is left between them is rounding, and must not be blown up.
    labels, context, seed = design(4, 8, 32)
    half = np.where(np.arange(4)[None] // 2 == labels[:, None] // 2, 0.0, -4.0)
    half += noise * np.random.default_rng(0).normal(size=half.shape)
    assert probe(half, labels, context=context, seed=seed).information == pytest.approx(np.log(2), abs=2e-3)
