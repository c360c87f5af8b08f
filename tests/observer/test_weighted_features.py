"""Means of features over places, weighted by a map."""

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline
from family_calls import PROMPT
from numpy.typing import NDArray

from denoscope import ObserveError, observe
from denoscope.observer.weighting import by_area


def draw(pipe: StableDiffusionPipeline) -> None:
    pipe(PROMPT, num_inference_steps=2, output_type="latent", generator=torch.Generator().manual_seed(5))


def test_an_even_weight_gives_the_mean_and_a_single_place_its_value(pipe: StableDiffusionPipeline) -> None:
    seen: list[torch.Tensor] = []
    handle = pipe.unet.up_blocks[1].register_forward_hook(lambda _m, _a, out: seen.append(out.double()))
    height, width = 8, 8
    one, ramp = np.zeros((height, width)), np.arange(1.0, 3.0)[:, None]
    one[5, 2] = 0.1
    weights = {"even": np.full((3, 5), 7.0), "place": one, "halves": ramp}
    with observe(pipe, features=["up_blocks.1"], feature_weights=weights) as watch:
        draw(pipe)
    handle.remove()
    found = watch.features["up_blocks.1"]["weighted"]
    assert found.dims == ("sample", "branch", "step", "weight", "channel")
    assert found.weight.values.tolist() == ["even", "place", "halves"]
    for step, output in enumerate(seen):
        assert output.shape[-2:] == (height, width)
        for branch, values in zip(("uncond", "cond"), output, strict=True):
            told = found.sel(branch=branch).isel(sample=0, step=step)
            np.testing.assert_allclose(told.sel(weight="even"), values.mean((1, 2)), rtol=2e-3, atol=2e-3)
            np.testing.assert_allclose(told.sel(weight="place"), values[:, 5, 2], rtol=2e-3, atol=2e-3)
            upper, lower = values[:, :4].mean((1, 2)), values[:, 4:].mean((1, 2))
            np.testing.assert_allclose(told.sel(weight="halves"), (upper + 2 * lower) / 3, rtol=2e-3, atol=2e-3)
    assert float(abs(found.sel(weight="even") - found.sel(weight="place")).max()) > 0.05


def test_rows_are_weighted_by_the_places_they_stand_for(pipe: StableDiffusionPipeline) -> None:
    block = "up_blocks.2.attentions.0.transformer_blocks.0"
    rows: list[torch.Tensor] = []
    handle = pipe.unet.get_submodule(block).register_forward_hook(lambda _m, _a, out: rows.append(out.double()))
    one = np.zeros((8, 8))
    one[3, 6] = 1
    with observe(pipe, features=[block], feature_weights={"place": one}) as watch:
        draw(pipe)
    handle.remove()
    found = watch.features[block]["weighted"].sel(branch="cond").isel(sample=0, step=1, weight=0)
    np.testing.assert_allclose(found, rows[1][1, 3 * 8 + 6], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (5, 3), (8, 8), (16, 24), (7, 11)])
def test_resizing_by_area_is_the_integral_over_each_place(size: tuple[int, int]) -> None:
    weights = np.random.default_rng(0).random((8, 6))
    found = by_area(weights, size)
    # The integral on a grid fine enough that both grids' edges lie on its own.
    fine = np.kron(weights, np.ones((size[0], size[1])))
    blocks = fine.reshape(size[0], 8, size[1], 6).sum((1, 3))
    np.testing.assert_allclose(found, blocks / blocks.sum(), rtol=1e-12)
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "weight", [np.zeros((2, 2)), -np.ones((2, 2)), np.ones(4), np.full((2, 2), np.nan), np.ones((0, 2))]
)
def test_weights_that_are_no_maps(pipe: StableDiffusionPipeline, weight: NDArray[np.float64]) -> None:
    with pytest.raises(ObserveError, match="the feature weight 'odd' is no map"):
        observe(pipe, features=True, feature_weights={"odd": weight})


def test_weights_need_layers_and_layers_with_places(pipe: StableDiffusionPipeline) -> None:
    with pytest.raises(ObserveError, match="name some by features"):
        observe(pipe, feature_weights={"even": np.ones((2, 2))})
    with observe(pipe, features=["time_embedding"], feature_weights={"even": np.ones((2, 2))}) as watch:
        draw(pipe)
    with pytest.raises(ObserveError, match="time_embedding gives out no map"):
        _ = watch.features
