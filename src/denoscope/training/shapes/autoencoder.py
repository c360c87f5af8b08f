"""The autoencoder of the shapes model: 64×64×3 pictures to 8×8×4 latents and back.

The latents of a two-object scene are defined as put together from its halves' latents (each half encoded alone on the
background), so that the set of latents factorises over halves exactly. Training therefore sees mostly such composites.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import Tensor
from torch.nn import functional

from denoscope.data.worlds.shapes import Scene, render, sample_scene
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, VALUES

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


def standardise(maps: Tensor) -> Tensor:
    """Latents with mean 0 and variance 1 per channel, over the batch and the places: ``(n, c, h, w)`` to the same."""
    centre, spread = channel_statistics(maps)
    return (maps - centre) / spread


def channel_statistics(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of ``(n, c, h, w)``, as ``(1, c, 1, 1)``."""
    return maps.mean((0, 2, 3), keepdim=True), maps.std((0, 2, 3), keepdim=True) + 1e-4


def twin(scene: Scene, rng: np.random.Generator) -> Scene:
    """The scene with one attribute of every object changed."""
    changed = []
    for item in scene.things:
        attribute = ATTRIBUTES[int(rng.integers(len(ATTRIBUTES)))]
        others = [value for value in VALUES[attribute] if value != item.value(attribute)]
        value = others[int(rng.integers(len(others)))]
        changed.append(replace(item, **{attribute: value}))  # type: ignore[arg-type]  # attributes are strings
    return replace(scene, things=tuple(changed))


def autoencoder_loss(
    autoencoder: AutoencoderKL,
    generator: torch.Generator,
    batch_size: int = 16,
    noise: float = 0.6,
    separation: float = 5.0,
    separation_weight: float = 0.1,
) -> Tensor:
    """Reconstruction from noisy latents of unit variance, plus a hinge on how close twins' latents are.

    What a latent diffusion model can tell apart late only, it learns badly; so the latents get fixed variance
    (:func:`standardise`) and the decoder sees them under Gaussian noise with a standard deviation drawn from
    [0, ``noise``], which makes the encoder keep apart what looks different. The hinge asks the same of pairs of scenes
    that differ in one attribute: a Euclidean distance of at least ``separation``, whatever share of the pixels they
    differ in. Object pixels weigh eight times the background's, which would otherwise make up 94 % of the loss. Five
    eighths of the batch are pairs put together from their halves, an eighth pairs encoded whole, a quarter one-object
    scenes.
    """
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    n = batch_size // 8
    singles = _with_twins([sample_scene(rng, "one") for _ in range(n)], rng)
    wholes = [sample_scene(rng, "vertical" if i % 2 else "horizontal") for i in range(n)]
    composed = _with_twins([sample_scene(rng, "vertical" if i % 2 else "horizontal") for i in range(5 * n // 2)], rng)
    parts = [halves(scene) for scene in composed]
    inputs = [*singles, *wholes, *(p[0] for p in parts), *(p[1] for p in parts)]
    maps = autoencoder.encode(to_tensor([render(scene) for scene in inputs])).latent_dist.mean
    alone, first, second = maps.split([3 * n, 5 * n, 5 * n])
    z = standardise(torch.cat([alone, _join_each(first, second, composed)]))
    level = noise * torch.rand(len(z), 1, 1, 1, generator=generator)
    z_noisy = z + level * torch.randn(z.shape, generator=generator)
    scenes = [*singles, *wholes, *composed]
    reconstruction = picture_error(autoencoder.decode(z_noisy).sample, scenes)
    pairs = z[3 * n :]
    differences = pairs[::2] - pairs[1::2]
    nothing = torch.zeros_like(differences)
    apart = torch.cat(
        [
            z[: 2 * n : 2] - z[1 : 2 * n : 2],
            _join_each(differences, nothing, composed[::2]),
            _join_each(nothing, differences, composed[::2]),
        ]
    )
    distances = (apart.square().sum((1, 2, 3)) + 1e-6).sqrt()
    return reconstruction + separation_weight * (1 - distances / separation).clamp(min=0).mean()


def _with_twins(scenes: Sequence[Scene], rng: np.random.Generator) -> list[Scene]:
    return [one for scene in scenes for one in (scene, twin(scene, rng))]


def _join_each(first: Tensor, second: Tensor, scenes: Sequence[Scene]) -> Tensor:
    vertical = torch.tensor([scene.layout == "vertical" for scene in scenes])[:, None, None, None]
    return torch.where(vertical, join(first, second, True), join(first, second, False))


@torch.no_grad()
def fix_latents(autoencoder: AutoencoderKL, std: float = 0.1, seed: int = 0, n: int = 512) -> None:
    """Write the standardisation into the last layer of the encoder, and give every latent the same small variance.

    From here on ``encode`` returns latents of unit variance by itself. The last 1×1 convolution gives the means and
    the log variances; its first half is rescaled, its second half becomes a constant.
    """
    rng = np.random.default_rng(seed)
    scenes = [sample_scene(rng) for _ in range(n)]
    ones = [scene for scene in scenes if scene.layout == "one"]
    pairs = [scene for scene in scenes if scene.layout != "one"]
    parts = [halves(scene) for scene in pairs]
    maps = [
        autoencoder.encode(to_tensor([render(scene) for scene in group])).latent_dist.mean
        for group in (ones, [p[0] for p in parts], [p[1] for p in parts])
    ]
    centre, spread = channel_statistics(torch.cat([maps[0], _join_each(maps[1], maps[2], pairs)]))
    layer, c = autoencoder.quant_conv, autoencoder.config.latent_channels
    layer.weight[:c] /= spread.reshape(c, 1, 1, 1)
    layer.bias[:c] = (layer.bias[:c] - centre.flatten()) / spread.flatten()
    layer.weight[c:] = 0
    layer.bias[c:] = 2 * math.log(std)


def picture_error(output: Tensor, scenes: Sequence[Scene]) -> Tensor:
    """Weighted smooth-L1 distance of decoded pictures from the scenes' true ones; object pixels weigh eight times."""
    target = to_tensor([render(scene) for scene in scenes])
    background = torch.tensor([scene.background for scene in scenes]).float() / 127.5 - 1
    is_object = (target - background[:, None, None, None]).abs().amax(dim=1, keepdim=True) > 0.02
    weight = 1 + 7 * functional.max_pool2d(is_object.float(), 3, stride=1, padding=1)
    error = functional.smooth_l1_loss(output, target, beta=0.1, reduction="none").mean(dim=1, keepdim=True)
    return (weight * error).sum() / weight.sum()
