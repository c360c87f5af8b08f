"""Estimators that stand beside the probe, against closed forms; none may explode or claim more than there is."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.estimators import CONTINUOUS, LABELLED
from denoscope.information import InformationError
from denoscope.information.estimators import (
    cca_information,
    critic_information,
    cross_check,
    ksg_information,
    probe,
    ross_information,
)
from denoscope.information.estimators.critics import Bound

Array = NDArray[np.float64]
KNOWN = {one.name: one for one in CONTINUOUS}


def test_truths_are_those_that_are_published() -> None:
    # Czyż et al. (2023), table of the benchmark
    told = [round(one.truth, 2) for one in CONTINUOUS]
    assert told == [0.41, 1.62, 1.02, 1.71, 1.02, 0.45, 0.0]


@pytest.mark.parametrize(("name", "within"), [("Gaussian 1 × 1, ρ = .75", 0.04), ("independent 5 × 5", 0.02)])
def test_canonical_correlations_are_right_for_gaussians(name: str, within: float) -> None:
    one = KNOWN[name]
    found = [cca_information(*one.draw(2000, np.random.default_rng(seed))) for seed in range(5)]
    assert np.mean(found) == pytest.approx(one.truth, abs=within)


def test_canonical_correlations_of_many_dimensions_are_not_biased() -> None:
    one = KNOWN["Gaussian 50 × 50, dense ρ = .5"]
    found = [cca_information(*one.draw(400, np.random.default_rng(seed))) for seed in range(20)]
    assert np.mean(found) == pytest.approx(one.truth, abs=0.1)


@pytest.mark.parametrize("name", ["Gaussian 1 × 1, ρ = .75", "additive noise of .1", "Student t 5 × 5, 2 degrees"])
def test_nearest_neighbours_are_right_in_few_dimensions(name: str) -> None:
    one = KNOWN[name]
    found = ksg_information(*one.draw(2000, np.random.default_rng(0)))
    assert found == pytest.approx(one.truth, abs=0.3 if "Student" in name else 0.08)


def test_nearest_neighbours_of_labels() -> None:
    one = next(one for one in LABELLED if one.name.startswith("4 classes"))
    drawn = one.draw(1024, np.random.default_rng(0))
    x, labels = np.asarray(drawn["x"], dtype=np.float64)[:, :8], np.asarray(drawn["label"], dtype=np.int64)
    assert ross_information(x, labels) == pytest.approx(one.truth(), abs=0.15)


@pytest.mark.parametrize("bound", ["nwj", "infonce", "smile"])
def test_critics_see_what_is_there_and_nothing_where_nothing_is(bound: Bound) -> None:
    one, none = KNOWN["Gaussian 1 × 1, ρ = .75"], KNOWN["independent 5 × 5"]
    found = critic_information(*one.draw(1000, np.random.default_rng(0)), bound)
    assert found.information == pytest.approx(one.truth, abs=0.08)
    assert abs(critic_information(*none.draw(400, np.random.default_rng(0)), bound).information) <= 0.02


@pytest.mark.parametrize("name", ["nwj", "infonce", "smile", "cca", "ksg"])
def test_labels_have_no_more_information_than_their_entropy(name: str) -> None:
    check = cross_check(name)
    assert check is not None
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(4), 40)
    for features in (
        np.eye(4)[labels] + 1e-9 * rng.normal(size=(160, 4)),
        np.repeat(labels[:, None], 20, axis=1).astype(np.float64),
    ):
        found = check(features, labels)
        assert np.isfinite(found)
        assert found <= np.log(4) + 1e-6


def test_a_critic_leaves_the_user_s_random_numbers_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    critic_information(np.ones((20, 2)), np.ones((20, 1)))
    assert torch.equal(torch.rand(3), expected)


def test_what_a_line_can_t_part_only_a_critic_sees() -> None:
    rng = np.random.default_rng(0)
    context, labels, seed = (a.ravel() for a in np.meshgrid(range(8), range(2), range(64), indexing="ij"))
    sign = rng.integers(2, size=len(labels))
    x = np.stack([2 * sign - 1, (2 * sign - 1) * (2 * labels - 1)], 1) * 2 + 0.3 * rng.normal(size=(len(labels), 2))
    check = cross_check("nwj")
    assert check is not None
    assert probe(x, labels, context=context, seed=seed).information < 0.05
    assert check(x, labels) > 0.4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cross_check("magic"), "there is no estimator 'magic'"),
        (lambda: critic_information(np.ones((4, 1)), np.ones((4, 1))), "twelve samples"),
        (lambda: cca_information(np.ones((6, 4)), np.ones((6, 4))), "too few"),
        (lambda: ksg_information(np.full((9, 1), np.nan), np.ones((9, 1))), "finite"),
        (lambda: ross_information(np.ones((6, 1)), np.array([0, 0, 0, 0, 1, 1])), "more than 3"),
    ],
)
def test_what_can_t_be_estimated_is_said(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InformationError, match=words):
        call()
