"""Denoisers in diffusers' layout.

Networks that denoscope trains are written here in plain PyTorch, and save in the layout that diffusers loads.
"""

from denoscope.networks.config import UNetConfig
from denoscope.networks.dit import DiT, DiTConfig
from denoscope.networks.egnn import EGNN, EGNNConfig
from denoscope.networks.embeddings import TimestepEmbedding, sinusoidal_embedding
from denoscope.networks.folders import (
    load_dit,
    load_molecule_net,
    load_unet,
    load_unet1d,
    load_unet2d,
    save_network,
    save_unet,
)
from denoscope.networks.molecule_net import MoleculeNet, MoleculeNetConfig, zero_centre
from denoscope.networks.unconditional import UNet2D, UNet2DConfig
from denoscope.networks.unet import UNet2DCondition
from denoscope.networks.unet1d import UNet1D, UNet1DConfig

__all__ = [
    "EGNN",
    "DiT",
    "DiTConfig",
    "EGNNConfig",
    "MoleculeNet",
    "MoleculeNetConfig",
    "TimestepEmbedding",
    "UNet1D",
    "UNet1DConfig",
    "UNet2D",
    "UNet2DCondition",
    "UNet2DConfig",
    "UNetConfig",
    "load_dit",
    "load_molecule_net",
    "load_unet",
    "load_unet1d",
    "load_unet2d",
    "save_network",
    "save_unet",
    "sinusoidal_embedding",
    "zero_centre",
]
