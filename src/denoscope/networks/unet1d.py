"""A U-Net for sequences, such as sounds, time series and curves: of noise alone, or of a class."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Self

from torch import Tensor, nn
from torch.nn import functional

from denoscope.networks.levels import Bricks, Levels

_CLASS_NAME: Final = "denoscope.UNet1D"


@dataclass(frozen=True, slots=True)
class UNet1DConfig:
    """What a :class:`UNet1D` is made of.

    ``block_out_channels`` are the channels of the levels, finest first; each is half as long as the one before.
    ``attention_levels`` lists the levels with self-attention on the way down and up, 0 the finest; ``add_attention`` is
    that in the middle. ``attention_head_dim`` is the width of a head, None one head. ``sample_size`` (a length) is only
    a note: the network takes any.

    Raises :class:`ValueError` naming the key, when the values don't fit together.

    >>> UNet1DConfig(block_out_channels=(32, 64), attention_levels=(2,))
    Traceback (most recent call last):
    ValueError: attention_levels has 2, but the levels are 0 to 1
    """

    sample_size: int | None = None
    in_channels: int = 1
    out_channels: int = 1
    block_out_channels: tuple[int, ...] = (64, 128, 256, 256)
    layers_per_block: int = 2
    attention_levels: tuple[int, ...] = (3,)
    add_attention: bool = True
    attention_head_dim: int | None = 32
    norm_num_groups: int = 32
    norm_eps: float = 1e-5
    dropout: float = 0.0
    num_class_embeds: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that don't fit together."""
        numbers = ["in_channels", "out_channels", "layers_per_block", "norm_num_groups"]
        optional = ("sample_size", "attention_head_dim", "num_class_embeds")
        for name in numbers + [name for name in optional if getattr(self, name) is not None]:
            if not _whole(getattr(self, name), 1):
                raise ValueError(f"{name} must be a positive whole number, not {getattr(self, name)!r}")
        if not isinstance(self.block_out_channels, tuple) or not self.block_out_channels:
            raise ValueError(
                f"block_out_channels must list the channels of each level, not {self.block_out_channels!r}"
            )
        for channels in self.block_out_channels:
            if not _whole(channels, 2) or channels % self.norm_num_groups:
                raise ValueError(
                    f"norm_num_groups {self.norm_num_groups} does not divide block_out_channels {channels!r}"
                )
        if self.block_out_channels[0] % 2:
            raise ValueError(f"block_out_channels must begin with an even number, not {self.block_out_channels[0]}")
        last = len(self.block_out_channels) - 1
        if not isinstance(self.attention_levels, tuple) or not isinstance(self.add_attention, bool):
            raise ValueError("attention_levels must be a list of levels, and add_attention true or false")
        for level in self.attention_levels:
            if not _whole(level, 0) or level > last:
                raise ValueError(f"attention_levels has {level!r}, but the levels are 0 to {last}")
        for level in {*self.attention_levels, *[last] * self.add_attention}:
            channels = self.block_out_channels[level]
            if channels % (self.attention_head_dim or channels):
                raise ValueError(f"attention_head_dim {self.attention_head_dim} does not divide {channels} channels")
        floats = isinstance(self.dropout, int | float) and isinstance(self.norm_eps, int | float)
        if not floats or not 0 <= self.dropout < 1 or not self.norm_eps > 0:
            raise ValueError(f"dropout {self.dropout!r} must be in [0, 1) and norm_eps {self.norm_eps!r} positive")

    @classmethod
    def from_diffusers(cls, config: Mapping[str, object]) -> Self:
        """Read the content of a ``config.json``; keys that are absent take the defaults above.

        The name is that of the other configs: diffusers has no such network, and none of its files is taken.
        Raises :class:`ValueError` naming the first key that is unknown.

        >>> UNet1DConfig.from_diffusers({"_class_name": "UNet1DModel"})
        Traceback (most recent call last):
        ValueError: _class_name='UNet1DModel' is not supported; only 'denoscope.UNet1D' is
        """
        class_name = config.get("_class_name")
        if class_name != _CLASS_NAME:
            raise ValueError(f"_class_name={class_name!r} is not supported; only {_CLASS_NAME!r} is")
        own = {field.name for field in fields(cls)}
        values: dict[str, object] = {}
        for key, value in config.items():
            if key in own:
                values[key] = tuple(value) if isinstance(value, list) else value
            elif not key.startswith("_"):
                raise ValueError(f"{key}={value!r} is not supported; the key is unknown")
        return cls(**values)  # type: ignore[arg-type]  # checked by __post_init__

    def to_diffusers(self) -> dict[str, object]:
        """The content of a ``config.json`` with a class name of our own, every key written out.

        >>> UNet1DConfig().to_diffusers()["_class_name"]
        'denoscope.UNet1D'
        """
        own = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return {"_class_name": _CLASS_NAME, **dict(sorted(own.items()))}


class UNet1D(Levels):
    """The :class:`~denoscope.networks.UNet2D` of sequences: the same keys, with kernels of three places for 3×3.

    diffusers can't load it: its ``UNet1DModel`` is another architecture. The folder that
    :func:`~denoscope.networks.save_network` writes is read by :func:`~denoscope.networks.load_unet1d` alone. A new
    network returns zero.

    >>> import torch
    >>> net = UNet1D(UNet1DConfig(block_out_channels=(8, 16), attention_levels=(1,), attention_head_dim=8,
    ...     norm_num_groups=4, num_class_embeds=10))
    >>> net(torch.randn(2, 1, 27), 10, torch.tensor([3, 7])).shape
    torch.Size([2, 1, 27])
    """

    def __init__(self, config: UNet1DConfig) -> None:
        """Draw initial weights for ``config``."""
        super().__init__()
        self.config = config
        channels = config.block_out_channels
        width = self.begin(config.in_channels, channels[0], dims=1)
        classes = config.num_class_embeds
        self.class_embedding = None if classes is None else nn.Embedding(classes, width)
        bricks = [
            Bricks(
                time_width=width,
                context_channels=None,
                heads=count // (config.attention_head_dim or count),
                groups=config.norm_num_groups,
                eps=config.norm_eps,
                dropout=config.dropout,
                dims=1,
            )
            for count in channels
        ]
        attends = [level in config.attention_levels for level in range(len(channels))]
        self.build(bricks, channels, config.layers_per_block, attends, attends, middle=config.add_attention)
        self.end(config.out_channels, config.norm_num_groups, config.norm_eps, dims=1)

    def forward(self, sample: Tensor, timestep: Tensor | float, class_labels: Tensor | None = None) -> Tensor:
        """Predict what the network was trained for.

        ``sample`` is ``(B, in_channels, L)``, any length; ``timestep`` one number for all or ``(B,)``;
        ``class_labels`` ``(B,)`` whole numbers, if the network has classes. Returns ``(B, out_channels, L)``.

        Raises :class:`ValueError` when labels are given to a network without classes, or not given to one with.
        """
        if (class_labels is None) != (self.class_embedding is None):
            raise ValueError("class_labels must be given to a network with classes, and to no other")
        embedding = self.time_embedding(self.sinusoids(timestep, sample))
        if self.class_embedding is not None:
            embedding = embedding + self.class_embedding(class_labels)
        return self.last(self.through(self.conv_in(sample), functional.silu(embedding), None))


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
