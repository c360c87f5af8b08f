"""Measures of attention maps against closed forms and brute force."""

import math

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from denoscope.observer.binding import Pair, binding, bindings, pairs_of, runs_of, similarity
from denoscope.observer.errors import MapError
from denoscope.observer.maps import effective_area, entropy, overlap, pointing, sharpening, word_maps

Floats = NDArray[np.float64]


def named(values: Floats | list[object], *leading: str, words: list[str] | None = None) -> xr.DataArray:
    maps = xr.DataArray(np.asarray(values, dtype=np.float64), dims=(*leading, "y", "x"))
    return maps if words is None else maps.assign_coords(word=words)


def random_maps(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).gamma(0.5, size=shape)


def bump(y: float, x: float, width: float, size: int = 16) -> Floats:
    rows, columns = np.mgrid[:size, :size]
    values: Floats = np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * width**2))
    return values


# -- word maps ---------------------------------------------------------------------------------------------------


def test_word_maps_leave_out_what_no_layer_saw() -> None:
    seen = random_maps(0, 2, 3, 4, 5, 6).astype(np.float32)
    seen[0, 1, 2] = np.nan
    seen[1, 2] = np.nan
    maps = word_maps(xr.Dataset({"attention": (("word", "step", "layer", "y", "x"), seen)}))
    assert maps.dims == ("word", "step", "y", "x")
    assert np.allclose(maps[0, 1], (seen[0, 1, 0] + seen[0, 1, 1] + seen[0, 1, 3]) / 3, rtol=1e-6)
    assert np.isnan(maps[1, 2]).all()
    assert not np.isnan(maps[0]).any()


def test_word_maps_work_without_steps() -> None:
    seen = random_maps(0, 2, 4, 5, 6)
    maps = word_maps(xr.Dataset({"attention": (("word", "layer", "y", "x"), seen)}))
    assert maps.dims == ("word", "y", "x")
    assert np.allclose(maps, seen.mean(1))


def test_a_trace_without_attention_is_refused() -> None:
    with pytest.raises(MapError, match="no attention"):
        word_maps(xr.Dataset())


# -- entropy and area --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [1, 2, 7, 30])
def test_a_map_even_over_some_places_has_their_area(places: int) -> None:
    flat = np.zeros(30)
    flat[np.random.default_rng(places).permutation(30)[:places]] = 0.3
    maps = named(flat.reshape(5, 6))
    assert float(entropy(maps)) == pytest.approx(math.log(places), abs=1e-12)
    assert float(effective_area(maps)) == pytest.approx(places / 30)
    assert float(effective_area(maps)) <= 1


def test_entropy_of_a_geometric_map_is_its_closed_form() -> None:
    # H of p_k = (1-q) q^k is -(q ln q + (1-q) ln(1-q)) / (1-q); 400 places cut off nothing at q = 0.7.
    q = 0.7
    flat: Floats = 5.0 * np.power(q, np.arange(400.0))
    expected = -(q * math.log(q) + (1 - q) * math.log(1 - q)) / (1 - q)
    assert float(entropy(named(flat.reshape(20, 20)))) == pytest.approx(expected, rel=1e-9)


def test_a_map_without_mass_or_with_a_gap_has_no_entropy() -> None:
    gap = np.ones((3, 3))
    gap[1, 1] = np.nan
    maps = named(np.stack([np.zeros((3, 3)), gap, np.eye(3)]), "word")
    assert np.isnan(entropy(maps).values).tolist() == [True, True, False]
    assert np.isnan(effective_area(maps).values).tolist() == [True, True, False]


