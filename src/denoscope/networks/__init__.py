"""Denoisers in diffusers' layout.

Networks that denoscope trains are written here in plain PyTorch, and save in the layout that diffusers loads.
"""

from denoscope.networks.config import UNetConfig
from denoscope.networks.embeddings import TimestepEmbedding, sinusoidal_embedding
from denoscope.networks.folders import load_unet, save_unet
from denoscope.networks.unet import UNet2DCondition

__all__ = [
    "TimestepEmbedding",
    "UNet2DCondition",
    "UNetConfig",
    "load_unet",
    "save_unet",
    "sinusoidal_embedding",
]
