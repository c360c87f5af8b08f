"""The autoencoder of the shapes model: 64×64×3 pictures to 8×8×4 latents and back.

The latents of a two-object scene are defined as put together from its halves' latents (each half encoded alone on the
background), so that the set of latents factorises over halves exactly. The decoder therefore trains on such composites
as well as on the encoder's own latents.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import Tensor
from torch.nn import functional

from denoscope.data.worlds.shapes import Scene, render, sample_scene
from denoscope.data.worlds.shapes.exact import ExactShapes
from denoscope.data.worlds.shapes.scenes import Layout

LATENT_CHANNELS = 4
STRIDE = 8


def new_autoencoder() -> AutoencoderKL:
    """An untrained autoencoder: 0.9 M parameters, stride 8, four channels, no attention."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(16, 32, 64, 64),
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=8,
        mid_block_add_attention=False,
        sample_size=64,
    )


def to_tensor(pictures: Sequence[np.ndarray]) -> Tensor:
    """Pictures (64, 64, 3) uint8 to a tensor (n, 3, 64, 64) in [−1, 1]."""
    stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    return (stacked.float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)


def halves(scene: Scene) -> tuple[Scene, ...]:
    """The scene's objects, each alone on the same background."""
    return tuple(replace(scene, things=(item,)) for item in scene.things)


def join(first: Tensor, second: Tensor, vertical: bool) -> Tensor:
    """Put together the top half of one map and the bottom half of another (or left and right): (n, c, h, w) each."""
    axis = -2 if vertical else -1
    middle = first.shape[axis] // 2
    return torch.cat([first.narrow(axis, 0, middle), second.narrow(axis, middle, middle)], dim=axis)


def autoencoder_loss(
    autoencoder: AutoencoderKL, generator: torch.Generator, batch_size: int = 16, kl_weight: float = 2e-4
) -> Tensor:
    """Reconstruction of a fresh batch plus the KL term, both as means per element.

    Object pixels weigh eight times the background's, which would otherwise make up 94 % of the loss. Half of the batch
    are one-object scenes; a quarter are pairs encoded whole, a quarter pairs put together from their halves.
    """
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    n = batch_size // 4
    singles = [sample_scene(rng, "one") for _ in range(2 * n)]
    wholes = [sample_scene(rng, "vertical" if i % 2 else "horizontal") for i in range(n)]
    composed = [sample_scene(rng, "vertical" if i % 2 else "horizontal") for i in range(n)]
    parts = [halves(scene) for scene in composed]
    inputs = [*singles, *wholes, *(p[0] for p in parts), *(p[1] for p in parts)]
    encoded = autoencoder.encode(to_tensor([render(scene) for scene in inputs])).latent_dist
    noise = torch.randn(encoded.mean.shape, generator=generator)
    z = encoded.mean + encoded.std * noise
    direct, first, second = z[: 3 * n], z[3 * n : 4 * n], z[4 * n :]
    vertical = torch.arange(n) % 2 == 1
    pairs = torch.where(vertical[:, None, None, None], join(first, second, True), join(first, second, False))
    scenes = [*singles, *wholes, *composed]
    reconstruction = picture_error(autoencoder.decode(torch.cat([direct, pairs])).sample, scenes)
    divergence = 0.5 * (encoded.mean.square() + encoded.var - 1 - encoded.logvar).mean()
    return reconstruction + kl_weight * divergence


def decoder_loss(
    autoencoder: AutoencoderKL, world: ExactShapes, generator: torch.Generator, batch_size: int = 16, noise: float = 0.1
) -> Tensor:
    """Error of the decoded picture on a fresh batch of the world's own latents, a quarter of them one-object scenes.

    For a second training of the decoder alone: the latents are fixed by then, and those of two-object scenes, put
    together from halves, are harder to decode than what the encoder makes of whole pictures. Half of the batch gets
    Gaussian noise of this standard deviation (in the autoencoder's own units), as a denoiser's output is never exact.
    """
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    layouts: tuple[Layout, ...] = ("one", "vertical", "horizontal", "vertical" if rng.random() < 0.5 else "horizontal")
    scenes = [sample_scene(rng, layouts[i % 4]) for i in range(batch_size)]
    z = torch.stack([world.scene_map(scene) for scene in scenes]) / autoencoder.config.scaling_factor
    noisy = (torch.arange(batch_size) // 4 % 2 == 1)[:, None, None, None]
    z = z + noise * noisy * torch.randn(z.shape, generator=generator)
    return picture_error(autoencoder.decode(z.contiguous(memory_format=torch.channels_last)).sample, scenes)


def picture_error(output: Tensor, scenes: Sequence[Scene]) -> Tensor:
    """Weighted smooth-L1 distance of decoded pictures from the scenes' true ones; object pixels weigh eight times."""
    target = to_tensor([render(scene) for scene in scenes])
    background = torch.tensor([scene.background for scene in scenes]).float() / 127.5 - 1
    is_object = (target - background[:, None, None, None]).abs().amax(dim=1, keepdim=True) > 0.02
    weight = 1 + 7 * functional.max_pool2d(is_object.float(), 3, stride=1, padding=1)
    error = functional.smooth_l1_loss(output, target, beta=0.1, reduction="none").mean(dim=1, keepdim=True)
    return (weight * error).sum() / weight.sum()
