"""The shapes world in the latent space of an autoencoder: a finite set again, on which the posterior is exact."""

from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from denoscope.data.worlds.shapes.exact import ExactShapes
from denoscope.data.worlds.shapes.scenes import LAYOUTS
from denoscope.training.shapes.autoencoder import to_tensor


@torch.no_grad()
def encode_mean(autoencoder: AutoencoderKL, pictures: NDArray[np.uint8]) -> Tensor:
    """Pictures (n, 64, 64, 3) to the posterior means (n, 4, 8, 8), scaled as a diffusion model sees them."""
    mean: Tensor = autoencoder.encode(to_tensor(list(pictures))).latent_dist.mean
    return mean.contiguous() * autoencoder.config.scaling_factor


def latent_world(autoencoder: AutoencoderKL, cache: Path | None = None) -> ExactShapes:
    """Encode the whole world (13,312 pictures, about a minute on two cores), or read it from ``cache``."""
    if cache is not None and cache.exists():
        stored = load_file(cache)
        templates = {region: stored[region] for regions in LAYOUTS.values() for region in regions}
        channels, height, width = (int(n) for n in stored["shape"])
        return ExactShapes(templates, (channels, height, width))
    world = ExactShapes.encoded(lambda pictures: encode_mean(autoencoder, pictures))
    if cache is not None:
        stored = {str(region): value for region, value in world.templates.items()}
        temporary = cache.with_suffix(".part")
        save_file(stored | {"shape": torch.tensor(world.shape)}, temporary)
        temporary.replace(cache)
    return world


def unit_scale(autoencoder: AutoencoderKL, seed: int = 0, n: int = 512) -> float:
    """The factor that gives the latents of the world unit root mean square."""
    from denoscope.data.worlds.shapes import render, sample_scene

    rng = np.random.default_rng(seed)
    pictures = np.stack([render(sample_scene(rng)) for _ in range(n)])
    autoencoder.register_to_config(scaling_factor=1.0)
    return 1 / float(encode_mean(autoencoder, pictures).square().mean().sqrt())
