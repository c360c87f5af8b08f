"""Beliefs along a path against the exact posterior of the same latents, and against closed forms."""

import numpy as np
import pytest
import torch
import xarray as xr
from diffusers import DDIMScheduler, DDPMScheduler, EulerDiscreteScheduler, StableDiffusionPipeline
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.slot_worlds import SlotShapes, prompts, slot_pipeline
from denoscope.data.worlds.shapes.scenes import SIZES, Attribute
from denoscope.information.errors import InformationError
from denoscope.information.levels import timesteps_at, trained_range, uniform_timesteps
from denoscope.information.path_posterior import path_posterior, renoised_posterior, transition_loglik
from denoscope.schedules import logsnr_of

CONTEXT = "a {} striped red circle on the left"
NAME: Attribute = "size"
OPEN = CONTEXT.format("").replace("  ", " ")


@pytest.fixture(scope="module")
def exact() -> tuple[StableDiffusionPipeline, SlotShapes]:
    return slot_pipeline("pooled")


def truth(world: SlotShapes, found: xr.Dataset) -> NDArray[np.float64]:
    """p(size | z) from the templates, for the latents that were kept."""
    z = torch.from_numpy(found.latents.values)
    levels = enumerate(found.logsnr.values)
    return torch.stack([world.belief(z[:, i], float(level), NAME, OPEN) for i, level in levels], 1).numpy()


@pytest.mark.parametrize("guidance_scale", [1.0, 3.0])
def test_the_belief_is_the_exact_posterior(
    exact: tuple[StableDiffusionPipeline, SlotShapes], guidance_scale: float
) -> None:
    pipe, world = exact
    timesteps = uniform_timesteps(pipe.scheduler, 120, -6, 2)
    found = path_posterior(
        pipe,
        prompts(CONTEXT, NAME),
        values=SIZES,
        seeds=range(8),
        guidance_scale=guidance_scale,
        negative_prompt="a circle",
        timesteps=timesteps,
        keep_latents=True,
    )
    right = truth(world, found)
    assert found.posterior.dims == ("sample", "step", "value")
    assert found.sizes == {
        "sample": 16,
        "step": len(timesteps),
        "value": 2,
        "latent_0": 3,
        "latent_1": 8,
        "latent_2": 8,
    }
    assert float(np.abs(found.posterior.values - right).mean()) < 0.012  # the error of this many steps
    assert np.allclose(found.posterior.values[:, 0], 0.5)
    own = found.posterior.sel(value=found.intended).values
    assert np.allclose(found.cross_entropy, -np.log(own))
    assert np.allclose(found.entropy, -(right_log := found.posterior * np.log(found.posterior + 1e-300)).sum("value"))
    assert np.isfinite(right_log).all()
    if guidance_scale == 1:
        assert float(own[:, -1].mean()) > 0.99
        assert found.attrs["path"] == "sampled"


def test_finer_steps_come_nearer(exact: tuple[StableDiffusionPipeline, SlotShapes]) -> None:
    pipe, world = exact
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(len(world.templates["whole"][0]), (32,), generator=generator)
    clean = world.templates["whole"][0, rows].reshape(-1, *world.shape)
    errors = []
    for steps in (20, 320):
        found = renoised_posterior(
            pipe, clean, prompts(CONTEXT, NAME), np.linspace(-6, 1, steps), values=SIZES, keep_latents=True, seed=3
        )
        assert np.isnan(found.cross_entropy).all()
        errors.append(float(np.abs(found.posterior.values - truth(world, found)).mean()))
    # Pictures of any object: none of both substitutes fits, but the posterior of z among the two is still exact.
    assert errors[1] < errors[0] / 2


