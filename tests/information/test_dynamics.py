"""Curves, decision times, layers and anomalies, against closed forms and faults that were put in."""

import numpy as np
import pytest
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from benchmarks.anomaly_rates import EXPECTED, Fault, rate, simulated
from denoscope.data.worlds.shapes.exact import ExactShapes
from denoscope.data.worlds.shapes.half_times import half_times, information_curves
from denoscope.information import InformationError
from denoscope.information.dynamics import anomalies, curves, increments, information, isotonic, times, transfer
from denoscope.information.dynamics.resampling import cluster_weights
from denoscope.information.dynamics.times import crossings, stays_above

Array = NDArray[np.float64]


def of_beliefs(own: Array, logsnr: Array, values: int = 4) -> xr.Dataset:
    """An experiment whose samples believe in their own value with probabilities ``own (layer, step, sample)``."""
    layers, steps, count = own.shape
    label = np.arange(count) % values
    beliefs = np.repeat(((1 - own) / (values - 1))[..., None], values, -1)
    np.put_along_axis(beliefs, np.broadcast_to(label[:, None], (layers, steps, count, 1)), own[..., None], -1)
    return xr.Dataset(
        {
            "log_belief": (("slot", "branch", "layer", "step", "sample", "value"), np.log(beliefs)[None, None]),
            "label": (("slot", "sample"), label[None]),
            "prior": (("slot", "value"), np.full((1, values), 1 / values)),
        },
        {
            "slot": ["word"],
            "branch": ["uncond"],
            "layer": [f"layer {number}" for number in range(layers)],
            "step": list(range(steps)),
            "value": [str(value) for value in range(values)],
            "logsnr": ("step", logsnr),
            "context": ("sample", np.arange(count) // values % 8),
            "seed": ("sample", np.arange(count) // (8 * values)),
        },
    )


def rising(logsnr: Array, at: float, count: int = 512, noise: float = 0.3, seed: int = 0) -> Array:
    """Beliefs ``(1, step, count)`` that rise from a quarter to nearly one about ``at``."""
    rng = np.random.default_rng(seed)
    shift = noise * rng.normal(size=count)
    share = 1 / (1 + np.exp(-2 * (logsnr[:, None] - at - shift)))
    return (0.25 + 0.745 * share)[None]


def test_information_is_the_mean_score_and_entropy_the_rest() -> None:
    logsnr = np.linspace(-4, 4, 5)
    own = rising(logsnr, 0.0)
    found = information(of_beliefs(own, logsnr))
    expected = np.log(own[0] * 4).mean(1)
    np.testing.assert_allclose(found["information"].values[0, 0, 0], expected, atol=1e-9)
    np.testing.assert_allclose(found["conditional_entropy"] + found["information"], np.log(4), atol=1e-12)
    np.testing.assert_allclose(found["belief"].values[0, 0, 0], own[0].mean(1), atol=1e-9)


def test_isotonic_curves_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    logsnr = np.sort(rng.normal(size=20))
    values = rng.normal(size=(30, 20)) + np.linspace(0, 2, 20)
    gaps = np.diff(logsnr)
    widths = (np.append(gaps, 0) + np.append(0, gaps)) / 2
    expected = [isotonic_regression(row, weights=widths).x for row in values]
    np.testing.assert_allclose(isotonic(values, logsnr), expected, atol=1e-9)


def test_the_interval_covers_the_mean_of_further_contexts_and_seeds() -> None:
    covered = 0
    for repeat in range(200):
        rng = np.random.default_rng(repeat)
        context, seed = (a.ravel() for a in np.meshgrid(range(8), range(16), indexing="ij"))
        values = rng.normal(size=8)[context] + rng.normal(size=16)[seed] + rng.normal(size=128)
        drawn = cluster_weights(context, seed, 400) @ values
        low, high = np.quantile(drawn, [0.05, 0.95])
        covered += int(low <= 0 <= high)
    assert 165 <= covered <= 200  # .90 would be 180


def test_times_are_where_they_were_put() -> None:
    logsnr = np.linspace(-8, 8, 81)
    found = times(of_beliefs(rising(logsnr, -1.0, noise=0.0), logsnr), draws=50)
    share = np.linspace(-8, 8, 100_001)
    own = 0.25 + 0.745 / (1 + np.exp(-2 * (share + 1.0)))
    curve = np.log(4 * own)
    expected = share[np.searchsorted(curve, curve[-1] / 2)]
    assert float(found["time"].sel(fraction=0.5).squeeze()) == pytest.approx(expected, abs=0.02)
    locked = share[np.searchsorted(own, 0.9)]
    assert float(found["lock_in"].squeeze()) == pytest.approx(locked, abs=0.02)


def test_times_of_the_exact_world_are_those_of_its_own_page() -> None:
    grid = np.linspace(-10, 4, 29)
    exact = information_curves(_coarse(), grid, n=64)
    expected = half_times(exact, resamples=10)
    for attribute in ("colour", "shape", "size"):
        curve = exact["information"].sel(attribute=attribute).values
        entropy = float(exact["entropy"].sel(attribute=attribute))
        found = crossings(isotonic(curve, grid), grid, np.array(entropy / 2))
        told = float(expected["time"].sel(attribute=attribute, fraction=0.5))
        if not np.isnan(told):
            assert float(found) == pytest.approx(told, abs=0.05)


def _coarse() -> ExactShapes:
    def encode(pictures: NDArray[np.uint8]) -> torch.Tensor:
        held = torch.from_numpy(pictures).permute(0, 3, 1, 2).double() / 127.5 - 1
        return torch.nn.functional.avg_pool2d(held, 8)

    return ExactShapes.encoded(encode, torch.float64)


def test_t50_scatters_less_than_the_steepest_step() -> None:
    logsnr = np.linspace(-8, 6, 25)
    found: dict[str, list[float]] = {"time": [], "peak": []}
    for repeat in range(30):
        drawn = times(of_beliefs(rising(logsnr, -1.0, 64, 1.5, repeat), logsnr), draws=2)
        found["time"].append(float(drawn["time"].sel(fraction=0.5).squeeze()))
        found["peak"].append(float(drawn["peak"].squeeze()))
    assert np.std(found["time"]) < np.std(found["peak"])


def test_a_word_that_is_never_known_has_no_time() -> None:
    logsnr = np.linspace(-4, 4, 9)
    rng = np.random.default_rng(0)
    nothing = np.clip(0.25 + 0.01 * rng.normal(size=(1, 9, 512)), 0.01, 0.99)
    found = times(of_beliefs(nothing, logsnr), draws=100)
    assert np.isnan(found["time"]).all()
    assert "shuffled labels" in str(found["time_reason"].values.ravel()[0])


def test_a_rate_is_never_negative_and_sums_to_what_is_known() -> None:
    logsnr = np.linspace(-8, 8, 60)
    found = curves(of_beliefs(rising(logsnr, 0.0), logsnr), draws=20)
    rates, curve = found["rate"].values.ravel(), found["curve"].values.ravel()
    assert (rates >= 0).all()
    assert np.trapezoid(rates, logsnr) == pytest.approx(curve[-1] - curve[0], rel=0.02)


def test_lock_in_is_for_good() -> None:
    curve = np.array([0.95, 0.5, 0.95, 0.95])
    assert float(stays_above(curve, np.arange(4.0), 0.9)) == pytest.approx(1 + 0.4 / 0.45)


def test_increments_add_up_to_the_last_layer() -> None:
    logsnr = np.linspace(-4, 4, 5)
    own = np.concatenate([rising(logsnr, at) for at in (1.0, 0.0, -1.0)])
    dataset = of_beliefs(own, logsnr)
    found = increments(dataset, draws=20)["increment"].sum("layer").values
    np.testing.assert_allclose(found[0, 0], information(dataset, draws=2)["information"].values[0, 0, -1], atol=1e-9)


def test_layers_that_say_the_same_share_all_and_others_nothing() -> None:
    rng = np.random.default_rng(0)
    context, label, seed = (a.ravel() for a in np.meshgrid(range(8), range(4), range(32), indexing="ij"))
    bits = np.stack([label // 2, label % 2])
    halves: list[Array] = []
    for bit in bits:  # each layer knows one of the label's two bits, with some doubt of its own
        sure = 3 * (2 * bit - 1) + rng.normal(size=len(label))
        both = np.stack([-sure, sure])
        mask = np.stack([np.arange(4) // 2, np.arange(4) % 2])[len(halves)]
        logits = both[mask].T
        halves.append(logits - np.log(np.exp(logits).sum(1, keepdims=True)))
    beliefs = np.stack([halves[0], halves[0], halves[1]])[:, None]
    dataset = of_beliefs(np.full((3, 2, len(label)), 0.5), np.array([0.0, 1.0]))
    dataset = dataset.assign(
        log_belief=(dataset["log_belief"].dims, np.repeat(beliefs, 2, 1)[None, None]),
        label=(("slot", "sample"), label[None]),
    ).assign_coords(context=("sample", context), seed=("sample", seed))
    found = transfer(dataset, [1])["transfer"].values[0, 0, 0]
    assert found[0, 1] == pytest.approx(1, abs=0.05)
    assert found[0, 2] == pytest.approx(0, abs=0.1)
    np.testing.assert_allclose(np.diag(found), 1, atol=1e-9)


@pytest.mark.parametrize("fault", list(EXPECTED))
def test_healthy_experiments_are_quiet_and_faults_are_found(fault: Fault) -> None:
    found = rate(fault, 8)
    assert found <= 0.25 if EXPECTED[fault] is None else found >= 0.75


def test_an_anomaly_names_layer_word_and_steps() -> None:
    late = simulated("delay", 3)
    [found] = [each for each in anomalies([late]) if each.kind == "delayed response"]
    assert found.word is not None
    assert found.word in found.sentence
    assert found.layer == "last"
    assert 0 < found.least <= found.size
    collapsed = [each for each in anomalies([simulated("collapse", 3)]) if each.kind == "information collapse"]
    assert collapsed[0].layer == "up"
    assert len(collapsed[0].steps) > 3


def test_a_later_layer_that_keeps_more_than_half_is_no_collapse() -> None:
    logsnr = np.linspace(-8, 6, 13)
    whole = rising(logsnr, -2.0, noise=0.0)
    kept = 0.25 + 0.55 * (whole - 0.25)
    dataset = of_beliefs(np.concatenate([whole, kept]), logsnr)
    held = information(dataset, draws=2)["information"].values[0, 0, :, -1]
    assert 0.5 < held[1] / held[0] < 0.8
    assert not [each for each in anomalies([dataset]) if each.kind == "information collapse"]


def test_what_two_layers_share_is_a_share_of_what_the_second_knows() -> None:
    context, label, seed = (a.ravel() for a in np.meshgrid(range(8), range(4), range(32), indexing="ij"))
    whole = np.where(np.eye(4)[label] > 0, 0.97, 0.01)
    half = np.where(np.arange(4)[None] // 2 == label[:, None] // 2, 0.49, 0.01)  # one of two bits
    beliefs = np.log(np.stack([whole, half]))[:, None].repeat(2, 1)
    dataset = of_beliefs(np.full((2, 2, len(label)), 0.5), np.array([0.0, 1.0]))
    dataset = dataset.assign(
        log_belief=(dataset["log_belief"].dims, beliefs[None, None]), label=(("slot", "sample"), label[None])
    ).assign_coords(context=("sample", context), seed=("sample", seed))
    found = transfer(dataset, [1])["transfer"].values[0, 0, 0]
    assert found[0, 1] == pytest.approx(1, abs=0.02)
    assert found[1, 0] == pytest.approx(0.5, abs=0.02)


def test_experiments_that_are_none_are_said() -> None:
    dataset = simulated("healthy", 0)
    with pytest.raises(InformationError, match="no 'prior'"):
        information(dataset.drop_vars("prior"))
    with pytest.raises(InformationError, match="must rise"):
        information(dataset.assign_coords(logsnr=("step", -dataset["logsnr"].values)))
    with pytest.raises(InformationError, match="don't add up"):
        information(dataset.assign(log_belief=dataset["log_belief"] - 1))
