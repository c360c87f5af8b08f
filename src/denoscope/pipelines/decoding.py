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

    z / scaling_factor + shift_factor, the latter for SD3 and Flux; latents of a pipeline without an autoencoder are the
    picture. No safety checker.
    """
    pictures: list[NDArray[np.uint8]] = []
    for part in torch.split(latents, _AT_ONCE):
        decoded = _decode(pipe, part)
        # Rounded, not truncated: truncation loses a quarter of the grey levels.
        grey = (decoded.float() * 127.5 + 127.5).round().clamp(0, 255).to(torch.uint8)
        pictures.extend(grey.permute(0, 2, 3, 1).cpu().numpy())
    return pictures


def _decode(pipe: DiffusionPipeline, latents: Tensor) -> Tensor:
    vae = getattr(pipe, "vae", None)
    if vae is None:
        return latents
    shift = vae.config.get("shift_factor") or 0.0
    decoded: Tensor = vae.decode(latents.to(pipe.device, vae.dtype) / vae.config.scaling_factor + shift).sample
    return decoded
