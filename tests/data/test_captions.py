import contextlib
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from denoscope.data.worlds.shapes.captions import (
    PLACES,
    RELATIONS,
    SYNONYMS,
    CaptionError,
    CaptionStyle,
    Meaning,
    Mention,
    Place,
    describe,
    parse,
    place_holds,
    word,
)
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, POSITIONS, VALUES, Attribute, Scene, Thing, sample_scene

mentions = st.builds(Mention, **{name: st.none() | st.sampled_from(VALUES[name]) for name in ATTRIBUTES})
meanings = st.one_of(
    st.just(Meaning()),
    st.builds(Meaning, st.just("one"), st.tuples(mentions), st.none() | st.sampled_from(list(PLACES.values()))),
    st.builds(Meaning, st.sampled_from(["vertical", "horizontal"]), st.tuples(mentions, mentions)),
)
seeds = st.integers(0, 2**32 - 1)
shares = st.floats(0, 1)
styles = st.builds(CaptionStyle, shares, shares, shares, shares, shares, shares, shares)

unhurried = settings(deadline=None)  # a busy machine is no failure


@unhurried
@given(meanings)
def test_plain_words_are_read_back(meaning: Meaning) -> None:
    assert parse(word(meaning)) == meaning


@unhurried
@given(meanings, seeds, styles)
def test_any_wording_is_read_back(meaning: Meaning, seed: int, style: CaptionStyle) -> None:
    assert parse(word(meaning, np.random.default_rng(seed), style)) == meaning


@unhurried
@given(meanings, seeds)
def test_case_space_and_punctuation_do_not_matter(meaning: Meaning, seed: int) -> None:
    text = word(meaning, np.random.default_rng(seed))
    assert parse(f"  {text.upper()}. ") == parse(text.replace(" ", "\n  ")) == parse(text.replace(" ", ", ")) == meaning


@unhurried
@given(seeds, styles)
def test_descriptions_are_true(seed: int, style: CaptionStyle) -> None:
    rng = np.random.default_rng(seed)
    scene = sample_scene(rng)
    text, meaning = describe(scene, rng, style)
    assert meaning.allows(scene)
    assert parse(text) == meaning