def test_sharpening_goes_from_wide_to_narrow() -> None:
    widths = [6.0, 3.0, 1.5]
    seen = np.stack([bump(8, 8, width, 64) for width in widths])[:, None, None]
    trace = xr.Dataset(
        {"attention": (("step", "word", "layer", "y", "x"), seen)},
        {"word": ["cat"], "logsnr": ("step", [-8.0, 0.0, 8.0])},
    )
    # A bump that lies inside whole, as at the smaller widths, is a normal density: entropy ln(2πe·σ²).
    found = sharpening(trace.isel(step=[1, 2]))
    assert found.entropy.dims == ("word", "step")
    assert found.logsnr.values.tolist() == [0.0, 8.0]
    assert found.entropy[0].values == pytest.approx(
        [math.log(2 * math.pi * math.e * width**2) for width in widths[1:]], abs=0.03
    )
    areas = sharpening(trace).effective_area[0].values
    assert (np.diff(areas) < 0).all()
    with pytest.raises(MapError, match="keep_steps"):
        sharpening(trace.mean("step"))


# -- overlap -----------------------------------------------------------------------------------------------------


def brute_overlap(first: Floats, second: Floats) -> tuple[float, float]:
    low = high = both = either = 0.0
    for a, b in zip(first.ravel() / first.max(), second.ravel() / second.max(), strict=True):
        low, high = low + min(a, b), high + max(a, b)
        both, either = both + (a >= 0.5 and b >= 0.5), either + (a >= 0.5 or b >= 0.5)
    return low / high, both / either


def test_overlap_is_that_of_brute_force() -> None:
    values = random_maps(3, 4, 5, 7)
    maps = named(values, "word", words=list("abcd"))
    found = overlap(maps, maps.rename(word="other"))
    for i in range(4):
        for j in range(4):
            soft, hard = brute_overlap(values[i], values[j])
            assert float(found.soft[i, j]) == pytest.approx(soft)
            assert float(found.hard[i, j]) == pytest.approx(hard)