def test_a_prior_counts(exact: tuple[StableDiffusionPipeline, SlotShapes]) -> None:
    pipe, _ = exact
    found = path_posterior(
        pipe, prompts(CONTEXT, NAME), prior=[0.9, 0.1], drawn=[1], seeds=[0, 1], num_inference_steps=40
    )
    assert np.allclose(found.posterior.values[:, 0], [0.9, 0.1])
    assert found.sizes["sample"] == 2
    assert float(found.cross_entropy.values[:, -1].max()) < 0.01


def test_ddim_with_noise_and_ddpm_are_one_sampler(exact: tuple[StableDiffusionPipeline, SlotShapes]) -> None:
    pipe, _ = exact
    spacing = {"timestep_spacing": "trailing", "steps_offset": 1}
    settings = {"seeds": [0, 1], "num_inference_steps": 20, "keep_latents": True}
    ddpm = StableDiffusionPipeline(**pipe.components, requires_safety_checker=False)
    ddpm.scheduler = DDPMScheduler.from_config(pipe.scheduler.config, **spacing)
    ddim = StableDiffusionPipeline(**pipe.components, requires_safety_checker=False)
    ddim.scheduler = DDIMScheduler.from_config(pipe.scheduler.config, **spacing)
    for one in (ddpm, ddim):
        one.set_progress_bar_config(disable=True)
    first = path_posterior(ddpm, prompts(CONTEXT, NAME), **settings)  # type: ignore[arg-type]
    second = path_posterior(ddim, prompts(CONTEXT, NAME), eta=1.0, **settings)  # type: ignore[arg-type]
    assert np.allclose(first.latents, second.latents, atol=1e-3)
    assert np.allclose(first.posterior, second.posterior, atol=1e-3)


def test_transitions_are_gaussian() -> None:
    """Against the density itself, in float64."""
    generator = torch.Generator().manual_seed(0)
    z_t, z_s = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)
    clean = torch.randn(5, 3, 7, generator=generator, dtype=torch.float64)
    t, s = np.exp(1.2), np.exp(0.7)  # variances of the noise, relative to the signal
    mean = clean + s / t * (z_t[:, None] - clean)
    right = torch.from_numpy(norm.logpdf(z_s[:, None], mean, (s * (1 - s / t)) ** 0.5)).sum(-1)
    found = transition_loglik(z_t, z_s, clean, -1.2, -0.7)
    torch.testing.assert_close(found - found[:, :1], right - right[:, :1])


def test_samplers_without_noise_are_refused(exact: tuple[StableDiffusionPipeline, SlotShapes]) -> None:
    pipe, _ = exact
    other = StableDiffusionPipeline(**pipe.components, requires_safety_checker=False)
    other.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
    with pytest.raises(InformationError, match=r"eta=0.0 is no ancestral sampler.*renoised_posterior"):
        path_posterior(other, prompts(CONTEXT, NAME))
    other.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config)
    with pytest.raises(InformationError, match=r"DDPMScheduler\.from_config"):
        path_posterior(other, prompts(CONTEXT, NAME))
    with pytest.raises(InformationError, match="at least two prompts"):
        path_posterior(pipe, ["a circle"])
    with pytest.raises(InformationError, match="sum to 1"):
        path_posterior(pipe, prompts(CONTEXT, NAME), prior=[0.5, 0.4])
    with pytest.raises(InformationError, match="from 0 to 1"):
        path_posterior(pipe, prompts(CONTEXT, NAME), drawn=[2])
    with pytest.raises(InformationError, match="as many values"):
        path_posterior(pipe, prompts(CONTEXT, NAME), values=["small"])


def test_timesteps_have_the_levels_asked() -> None:
    scheduler = DDPMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    asked = np.linspace(-5, 7, 9)
    found = logsnr_of(scheduler, timesteps_at(scheduler, asked)).logsnr.numpy()
    assert np.allclose(found, asked)
    low, high = trained_range(scheduler)
    assert (round(low, 2), round(high, 2)) == (-5.36, 7.07)
    with pytest.raises(InformationError, match=r"-5.36 to 7.07"):
        timesteps_at(scheduler, [-5.4])
