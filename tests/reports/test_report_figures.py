"""The numbers and the figures, against values worked out by hand or with numpy."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from report_samples import LAYERS, WORDS, make_trace

from denoscope.reports import figures, summaries
from denoscope.reports.figures.axis import nice_ticks
from denoscope.reports.figures.style import word_line


def lines(figure: object) -> dict[str, list[float]]:
    """The named lines of a figure; the unseen one that heads the tool tip has no name."""
    return {trace.name: trace.y for trace in figure.data if trace.name}  # type: ignore[attr-defined]


def test_curves_hold_the_numbers_of_the_trace() -> None:
    trace = make_trace()
    mass = lines(figures.mass_curves(trace))
    spread = lines(figures.spread_curves(trace))
    assert list(mass) == list(spread) == WORDS
    for index, word in enumerate(WORDS):
        maps = trace["attention"].values[index].astype(float)
        np.testing.assert_allclose(mass[word], maps.mean((1, 2, 3)), rtol=1e-5)
        share = maps.mean(1).reshape(25, -1)
        share /= share.sum(1, keepdims=True)
        np.testing.assert_allclose(spread[word], -(share * np.log(share)).sum(1) / np.log(256), rtol=1e-5)
    effort = lines(figures.guidance_curve(trace))["guidance effort"]
    np.testing.assert_allclose(effort, trace["guidance"].values.sum((1, 2)), rtol=1e-5)
    areas = lines(figures.token_areas(trace))
    np.testing.assert_allclose(np.sum(list(areas.values()), 0), 1, rtol=1e-5)
    heat = figures.layer_heatmap(trace, "blue").data[0]
    np.testing.assert_allclose(heat.z, trace["attention"].sel(word="blue").values.mean((2, 3)).T, rtol=1e-5)
    assert np.shape(heat.z) == (len(LAYERS), 25)


def test_every_figure_has_the_noise_axis_below_and_the_steps_above() -> None:
    trace = make_trace()
    for build in (figures.mass_curves, figures.spread_curves, figures.token_areas, figures.guidance_curve):
        figure = build(trace)
        assert list(figure.data[1].x) == pytest.approx(trace["logsnr"].values.tolist())
        assert figure.layout.xaxis2.side == "top"
        assert figure.layout.xaxis2.range == figure.layout.xaxis.range
        assert figure.layout.xaxis2.ticktext[0] == "0"
        assert figure.layout.xaxis2.ticktext[-1] == "24"
        assert list(figure.data[1].customdata) == list(range(25))


def test_figures_say_which_variable_they_miss() -> None:
    bare = make_trace(attention=False, guidance=False)
    for build, name in [(figures.mass_curves, "attention"), (figures.guidance_curve, "guidance")]:
        with pytest.raises(KeyError, match=name):
            build(bare)


def test_steps_that_were_not_observed_stay_gaps() -> None:
    trace = make_trace(hole=7)
    assert np.isnan(summaries.guidance_effort(trace)[7])
    assert np.isnan(summaries.spread(summaries.word_maps(trace))[:, 7]).all()
    assert np.isnan(summaries.word_mass(trace)[..., 7]).all()
    assert np.isfinite(summaries.word_mass(trace)[..., 8]).all()


@pytest.mark.parametrize(
    "logsnr",
    [
        [-np.inf, -4.0, 1.0, np.inf],
        [-np.inf, np.inf, np.inf, np.inf],
        [np.nan] * 4,
        [2.0] * 4,
        [-np.inf, -np.inf, 0.0, 1e-9],
        [-6.0, -2.0, -2.0, 5.0],
        [3.0, 1.0, -1.0, -3.0],
    ],
)
def test_any_log_snr_gives_a_finite_axis(logsnr: list[float]) -> None:
    trace = make_trace(steps=4).assign_coords(logsnr=("step", logsnr))
    axis = figures.step_axis(trace)
    assert np.isfinite(axis.positions).all()
    low, high = axis.range
    assert low < high
    assert all(low <= at <= high for at, _ in (*axis.ticks, *axis.step_ticks))
    finite = np.isfinite(logsnr)
    if axis.title == "log-SNR":
        np.testing.assert_allclose(axis.positions[finite], np.array(logsnr)[finite])
        labels = [label for _, label in axis.ticks]
        assert ("−∞" in labels, "+∞" in labels) == (-np.inf in logsnr, np.inf in logsnr)
    figures.mass_curves(trace).to_json()


def test_one_step_has_an_axis() -> None:
    assert figures.step_axis(make_trace(steps=1)).positions.tolist() == [0.0]


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4))
def test_ticks_are_few_round_and_inside(low: float, width: float) -> None:
    ticks = nice_ticks(low, low + width)
    assert 2 <= len(ticks) <= 8
    assert all(low - 1e-6 * width <= tick <= low + width * (1 + 1e-6) for tick in ticks)


@given(hnp.arrays(np.float64, (3, 5), elements=st.floats(0, 1)))
def test_spread_is_between_point_and_everywhere(values: np.ndarray) -> None:
    result = float(summaries.spread(xr.DataArray(values, dims=("y", "x"))))
    if values.sum() == 0:
        assert np.isnan(result)
    else:
        assert -1e-9 <= result <= 1 + 1e-9


def test_lines_differ_for_more_words_than_colours() -> None:
    assert len({word_line(index) for index in range(28)}) == 28


@pytest.mark.parametrize(
    ("names", "shorts"),
    [
        (
            [
                "down_blocks.0.attentions.0.transformer_blocks.0.attn2",
                "mid_block.attentions.0.transformer_blocks.1.attn2",
            ],
            ["down 0.0/0", "mid 0/1"],
        ),
        (["layer"], ["layer"]),
        (["transformer_blocks.0.attn", "transformer_blocks.1.attn"], ["transformer 0.attn", "transformer 1.attn"]),
        (["a_blocks.0", "a_block.0"], ["a_blocks.0", "a_block.0"]),
    ],
)
def test_short_layer_names_are_unique_or_full(names: list[str], shorts: list[str]) -> None:
    assert summaries.short_layer_names(names) == shorts


def test_what_words_add_is_summed_over_places_and_halved_between_steps() -> None:
    trace = make_trace(words=["red", "dog"], steps=4, size=2, information="information")
    levels = [-np.inf, -2.0, 0.0, 2.0]
    trace = trace.assign_coords(logsnr=("step", levels))
    rates = np.zeros((2, 4, 2, 2))
    rates[0, 2] = 0.25
    written = np.zeros((2, 4, 2, 2))
    written[0, 2], written[0, 3] = 0.25, 0.5
    trace["information_rate"] = trace["information_rate"].copy(data=rates)
    trace["information_written"] = trace["information_written"].copy(data=written)
    trace["information_total"] = ("word", [2.0, 0.0])
    assert summaries.word_effort(trace) == [("red", 2.0, 0.0, 0.0), ("dog", 0.0, None, None)]
    assert list(lines(figures.information_curves(trace))["red"]) == [0.0, 0.0, 1.0, 0.0]
    assert list(lines(figures.information_sums(trace))["red"]) == [0.0, 0.0, 1.0, 2.0]
    assert summaries.word_effort(make_trace()) == []