def test_overlap_does_not_see_a_factor_and_knows_disjoint_maps() -> None:
    one, two = named([[1.0, 0.0, 0.2], [0.0, 0.0, 0.0]]), named([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    assert overlap(one, 7 * one).to_array().values.tolist() == [1.0, 1.0]
    assert overlap(one, two).to_array().values.tolist() == [0.0, 0.0]
    assert np.isnan(overlap(one, 0 * two).to_array()).all()
    gap = two.copy()
    gap[0, 0] = np.nan
    assert np.isnan(overlap(one, gap).to_array()).all()


def test_two_words_of_one_set_can_be_compared() -> None:
    maps = named(random_maps(4, 2, 3, 3), "word", words=["red", "ball"])
    assert float(overlap(maps.sel(word="red"), maps.sel(word="ball")).soft) == pytest.approx(
        brute_overlap(maps[0].values, maps[1].values)[0]
    )


# -- pointing ----------------------------------------------------------------------------------------------------


def test_pointing_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(5)
    values, mask = random_maps(6, 9, 6, 5), rng.random((6, 5)) < 0.4
    found = pointing(named(values, "word"), mask)
    for index, one in enumerate(values):
        at = np.unravel_index(one.argmax(), one.shape)
        assert float(found.hit[index]) == float(mask[at])
        inside = sum(one[y, x] for y in range(6) for x in range(5) if mask[y, x])
        assert float(found.mass[index]) == pytest.approx(inside / one.sum())
    assert float(found.area) == pytest.approx(mask.sum() / 30)
    assert 0 < float(found.hit.mean()) < 1


def test_an_even_map_points_nowhere() -> None:
    mask = np.zeros((4, 5), dtype=bool)
    mask[0, :3] = True
    found = pointing(named(np.ones((4, 5))), mask)
    assert float(found.hit) == pytest.approx(0.15)
    assert float(found.mass) == pytest.approx(float(found.area)) == pytest.approx(0.15)
    assert np.isnan(pointing(named(np.zeros((4, 5))), mask)[["hit", "mass"]].to_array()).all()


def test_masks_that_can_not_be_compared_are_refused() -> None:
    maps = named(np.ones((4, 5)))
    with pytest.raises(MapError, match="4×5 places can't be compared with 5×4"):
        pointing(maps, np.ones((5, 4), dtype=bool))
    with pytest.raises(MapError, match="not boolean"):
        pointing(maps, xr.DataArray(np.ones((4, 5)), dims=("y", "x")))
    with pytest.raises(MapError, match="mask is empty"):
        pointing(maps, np.zeros((4, 5), dtype=bool))
    with pytest.raises(MapError, match="no negative values"):
        entropy(-maps)
    with pytest.raises(MapError, match="dimensions y and x"):
        entropy(maps.rename(y="row"))


# -- binding -----------------------------------------------------------------------------------------------------

WORDS = ["red", "ball", "blue", "cube"]


def scene(*centres: tuple[float, float], totals: tuple[float, ...] = (1, 1, 1, 1)) -> xr.DataArray:
    """Maps of four words, each a bump at its centre on a large bump that all share, with these totals."""
    shared = 40 * bump(7.5, 7.5, 6)
    maps = [bump(*centre, 2) + shared for centre in centres]
    return named(
        np.stack([total * each / each.sum() for total, each in zip(totals, maps, strict=True)]), "word", words=WORDS
    )


LEFT, RIGHT = (8.0, 3.0), (8.0, 12.0)


def test_binding_finds_the_noun_under_a_baseline_that_all_share() -> None:
    right, wrong = scene(LEFT, LEFT, RIGHT, RIGHT), scene(RIGHT, LEFT, LEFT, RIGHT)
    assert float(binding(right, "red", "ball", ["cube"])) == pytest.approx(1, abs=1e-6)
    assert float(binding(wrong, "red", "ball", ["cube"])) == pytest.approx(-1, abs=1e-6)
    # Without taking the shared part away, the two can't be told apart.
    assert np.corrcoef(wrong.sel(word="red").values.ravel(), wrong.sel(word="ball").values.ravel())[0, 1] > 0.99


def test_binding_reads_places_and_no_totals() -> None:
    first = scene((8, 5), LEFT, (5, 11), RIGHT)
    other = scene((8, 5), LEFT, (5, 11), RIGHT, totals=(9, 1, 3, 20))
    for pair in (("red", "ball", ["cube"]), ("blue", "cube", ["ball"])):
        assert float(binding(first, *pair)) == pytest.approx(float(binding(other, *pair)))


def test_similarity_is_that_of_brute_force() -> None:
    values = random_maps(7, 3, 4, 4)
    maps = named(values, "word", words=["a", "b", "c"])
    shares = [one / one.sum() for one in values]
    mean = sum(shares) / 3
    one, two = (shares[0] - mean).ravel(), (shares[2] - mean).ravel()
    expected = sum(p * q for p, q in zip(one, two, strict=True)) / math.sqrt(sum(one**2) * sum(two**2))
    assert float(similarity(maps, "a", "c")) == pytest.approx(expected)


def test_binding_takes_the_most_alike_of_the_others() -> None:
    values = random_maps(8, 5, 6, 6)
    maps = named(values, "word", words=["red", "ball", "cube", "dog", "hat"])
    sims = {word: float(similarity(maps, "red", word)) for word in ("ball", "cube", "dog", "hat")}
    expected = (sims["ball"] - max(sims["cube"], sims["dog"], sims["hat"])) / 2
    assert float(binding(maps, "red", "ball", ["cube", "dog", "hat", "ball"])) == pytest.approx(expected)


def test_binding_keeps_the_steps() -> None:
    both = xr.concat([scene(LEFT, LEFT, RIGHT, RIGHT), scene(RIGHT, LEFT, LEFT, RIGHT)], "step")
    assert binding(both, "red", "ball", ["cube"]).values == pytest.approx([1, -1], abs=1e-6)


def test_what_can_not_be_told_is_nan() -> None:
    maps = scene(LEFT, LEFT, RIGHT, RIGHT)
    assert np.isnan(binding(maps, "red", "ball", []))
    assert np.isnan(binding(maps, "red", "ball", ["ball"]))
    assert np.isnan(similarity(scene(LEFT, LEFT, LEFT, LEFT), "red", "ball"))
    empty = maps.copy()
    empty[0] = 0
    assert np.isnan(similarity(empty, "red", "ball"))
    assert not np.isnan(similarity(empty, "blue", "ball"))
    with pytest.raises(MapError, match="'dog' has no map here; there are maps of 'red', 'ball'"):
        similarity(maps, "dog", "ball")


def trace_of(maps: xr.DataArray, extra: tuple[str, ...] = ()) -> xr.Dataset:
    """A trace of these words in two layers and steps; other words get maps that lead astray if they are used."""
    words = [*extra, *maps["word"].values.tolist()]
    stray = [maps[0].values * 0 + bump(1, 1, 1) for _ in extra]
    values = np.stack([*stray, *maps.values])
    whole = np.broadcast_to(values[:, None, None], (len(words), 2, 2, *values.shape[1:]))
    return xr.Dataset({"attention": (("word", "step", "layer", "y", "x"), whole)}, {"word": words})


def test_bindings_of_a_trace_warn_of_the_wrong_noun() -> None:
    right = bindings(trace_of(scene(LEFT, LEFT, RIGHT, RIGHT)), [("red", "ball"), ("blue", "cube")])
    assert [(found.modifier, found.noun, found.rival) for found in right] == [
        ("red", "ball", "cube"),
        ("blue", "cube", "ball"),
    ]
    assert [found.warning for found in right] == [None, None]
    wrong = bindings(trace_of(scene(RIGHT, LEFT, LEFT, RIGHT)), [("red", "ball"), ("blue", "cube")])
    assert [found.warning for found in wrong] == [
        "the map of 'red' lies on 'cube' rather than on 'ball' (-1.00)",
        "the map of 'blue' lies on 'ball' rather than on 'cube' (-1.00)",
    ]


def test_bindings_guess_pairs_and_leave_stop_words_out_of_the_baseline() -> None:
    plain = trace_of(scene(LEFT, (8, 4), (5, 11), RIGHT))
    asked = bindings(plain, [("red", "ball"), ("blue", "cube")])
    # In the order of a prompt: a red ball above a blue cube.
    prompt = ["a", "red", "ball", "above", "a#2", "blue", "cube"]
    guessed = bindings(trace_of(plain.attention[:, 0, 0], ("a", "above", "a#2")).sel(word=prompt))
    assert [(found.modifier, found.noun) for found in guessed] == [("red", "ball"), ("blue", "cube")]
    assert [found.score for found in guessed] == pytest.approx([found.score for found in asked])
    assert bindings(trace_of(scene(LEFT, LEFT, RIGHT, RIGHT)), [("red", "ball")], nouns=["ball"]) == ()
    with pytest.raises(MapError, match="'dog' has no map here"):
        bindings(plain, [("dog", "ball")])


@pytest.mark.parametrize(
    ("prompt", "pairs"),
    [
        ("a red circle above a blue square", [("red", "circle"), ("blue", "square")]),
        ("a large striped cross", [("large", "cross"), ("striped", "cross")]),
        ("A Red circle to the left of the blue square", [("Red", "circle"), ("blue", "square")]),
        ("two black cats and a white dog", [("black", "cats"), ("white", "dog")]),
        ("a red ball , blue cube", [("red", "ball"), ("blue", "cube")]),
        ("a dog on a mat", []),
        ("", []),
        # What the rule can't do, as documented.
        ("a dog running fast", [("dog", "fast"), ("running", "fast")]),
    ],
)
def test_pairs_are_guessed_by_the_rule(prompt: str, pairs: list[tuple[str, str]]) -> None:
    assert pairs_of(prompt.split()) == tuple(Pair(*pair) for pair in pairs)


def test_counted_words_keep_their_count() -> None:
    assert pairs_of(["a", "red", "cube", "and", "a#2", "red#2", "cube#2"]) == (("red", "cube"), ("red#2", "cube#2"))
    assert runs_of(["#", "…", "cube"]) == (("cube",),)
