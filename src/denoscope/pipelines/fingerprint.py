"""A hash that tells which weights a result came from."""

import hashlib

import torch
from diffusers import DiffusionPipeline
from torch import nn


def model_sha256(pipe: DiffusionPipeline) -> str | None:
    """SHA-256 over the names, shapes, dtypes and values of all weights of a pipeline, in order of component and name.

    The same folder loaded in another dtype has another hash: it is another model. ``None`` for a pipeline without
    weights, such as the exact one.
    """
    digest = hashlib.sha256()
    has_weights = False
    for component in sorted(pipe.components):
        module = getattr(pipe, component)
        if not isinstance(module, nn.Module):
            continue
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{component}.{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
            has_weights = True
    return digest.hexdigest() if has_weights else None
