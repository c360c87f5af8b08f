"""A U-Net without words: of noise alone, of a class, or of a vector; diffusers' ``UNet2DModel``."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from denoscope.networks.embeddings import TimestepEmbedding
from denoscope.networks.levels import Bricks, Levels

MapDownBlock = Literal["DownBlock2D", "AttnDownBlock2D"]
MapUpBlock = Literal["UpBlock2D", "AttnUpBlock2D"]
ClassEmbedding = Literal["timestep", "identity"]

_CLASS_NAME: Final = "UNet2DModel"
_FIXED: Final[Mapping[str, object]] = {
    "act_fn": "silu",
    "attn_norm_num_groups": None,
    "center_input_sample": False,
    "downsample_padding": 1,
    "downsample_type": "conv",
    "flip_sin_to_cos": True,
    "freq_shift": 0,
    "mid_block_scale_factor": 1,
    "mid_block_type": "UNetMidBlock2D",
    "num_train_timesteps": None,
    "resnet_time_scale_shift": "default",
    "time_embedding_dim": None,
    "time_embedding_type": "positional",
    "upsample_type": "conv",
}


@dataclass(frozen=True, slots=True)
class UNet2DConfig:
    """What a :class:`UNet2D` is made of; names and defaults are diffusers'.

    ``attention_head_dim`` is the **width of a head** here (other than in the U-Net with words); None is one head.
    ``num_class_embeds`` classes are told by their number; ``class_embed_type`` "timestep" tells a number on a
    continuous scale, "identity" a vector of four times the first level's channels.

    Raises :class:`ValueError` naming the key, when the values don't fit together.

    >>> UNet2DConfig.preset(64).block_out_channels
    (128, 128, 256, 384)
    """

    sample_size: int | tuple[int, int] | None = None
    in_channels: int = 3
    out_channels: int = 3
    down_block_types: tuple[MapDownBlock, ...] = ("DownBlock2D", *("AttnDownBlock2D",) * 3)
    up_block_types: tuple[MapUpBlock, ...] = (*("AttnUpBlock2D",) * 3, "UpBlock2D")
    block_out_channels: tuple[int, ...] = (224, 448, 672, 896)
    layers_per_block: int = 2
    dropout: float = 0.0
    attention_head_dim: int | None = 8
    norm_num_groups: int = 32
    norm_eps: float = 1e-5
    add_attention: bool = True
    class_embed_type: ClassEmbedding | None = None
    num_class_embeds: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that don't fit together."""
        levels = len(self.block_out_channels)
        for name, blocks, known in (
            ("down_block_types", self.down_block_types, get_args(MapDownBlock)),
            ("up_block_types", self.up_block_types, get_args(MapUpBlock)),
        ):
            if len(blocks) != levels or levels == 0:
                raise ValueError(f"{name} has {len(blocks)} entries for {levels} block_out_channels")
            for block in blocks:
                if block not in known:
                    raise ValueError(f"{name} has {block!r}; supported are {' and '.join(known)}")
        for name in ("in_channels", "out_channels", "layers_per_block", "norm_num_groups"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive whole number, not {value!r}")
        for channels in self.block_out_channels:
            if not isinstance(channels, int) or channels < 2 or channels % self.norm_num_groups:
                raise ValueError(
                    f"norm_num_groups {self.norm_num_groups} does not divide block_out_channels {channels}"
                )
        for level, channels in enumerate(self.block_out_channels):
            if self.attends(level) and channels % (self.attention_head_dim or channels):
                raise ValueError(f"attention_head_dim {self.attention_head_dim} does not divide {channels} channels")
        if self.class_embed_type not in (None, *get_args(ClassEmbedding)):
            raise ValueError(f"class_embed_type={self.class_embed_type!r} is not supported")
        if not 0 <= self.dropout < 1 or not self.norm_eps > 0:
            raise ValueError(f"dropout {self.dropout!r} must be in [0, 1) and norm_eps {self.norm_eps!r} positive")

    def attends(self, level: int) -> bool:
        """Whether any block of a level has attention."""
        levels = len(self.block_out_channels)
        return (
            (self.add_attention and level == levels - 1)
            or self.down_block_types[level] == "AttnDownBlock2D"
            or self.up_block_types[levels - 1 - level] == "AttnUpBlock2D"
        )

    @classmethod
    def preset(cls, size: int, channels: int = 3, num_class_embeds: int | None = None) -> Self:
        """Usual sizes for pictures of 32, 64 or 256 pixels: 36, 38 and 114 million parameters.

        Attention is at 16×16 and below. Raises :class:`ValueError` for another size.
        """
        widths = {32: (128, 256, 256, 256), 64: (128, 128, 256, 384), 256: (128, 128, 256, 256, 512, 512)}
        if size not in widths:
            raise ValueError(f"there are presets for {', '.join(map(str, widths))} pixels, not for {size}")
        attends = [size >> level <= 16 for level in range(len(widths[size]))]
        return cls(
            sample_size=size,
            in_channels=channels,
            out_channels=channels,
            down_block_types=tuple("AttnDownBlock2D" if at else "DownBlock2D" for at in attends),
            up_block_types=tuple("AttnUpBlock2D" if at else "UpBlock2D" for at in reversed(attends)),
            block_out_channels=widths[size],
            attention_head_dim=32,
            num_class_embeds=num_class_embeds,
        )

    @classmethod
    def from_diffusers(cls, config: Mapping[str, object]) -> Self:
        """Read a config file's content; keys that are absent take diffusers' defaults.

        Raises :class:`ValueError` naming the first key whose value our network does not implement.

        >>> UNet2DConfig.from_diffusers({"time_embedding_type": "fourier"})
        Traceback (most recent call last):
        ValueError: time_embedding_type='fourier' is not supported; only 'positional' is
        """
        class_name = config.get("_class_name", _CLASS_NAME)
        if class_name != _CLASS_NAME:
            raise ValueError(f"_class_name={class_name!r} is not supported; only {_CLASS_NAME!r} is")
        own = {field.name for field in fields(cls)}
        values: dict[str, object] = {}
        for key, value in config.items():
            if key in own:
                values[key] = tuple(value) if isinstance(value, list) else value
            elif not key.startswith("_") and value != _FIXED.get(key) and (key, value) != ("act_fn", "swish"):
                raise ValueError(f"{key}={value!r} is not supported; only {_FIXED.get(key)!r} is")
        return cls(**values)  # type: ignore[arg-type]  # checked by __post_init__

    def to_diffusers(self) -> dict[str, object]:
        """The content of a diffusers ``config.json``, every key written out.

        >>> UNet2DConfig().to_diffusers()["_class_name"]
        'UNet2DModel'
        """
        own = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return {"_class_name": _CLASS_NAME} | dict(sorted((dict(_FIXED) | own).items()))


class UNet2D(Levels):
    """The denoiser of DDPM (Ho et al. 2020), with diffusers' keys and output; a new one returns zero.

    >>> net = UNet2D(UNet2DConfig(block_out_channels=(8, 16), down_block_types=("DownBlock2D",) * 2,
    ...     up_block_types=("UpBlock2D",) * 2, norm_num_groups=4, num_class_embeds=10))
    >>> net(torch.randn(2, 3, 7, 9), 10, torch.tensor([3, 7])).shape
    torch.Size([2, 3, 7, 9])
    """

    def __init__(self, config: UNet2DConfig) -> None:
        """Draw initial weights for ``config``."""
        super().__init__()
        self.config = config
        channels = config.block_out_channels
        width = self.begin(config.in_channels, channels[0])
        self.class_embedding: nn.Module | None = None
        if config.class_embed_type == "timestep":
            self.class_embedding = TimestepEmbedding(channels[0], width)
        elif config.class_embed_type == "identity":
            self.class_embedding = nn.Identity()
        elif config.num_class_embeds is not None:
            self.class_embedding = nn.Embedding(config.num_class_embeds, width)
        bricks = [
            Bricks(
                time_width=width,
                context_channels=None,
                heads=count // (config.attention_head_dim or count),
                groups=config.norm_num_groups,
                eps=config.norm_eps,
                dropout=config.dropout,
            )
            for count in channels
        ]
        self.build(
            bricks,
            channels,
            config.layers_per_block,
            [block == "AttnDownBlock2D" for block in config.down_block_types],
            [block == "AttnUpBlock2D" for block in reversed(config.up_block_types)],
            middle=config.add_attention,
        )
        self.end(config.out_channels, config.norm_num_groups, config.norm_eps)

    def forward(self, sample: Tensor, timestep: Tensor | float, class_labels: Tensor | None = None) -> Tensor:
        """Predict what the network was trained for.

        ``sample`` is ``(B, in_channels, H, W)``, any size; ``timestep`` one number for all or ``(B,)``;
        ``class_labels`` ``(B,)`` whole numbers, ``(B,)`` numbers, or ``(B, 4·channels)``, as the config says. Returns
        ``(B, out_channels, H, W)``.

        Raises :class:`ValueError` when labels are given to a network without classes, or not given to one with.
        """
        if (class_labels is None) != (self.class_embedding is None):
            raise ValueError("class_labels must be given to a network with classes, and to no other")
        embedding = self.time_embedding(self.sinusoids(timestep, sample))
        if self.class_embedding is not None and class_labels is not None:
            if self.config.class_embed_type == "timestep":
                class_labels = self.sinusoids(class_labels, sample)
            embedding = embedding + self.class_embedding(class_labels).to(sample.dtype)
        x = self.conv_in(sample)
        if x.device.type == "cpu":
            # Channels innermost: convolutions read them so on a CPU, and attention's rows need no copy. Asked for only
            # here, since a sample of one channel has both layouts at once, and its map would come out in the other.
            x = x.contiguous(memory_format=torch.channels_last)
        return self.last(self.through(x, functional.silu(embedding), None)).contiguous()
