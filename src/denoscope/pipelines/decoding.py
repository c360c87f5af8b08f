"""From latents to pictures, as the pipeline itself does it."""

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from torch import Tensor

_AT_ONCE = 8


@torch.no_grad()
def decode_latents(pipe: DiffusionPipeline, latents: Tensor) -> list[NDArray[np.uint8]]:
    """Decode latents ``(n, c, h, w)`` to pictures ``(H, W, 3)`` uint8, eight at a time.

    Follows Stable Diffusion's convention, z / scaling_factor; no safety checker.
    """
    pictures: list[NDArray[np.uint8]] = []
    for part in torch.split(latents, _AT_ONCE):
        z = part.to(pipe.device, pipe.vae.dtype) / pipe.vae.config.scaling_factor
        decoded = pipe.vae.decode(z).sample
        # Rounded, not truncated: truncation loses a quarter of the grey levels.
        grey = (decoded.float() * 127.5 + 127.5).round().clamp(0, 255).to(torch.uint8)
        pictures.extend(grey.permute(0, 2, 3, 1).cpu().numpy())
    return pictures
