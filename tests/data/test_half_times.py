import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from denoscope.data.worlds.shapes.captions import parse
from denoscope.data.worlds.shapes.exact import ExactShapes, conditions, pixels
from denoscope.data.worlds.shapes.half_times import _draws, half_times, information_curves
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, VALUES, sample_scene

GRID = np.arange(-9.0, 7.0, 1.0)


def pooled(pictures: NDArray[np.uint8]) -> Tensor:
    """Means of blocks of 8 by 8 pixels."""
    return pixels(pictures).reshape(-1, 3, 8, 8, 8, 8).mean((3, 5))


@pytest.fixture(scope="module")
def world() -> ExactShapes:
    return ExactShapes.encoded(pooled)


@pytest.fixture(scope="module")
def curves(world: ExactShapes) -> xr.Dataset:
    return information_curves(world, GRID, n=128, seed=0)


@pytest.mark.parametrize(("text", "one_object"), [("a shape", True), ("", False)])
def test_products_give_the_exact_posterior(world: ExactShapes, text: str, one_object: bool) -> None:
    double = ExactShapes({region: part.double() for region, part in world.templates.items()}, world.shape)
    given = conditions([parse(text)] * 4, torch.float64)
    regions = ("whole",) if one_object else tuple(double.templates)
    products = next(_draws(double, regions, 4, np.random.default_rng(3), one_object))
    rng = np.random.default_rng(3)
    scenes = [sample_scene(rng, "one" if one_object else None) for _ in range(4)]
    clean = torch.stack([double.scene_map(scene) for scene in scenes])
    noise = torch.from_numpy(rng.standard_normal(clean.shape))
    for logsnr, sign in ((-4.0, 1), (-1.0, -1), (3.0, 1)):
        level = torch.tensor(logsnr, dtype=torch.float64)
        z = level.sigmoid().sqrt() * clean + sign * (-level).sigmoid().sqrt() * noise
        expected, got = double.posterior(z, logsnr, given), products.posterior(logsnr, sign, given)
        torch.testing.assert_close(got.branches.exp(), expected.branches.exp(), atol=1e-10, rtol=0)
        torch.testing.assert_close(got.rows("whole"), expected.rows("whole"), atol=1e-10, rtol=0)


def test_information_is_what_the_true_value_gains(world: ExactShapes, curves: xr.Dataset) -> None:
    """The mean of log p(true | z) / p(true), with other scenes and noise: the same expectation, another estimator."""
    rng, given = np.random.default_rng(9), conditions([parse("a shape")] * 32)
    for logsnr in (-4.0, -1.0, 2.0):
        gains: dict[str, list[float]] = {name: [] for name in ATTRIBUTES}
        for _ in range(8):
            scenes = [sample_scene(rng, "one") for _ in range(32)]
            clean = torch.stack([world.scene_map(scene) for scene in scenes])
            level = torch.tensor(logsnr)
            z = (
                level.sigmoid().sqrt() * clean
                + (-level).sigmoid().sqrt() * torch.from_numpy(rng.standard_normal(clean.shape)).float()
            )
            posterior = world.posterior(z, logsnr, given)
            for name in ATTRIBUTES:
                values = VALUES[name]
                truth = [values.index(scene.things[0].value(name)) for scene in scenes]
                p = posterior.attribute(name, "whole")[range(32), truth]
                gains[name] += (p.log() + np.log(len(values))).tolist()
        for name in ATTRIBUTES:
            at = curves.sel(attribute=name, logsnr=logsnr)
            error = np.hypot(np.std(gains[name]) / 16, float(at["standard_error"]))
            assert abs(np.mean(gains[name]) - float(at["information"])) < 4 * error + 1e-6


def test_information_runs_from_nothing_to_the_entropy(curves: xr.Dataset) -> None:
    information, entropy = curves["information"], curves["entropy"]
    assert (information.isel(logsnr=0) < 0.1 * entropy).all()
    assert float(information.min()) > -1e-3
    assert (information <= entropy + 1e-6).all()
    for name in ("colour", "size", "background", "position", "layout"):
        assert float(information.sel(attribute=name)[-1]) == pytest.approx(float(entropy.sel(attribute=name)), rel=0.02)
    slack = 3 * np.hypot(curves["standard_error"][:, 1:].to_numpy(), curves["standard_error"][:, :-1].to_numpy())
    assert (np.diff(information.to_numpy(), axis=1) > -slack - 1e-6).all()
    assert float(entropy.sel(attribute="layout")) == pytest.approx(1.5 * np.log(2))


def test_a_function_of_an_attribute_has_less_information(curves: xr.Dataset) -> None:
    side, position = (curves["information"].sel(attribute=name).to_numpy() for name in ("side", "position"))
    assert (side <= position + 1e-6).all()


def test_half_times_are_ordered_and_inside_their_intervals(curves: xr.Dataset) -> None:
    times = half_times(curves, resamples=200)
    t50 = times["time"].sel(fraction=0.5)
    assert (
        float(t50.sel(attribute="background"))
        < float(t50.sel(attribute="colour"))
        < float(t50.sel(attribute="size"))
        < float(t50.sel(attribute="shape"))
    )
    known = np.isfinite(times["low"].to_numpy())
    time, low, high = (times[key].to_numpy()[known] for key in ("time", "low", "high"))
    assert known[:, 1].sum() >= 6
    assert (low <= time).all()
    assert (time <= high).all()
    reached = times["time"].sel(attribute=["colour", "size", "position"]).to_numpy()
    assert (np.diff(reached, axis=1) > 0).all()


def test_half_times_of_a_known_curve() -> None:
    """Every scene has H(Y | z) = 1 − (logsnr + 4)/8 nats of 1: the information passes a share at −4 + 8·share."""
    levels = np.linspace(-4, 4, 9)
    draws = np.broadcast_to(1 - (levels + 4) / 8, (1, 10, 9))
    curves = xr.Dataset(
        {"posterior_entropy": (("attribute", "scene", "logsnr"), draws), "entropy": ("attribute", [1.0])},
        coords={"attribute": ["colour"], "logsnr": levels},
    )
    times = half_times(curves, resamples=20)
    for key in ("time", "low", "high"):
        np.testing.assert_allclose(times[key].sel(attribute="colour"), [-3.2, 0.0, 3.2], atol=1e-12)
    short = half_times(curves.isel(logsnr=slice(0, 6)), resamples=20)
    assert np.isnan(float(short["time"].sel(attribute="colour", fraction=0.9)))


def test_a_seed_gives_the_same_curves(world: ExactShapes) -> None:
    first, second = (information_curves(world, [-3, 0], n=4, seed=5) for _ in range(2))
    assert first.identical(second)
    assert not first.identical(information_curves(world, [-3, 0], n=4, seed=6))


def test_too_little_is_an_error(world: ExactShapes, curves: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="at least 2 scenes and 2 levels, not 1 and 2"):
        information_curves(world, [0, 1], n=1)
    with pytest.raises(ValueError, match="at least 2 scenes and 2 levels, not 5 and 1"):
        information_curves(world, [0], n=5)
    with pytest.raises(ValueError, match="at least 2 resamples, not 1"):
        half_times(curves, resamples=1)


def test_the_script_prints_json() -> None:
    command = [sys.executable, "-m", "benchmarks.exact_half_times", "--space", "pooled", "--n", "8", "--step", "2"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, "--resamples", "5", "--json"], cwd=root, capture_output=True, text=True, check=True
    )
    printed = json.loads(done.stdout)
    assert printed["settings"]["n"] == 8
    assert set(printed["half_times"]["colour"]) == {"t10", "t50", "t90"}
