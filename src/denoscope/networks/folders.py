"""A network on disk: the folder that diffusers reads and writes. Safetensors and JSON, no pickle."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from denoscope.networks.config import UNetConfig
from denoscope.networks.dit import DiT, DiTConfig
from denoscope.networks.molecule_net import MoleculeNet, MoleculeNetConfig
from denoscope.networks.unconditional import UNet2D, UNet2DConfig
from denoscope.networks.unet import UNet2DCondition
from denoscope.networks.unet1d import UNet1D, UNet1DConfig

CONFIG_FILE: Final = "config.json"
WEIGHTS_FILE: Final = "diffusion_pytorch_model.safetensors"

Net = TypeVar("Net", bound=nn.Module)


class Config(Protocol):
    """What a network is made of."""

    def to_diffusers(self) -> dict[str, object]:
        """The content of ``config.json``."""


class Storable(Protocol):
    """A network that knows what it is made of, such as every one of :mod:`denoscope.networks` that has a loader."""

    @property
    def config(self) -> Config:
        """What it is made of."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """Its weights."""


def save_network(net: Storable, folder: Path | str) -> None:
    """Write a folder that ``from_pretrained`` of the diffusers class loads whose layout the network has, if any does.

    Weights keep their dtype. Each file is written beside its place, synced and renamed, so a reader sees the
    old file or the new one, never a part. Raises :class:`OSError` when the disk refuses.

    >>> from tempfile import TemporaryDirectory
    >>> net = UNet2DCondition(
    ...     UNetConfig(
    ...         block_out_channels=(8,),
    ...         down_block_types=("DownBlock2D",),
    ...         up_block_types=("UpBlock2D",),
    ...         norm_num_groups=4,
    ...         cross_attention_dim=6,
    ...     )
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     save_network(net, folder)
    ...     load_unet(folder).config == net.config
    True
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # torch.compile on a part of the network puts its own word into the keys.
    weights = {key.replace("_orig_mod.", ""): value.contiguous() for key, value in net.state_dict().items()}
    _replace(folder / WEIGHTS_FILE, lambda path: save_file(weights, path, metadata={"format": "pt"}))
    config = json.dumps(net.config.to_diffusers(), indent=2) + "\n"
    _replace(folder / CONFIG_FILE, lambda path: path.write_text(config, encoding="utf-8"))


save_unet = save_network
"""The same, by its name of old."""


def load_unet(
    folder: Path | str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> UNet2DCondition:
    """Read the folder of a U-Net with words that :func:`save_network` or diffusers wrote, in eval mode.

    Weights are cast to ``dtype``. Raises :class:`ValueError` in one sentence that names the file and the key, when the
    config asks for something that our network does not have or the weights don't fit it, and
    :class:`FileNotFoundError` when a file is missing.
    """
    return _load(folder, lambda content: UNet2DCondition(UNetConfig.from_diffusers(content)), dtype, device)


def load_unet2d(folder: Path | str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> UNet2D:
    """Read the folder of a U-Net without words (diffusers' ``UNet2DModel``); otherwise like :func:`load_unet`."""
    return _load(folder, lambda content: UNet2D(UNet2DConfig.from_diffusers(content)), dtype, device)


def load_dit(folder: Path | str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> DiT:
    """Read the folder of a diffusion transformer (``DiTTransformer2DModel``); otherwise like :func:`load_unet`."""
    return _load(folder, lambda content: DiT(DiTConfig.from_diffusers(content)), dtype, device)


def load_unet1d(folder: Path | str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> UNet1D:
    """Read the folder of a U-Net of sequences, which only denoscope knows; otherwise like :func:`load_unet`."""
    return _load(folder, lambda content: UNet1D(UNet1DConfig.from_diffusers(content)), dtype, device)


def load_molecule_net(folder: Path | str, dtype: torch.dtype = torch.float32) -> MoleculeNet:
    """Read the folder of a network of molecules; diffusers has none of its kind. Otherwise like :func:`load_unet`."""
    return _load(folder, lambda content: MoleculeNet(MoleculeNetConfig.from_diffusers(content)), dtype, "cpu")


def _load(
    folder: Path | str, build: Callable[[Mapping[str, object]], Net], dtype: torch.dtype, device: torch.device | str
) -> Net:
    folder = Path(folder)
    config_path, weights_path = folder / CONFIG_FILE, folder / WEIGHTS_FILE
    for path in (config_path, weights_path):
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; a network's folder holds {CONFIG_FILE} and {WEIGHTS_FILE}")
    try:
        content = json.loads(config_path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{config_path} is not readable JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{config_path} must hold a JSON object")
    try:
        # Drawing initial weights only to overwrite them takes longer than reading: built without storage first.
        with torch.device("meta"):
            net = build(content)
    except ValueError as error:
        raise ValueError(f"{config_path}: {error}") from error
    try:
        weights = load_file(weights_path)
    except SafetensorError as error:
        raise ValueError(f"{weights_path} is damaged ({error})") from error
    wanted = {key: tuple(value.shape) for key, value in net.state_dict().items()}
    for key in sorted(wanted.keys() ^ weights.keys()):
        state = "lacks" if key in wanted else "has the unknown"
        raise ValueError(f"{weights_path} {state} weight {key!r}")
    for key, shape in wanted.items():
        found = tuple(weights[key].shape)
        if found != shape:
            raise ValueError(f"{weights_path}: {key!r} has shape {found}, the config wants {shape}")
    net.load_state_dict({key: value.to(device, dtype) for key, value in weights.items()}, assign=True)
    return net.requires_grad_().eval()


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
