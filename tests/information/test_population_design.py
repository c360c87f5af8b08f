"""Which prompts an experiment draws."""

from itertools import pairwise

import numpy as np
import pytest

from denoscope.information import InformationError
from denoscope.information.population import plan_population
from denoscope.information.wording.template import Template

COLOURS = ("red", "green", "blue", "yellow")
SHAPES = ("circle", "square", "triangle", "cross")
TWO = Template("a {size} {colour} {shape}", {"colour": COLOURS, "shape": SHAPES}, {"size": ("small", "large")})


def test_prompts_of_a_context_differ_in_the_slot_s_word_alone() -> None:
    found = plan_population(TWO, contexts=6, seeds=2)
    for arm, place in zip(found.arms, (2, 3), strict=True):
        for row in arm.prompts:
            words = [found.prompts[index].split() for index in row]
            assert [each[place] for each in words] == list(arm.values)
            for one, other in pairwise(words):
                assert [a == b for a, b in zip(one, other, strict=True)] == [at != place for at in range(4)]


def test_no_context_of_a_slot_is_met_twice() -> None:
    found = plan_population(TWO, contexts=100, seeds=2)
    for arm, count in zip(found.arms, (8, 8), strict=True):  # two sizes by four of the other
        assert arm.prompts.shape == (count, 4)
        assert len({tuple(row) for row in arm.prompts.tolist()}) == count


def test_values_come_equally_often_over_contexts() -> None:
    template = Template("a {b} {c} {d}", {"b": ("x", "y")}, {"c": ("1", "2", "3", "4"), "d": ("5", "6")})
    found = plan_population(template, contexts=8, seeds=2)
    rows = [found.prompts[index].split() for index in found.arms[0].prompts[:, 0]]
    counts = {value: sum(row[2] == value for row in rows) for value in ("1", "2", "3", "4")}
    assert counts == dict.fromkeys(("1", "2", "3", "4"), 2)


def test_the_seed_decides_contexts_and_seeds() -> None:
    one, same, other = (plan_population(TWO, contexts=4, seeds=3, seed=seed) for seed in (5, 5, 6))
    assert (one.prompts, one.contexts) == (same.prompts, same.contexts)
    assert one.seeds == (5, 6, 7)
    assert one.prompts != other.prompts


def test_a_thousand_pictures_of_eight_values() -> None:
    template = Template("a {colour} {shape}", {"colour": tuple("abcdefgh")}, {"shape": tuple("ijklmnop")})
    found = plan_population(template, contexts=8, seeds=16)
    assert found.samples == 1024
    assert found.warnings() == []


def test_small_populations_are_warned_of() -> None:
    found = plan_population(Template("a {colour} circle", {"colour": COLOURS}, {}), contexts=8, seeds=4)
    assert found.arms[0].prompts.shape == (1, 4)
    assert len(found.warnings()) == 2


@pytest.mark.parametrize(
    ("template", "settings", "words"),
    [
        (Template("a {size} circle", {}, {"size": ("small", "large")}), {}, "no slot"),
        (TWO, {"contexts": 0}, "0 contexts"),
        (TWO, {"seeds": 1}, "1 seeds"),
    ],
)
def test_what_can_t_be_planned_is_said(template: Template, settings: dict[str, int], words: str) -> None:
    with pytest.raises(InformationError, match=words):
        plan_population(template, **settings)


def test_arms_share_the_context_s_own_prompt() -> None:
    found = plan_population(TWO, contexts=4, seeds=2)
    assert len(found.prompts) < sum(arm.prompts.size for arm in found.arms)
    assert np.unique(np.concatenate([arm.prompts.ravel() for arm in found.arms])).tolist() == list(
        range(len(found.prompts))
    )
