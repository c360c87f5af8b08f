"""Parts of an experiment on disk, and the atlas that is made of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import f_oneway

from denoscope.information import InformationError
from denoscope.information.population import Part, Parts, atlas, is_written, part_path, plan_population, write_part
from denoscope.information.population.atlas import omega_squared
from denoscope.information.wording.template import Template

POPULATION = plan_population(
    Template("a {colour} {shape}", {"colour": ("red", "blue", "green")}, {"shape": ("circle", "cross")}),
    contexts=2,
    seeds=3,
)


def written(folder: Path) -> dict[int, Part]:
    """A part for every prompt: one layer of four channels without a grid, two branches, two steps."""
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([[999.0, 9.0, -4.0], [1.0, 0.1, 4.0]], dtype=torch.float64)
    found = {}
    for number, prompt in enumerate(POPULATION.prompts):
        features = {"mid": torch.randn(2, 2, 3, 8, generator=generator).half()}
        latents = torch.randn(3, 4, 2, 2, generator=generator)
        found[number] = Part(prompt, ("cond", "uncond"), features, {"mid": 4}, levels, latents)
        write_part(folder, number, found[number])
    return found


def test_parts_are_read_as_they_were_written(tmp_path: Path) -> None:
    told = written(tmp_path)
    parts = Parts.open(tmp_path, len(told))
    assert (parts.branches, parts.layers) == (("cond", "uncond"), ("mid",))
    for side, branch in enumerate(parts.branches):
        for step, rows in parts.features("mid", branch, [4, 1]):
            expected = torch.cat([told[number].features["mid"][side, step] for number in (4, 1)])
            np.testing.assert_array_equal(rows, expected.float().numpy())
    assert torch.equal(parts.latents(2), told[2].latents)


def test_a_missing_a_damaged_and_another_experiment_s_part_are_said(tmp_path: Path) -> None:
    told = written(tmp_path)
    assert is_written(tmp_path, 0, POPULATION.prompts[0])
    assert not is_written(tmp_path, 99, "a red circle")
    with pytest.raises(InformationError, match="another experiment"):
        is_written(tmp_path, 0, "a red dog")
    part_path(tmp_path, 1).write_bytes(b"\0" * 20)
    with pytest.raises(InformationError, match="damaged"):
        is_written(tmp_path, 1, POPULATION.prompts[1])
    part_path(tmp_path, 2).unlink()
    with pytest.raises(InformationError, match="missing"):
        Parts.open(tmp_path, len(told))


def test_what_a_word_decides_is_omega_squared_of_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4, 3, 5, 2)) + np.arange(3)[None, :, None, None] * np.array([1.0, 0.0])
    for channel, found in enumerate(omega_squared(rows)):
        groups = [rows[:, value, :, channel].ravel() for value in range(3)]
        gain = 2 * (f_oneway(*groups).statistic - 1)
        assert found == pytest.approx(gain / (gain + 60))  # (K − 1)(F − 1) over itself plus N
    assert np.isnan(omega_squared(np.ones((2, 2, 2, 1)))).all()


def test_the_atlas_has_every_channel_s_mean(tmp_path: Path) -> None:
    told = written(tmp_path)
    found = atlas(Parts.open(tmp_path, len(told)), POPULATION)
    every = torch.stack([part.features["mid"] for part in told.values()]).double()  # (prompt, branch, step, seed, 8)
    np.testing.assert_allclose(found["mean"].values[:, 0], every[..., :4].mean((0, 3)), atol=1e-6)
    [arm] = POPULATION.arms
    rows = every[arm.prompts][:, :, 1, 0, :, :4].numpy()
    np.testing.assert_allclose(found["decided"].values[0, 1, 0, 0], omega_squared(rows), atol=1e-5)