@unhurried
@given(seeds)
def test_a_meaning_allows_no_scene_that_differs_in_what_is_named(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scene, other = sample_scene(rng), sample_scene(rng)
    meaning = describe(scene, rng, CaptionStyle(colour=1, shape=1, size=1, texture=1))[1]
    same = scene.layout == other.layout and all(
        one.value(name) == two.value(name)
        for one, two in zip(scene.things, other.things, strict=False)
        for name in ATTRIBUTES
    )
    holds = meaning.place is None or place_holds(meaning.place, other.things[0].x, other.things[0].y)
    assert meaning.allows(other) == (same and holds)
    assert Meaning().allows(other)


@unhurried
@given(seeds, seeds, styles)
def test_what_is_named_does_not_depend_on_the_values(scene_seed: int, caption_seed: int, style: CaptionStyle) -> None:
    """Exactly: with the same random numbers, any two scenes of a layout have the same attributes named."""
    rng = np.random.default_rng(scene_seed)
    first = sample_scene(rng)
    second = sample_scene(rng, first.layout)
    one, other = (describe(scene, np.random.default_rng(caption_seed), style)[1] for scene in (first, second))
    for mine, yours in zip(one.mentions, other.mentions, strict=True):
        for name in ATTRIBUTES:
            assert (mine.value(name) is None) == (yours.value(name) is None)
    across = {"left", "right"}
    assert (one.place is None) == (other.place is None)
    assert (one.place in across) == (other.place in across)


def test_a_place_never_biases_the_position() -> None:
    """Given a place, every position that it allows is equally likely."""
    rng = np.random.default_rng(0)
    positions: dict[Place, Counter[tuple[int, int]]] = {place: Counter() for place in PLACES.values()}
    for _ in range(8000):
        scene = sample_scene(rng, "one")
        place = describe(scene, rng)[1].place
        if place is not None:
            positions[place][scene.things[0].x, scene.things[0].y] += 1
    assert stats.chisquare([counts.total() for counts in positions.values()]).pvalue > 1e-3
    for place, counts in positions.items():
        allowed = [(x, y) for x, y in POSITIONS["whole"] if place_holds(place, x, y)]
        assert len(allowed) == 18
        assert set(counts) <= set(allowed)
        assert stats.chisquare([counts[position] for position in allowed]).pvalue > 1e-3


def test_parts_are_named_as_often_as_the_style_says() -> None:
    rng, style = np.random.default_rng(1), CaptionStyle()
    said = [describe(sample_scene(rng, "one"), rng)[1] for _ in range(4000)]
    for name in ATTRIBUTES:
        count = sum(meaning.mentions[0].value(name) is not None for meaning in said)
        assert stats.binomtest(count, len(said), getattr(style, name)).pvalue > 1e-3
    assert stats.binomtest(sum(m.place is not None for m in said), len(said), style.place).pvalue > 1e-3
    pairs = [word(Meaning("vertical", (Mention("red"), Mention("blue"))), rng, style) for _ in range(2000)]
    assert stats.binomtest(sum("below" in text for text in pairs), len(pairs), style.swap).pvalue > 1e-3
    rare = [word(Meaning("one", (Mention("red"),)), rng, style) for _ in range(4000)]
    assert stats.binomtest(sum("crimson" in text for text in rare), len(rare), style.synonym).pvalue > 1e-3


def test_every_value_has_one_synonym() -> None:
    assert sorted(SYNONYMS.values()) == sorted(value for name in ATTRIBUTES for value in VALUES[name])


@pytest.mark.parametrize(("rare", "value"), SYNONYMS.items())
def test_synonyms_mean_their_value(rare: str, value: str) -> None:
    assert parse(f"a {rare} shape") == parse(f"a {value} shape")
    name = next(name for name in ATTRIBUTES if value in VALUES[name])
    always = CaptionStyle(synonym=1)
    assert rare in word(Meaning("one", (Mention(**{name: value}),)), np.random.default_rng(0), always).split()


@pytest.mark.parametrize(
    ("text", "mention"),
    [
        ("an orange circle", Mention("orange", "circle")),
        ("a picture of the small square", Mention(shape="square", size="small")),
        ("shape", Mention()),
        ("a red crimson disc shape", Mention("red", "circle")),
        ("circle striped large green", Mention("green", "circle", "large", "striped")),
    ],
)
def test_loose_wording_is_understood(text: str, mention: Mention) -> None:
    assert parse(text) == Meaning("one", (mention,))


@pytest.mark.parametrize(("phrase", "what"), RELATIONS.items())
def test_relations_order_mentions_by_region(phrase: str, what: tuple[str, bool]) -> None:
    layout, swapped = what
    meaning = parse(f"a red circle {phrase} a blue square")
    expected = (Mention("red", "circle"), Mention("blue", "square"))
    assert meaning == Meaning(layout, expected[::-1] if swapped else expected)  # type: ignore[arg-type]
    assert parse(f"a red circle {phrase.removeprefix('to the ')} a blue square") == meaning


@pytest.mark.parametrize(("phrase", "place"), PLACES.items())
def test_places_are_halves_of_the_picture(phrase: str, place: Place) -> None:
    assert parse(f"a red circle {phrase}").place == place
    axis = 0 if place in ("left", "right") else 1
    for position in POSITIONS["whole"]:
        assert place_holds(place, *position) == ((position[axis] < 32) == (place in ("left", "top")))


def test_empty_text_allows_everything() -> None:
    assert parse("") == parse(" \n\t. ") == Meaning()
    assert word(Meaning()) == ""


def test_articles_fit_the_next_word() -> None:
    assert word(Meaning("one", (Mention("orange", "circle"),))) == "an orange circle"
    assert word(Meaning("one", (Mention("orange", "circle", "small"),))) == "a small orange circle"
    assert word(Meaning("one", (Mention(),), "top")) == "a shape at the top"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a red dog", "'dog' is not a word of the shapes world"),
        ("a red circle above a dog", "'dog' is not a word of the shapes world"),
        ("a red blue circle", "an object has one colour, not 'red' and 'blue'"),
        ("a red azure circle", "an object has one colour, not 'red' and 'azure'"),
        ("a circle square", "an object has one shape, not 'circle' and 'square'"),
        ("a small big circle", "an object has one size, not 'small' and 'big'"),
        ("a plain lined circle", "an object has one texture, not 'plain' and 'lined'"),
        ("a red", "no noun in 'a red': say 'circle', 'square', 'triangle', 'cross' or 'shape'"),
        ("a circle above", "no noun in ''"),
        ("below a circle", "no noun in ''"),
        ("a circle above a square below a cross", "a caption has at most one relation, this one has 2"),
        ("a circle on the left at the top", "a caption has at most one place, this one has 2"),
        ("a circle on the left above a square", "'on' is not a word of the shapes world"),
        ("on the left", "no noun in ''"),
    ],
)
def test_errors_name_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(CaptionError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)


VOCABULARY = [*SYNONYMS, *SYNONYMS.values(), *RELATIONS, *PLACES, "a", "an", "the", "of", "shape", "left", "to", ","]


@unhurried
@given(st.text() | st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join))
def test_any_text_has_a_meaning_or_a_caption_error(text: str) -> None:
    try:
        meaning = parse(text)
    except CaptionError:
        return
    assert parse(word(meaning)) == meaning


@pytest.mark.parametrize(
    "text", ["above " * 20_000, "to the " * 20_000, "a red circle" + " " * 200_000, "on the l" * 20_000]
)
def test_long_hostile_text_is_refused_or_read_quickly(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(CaptionError):
        parse(text)
    assert time.process_time() - start < 2


def test_a_mention_tells_its_values() -> None:
    mention = Mention("red", None, "small", None)
    names: tuple[Attribute, ...] = ATTRIBUTES
    assert [mention.value(name) for name in names] == ["red", None, "small", None]
    scene = Scene("one", (Thing("red", "cross", "small", "striped", 12, 12),), 92)
    assert Meaning("one", (mention,)).allows(scene)
