"""The shape of a U-Net, in diffusers' words.

A config file of diffusers has some fifty keys. Those that we vary are fields of :class:`UNetConfig`; the
others may only hold the one value that our network implements, and anything else is refused by name.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Literal, Self, get_args

DownBlockType = Literal["DownBlock2D", "CrossAttnDownBlock2D"]
UpBlockType = Literal["UpBlock2D", "CrossAttnUpBlock2D"]

_CLASS_NAME: Final = "UNet2DConditionModel"

_FIXED: Final[Mapping[str, object]] = {
    "act_fn": "silu",
    "addition_embed_type": None,
    "addition_time_embed_dim": None,
    "attention_type": "default",
    "center_input_sample": False,
    "class_embed_type": None,
    "class_embeddings_concat": False,
    "conv_in_kernel": 3,
    "conv_out_kernel": 3,
    "cross_attention_norm": None,
    "downsample_padding": 1,
    "dual_cross_attention": False,
    "encoder_hid_dim": None,
    "encoder_hid_dim_type": None,
    "flip_sin_to_cos": True,
    "freq_shift": 0,
    "mid_block_only_cross_attention": None,
    "mid_block_scale_factor": 1,
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "num_attention_heads": None,
    "num_class_embeds": None,
    "only_cross_attention": False,
    "projection_class_embeddings_input_dim": None,
    "resnet_out_scale_factor": 1.0,
    "resnet_skip_time_act": False,
    "resnet_time_scale_shift": "default",
    "reverse_transformer_layers_per_block": None,
    "time_cond_proj_dim": None,
    "time_embedding_act_fn": None,
    "time_embedding_dim": None,
    "time_embedding_type": "positional",
    "timestep_post_act": None,
    "transformer_layers_per_block": 1,
    "upcast_attention": False,
}

_WITHOUT_EFFECT: Final = frozenset({"addition_embed_type_num_heads"})
"""Keys that only modify a feature which ``_FIXED`` has already refused."""

_TUPLES: Final = frozenset(
    {"block_out_channels", "down_block_types", "up_block_types", "attention_head_dim", "sample_size"}
)


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


@dataclass(frozen=True, slots=True)
class UNetConfig:
    """What a :class:`~denoscope.networks.UNet2DCondition` is made of; names and defaults are diffusers'.

    ``attention_head_dim`` is the **number of heads**, not their width: diffusers once mixed the two up and
    keeps the key for the sake of every published config. One number, or one per level from the finest to the
    coarsest; the width of a head is the level's channels divided by it.

    ``block_out_channels[i]`` and ``down_block_types[i]`` belong to level i, finest first; ``up_block_types``
    runs from the coarsest level to the finest. ``sample_size`` (pixels of the latent, height and width or one
    number for both) is only a note for pipelines: the network takes any size. ``dropout`` acts in the
    residual blocks.

    Raises :class:`ValueError` in one sentence that names the key, when the values don't fit together.

    >>> config = UNetConfig(
    ...     block_out_channels=(32, 64),
    ...     down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    ...     up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    ...     norm_num_groups=8,
    ... )
    >>> config.heads
    (8, 8)
    """

    sample_size: int | tuple[int, int] | None = None
    in_channels: int = 4
    out_channels: int = 4
    down_block_types: tuple[DownBlockType, ...] = (
        "CrossAttnDownBlock2D",
        "CrossAttnDownBlock2D",
        "CrossAttnDownBlock2D",
        "DownBlock2D",
    )
    up_block_types: tuple[UpBlockType, ...] = (
        "UpBlock2D",
        "CrossAttnUpBlock2D",
        "CrossAttnUpBlock2D",
        "CrossAttnUpBlock2D",
    )
    block_out_channels: tuple[int, ...] = (320, 640, 1280, 1280)
    layers_per_block: int = 2
    dropout: float = 0.0
    norm_num_groups: int = 32
    norm_eps: float = 1e-5
    cross_attention_dim: int = 1280
    attention_head_dim: int | tuple[int, ...] = 8
    use_linear_projection: bool = False

    def __post_init__(self) -> None:
        """Refuse values that don't fit together."""
        levels = self.block_out_channels
        counts = ("in_channels", "out_channels", "layers_per_block", "norm_num_groups", "cross_attention_dim")
        for name in counts:
            if not _positive(getattr(self, name)):
                raise ValueError(f"{name} must be a positive whole number, not {getattr(self, name)!r}")
        for name, numbers in (("block_out_channels", levels), ("attention_head_dim", self.heads)):
            if not numbers or not all(map(_positive, numbers)):
                raise ValueError(f"{name} must be positive whole numbers, not {getattr(self, name)!r}")
        for name, values in (
            ("down_block_types", self.down_block_types),
            ("up_block_types", self.up_block_types),
            ("attention_head_dim", self.heads),
        ):
            if len(values) != len(levels):
                raise ValueError(f"{name} has {len(values)} entries for {len(levels)} block_out_channels")
        _check_blocks("down_block_types", self.down_block_types, get_args(DownBlockType))
        _check_blocks("up_block_types", self.up_block_types, get_args(UpBlockType))
        for level, (channels, heads) in enumerate(zip(levels, self.heads, strict=True)):
            for name, count in (("norm_num_groups", self.norm_num_groups), ("attention_head_dim", heads)):
                if channels % count and (name == "norm_num_groups" or self.attends(level)):
                    raise ValueError(f"{name} {count} does not divide block_out_channels {channels}")
        if levels[0] % 2:
            raise ValueError(f"the first of block_out_channels must be even, not {levels[0]}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout!r}")
        if not self.norm_eps > 0:
            raise ValueError(f"norm_eps must be positive, not {self.norm_eps!r}")

    @property
    def heads(self) -> tuple[int, ...]:
        """The number of attention heads of each level, finest first."""
        if isinstance(self.attention_head_dim, tuple):
            return self.attention_head_dim
        return (self.attention_head_dim,) * len(self.block_out_channels)

    def attends(self, level: int) -> bool:
        """Whether any block of a level has attention; the middle block belongs to the coarsest level.

        >>> UNetConfig().attends(0)
        True
        """
        levels = len(self.block_out_channels)
        return (
            level == levels - 1
            or self.down_block_types[level] == "CrossAttnDownBlock2D"
            or self.up_block_types[levels - 1 - level] == "CrossAttnUpBlock2D"
        )

    @classmethod
    def from_diffusers(cls, config: Mapping[str, object]) -> Self:
        """Read a config file's content; keys that are absent take diffusers' defaults.

        Raises :class:`ValueError` naming the first key whose value our network does not implement.

        >>> UNetConfig.from_diffusers({"cross_attention_dim": 768}).cross_attention_dim
        768
        >>> UNetConfig.from_diffusers({"class_embed_type": "timestep"})
        Traceback (most recent call last):
        ValueError: class_embed_type='timestep' is not supported; only None is
        """
        class_name = config.get("_class_name", _CLASS_NAME)
        if class_name != _CLASS_NAME:
            raise ValueError(f"_class_name={class_name!r} is not supported; only {_CLASS_NAME!r} is")
        own = {field.name for field in fields(cls)}
        values: dict[str, object] = {}
        for key, value in config.items():
            if key.startswith("_") or key in _WITHOUT_EFFECT:
                continue
            if key in own:
                values[key] = tuple(value) if key in _TUPLES and isinstance(value, list) else value
            elif key not in _FIXED:
                # A key of a later diffusers: harmless as long as it is switched off.
                if value is not None and value is not False:
                    raise ValueError(f"{key}={value!r} is not supported; the key is unknown")
            elif not _implemented(key, value):
                raise ValueError(f"{key}={value!r} is not supported; only {_FIXED[key]!r} is")
        _check_types(values)
        return cls(**values)  # type: ignore[arg-type]  # checked a line above

    def to_diffusers(self) -> dict[str, object]:
        """The content of a diffusers ``config.json``, every key written out.

        >>> UNetConfig().to_diffusers()["_class_name"]
        'UNet2DConditionModel'
        """
        own = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return {"_class_name": _CLASS_NAME} | dict(sorted((dict(_FIXED) | own).items()))


def _check_blocks(name: str, blocks: tuple[str, ...], known: tuple[str, ...]) -> None:
    for block in blocks:
        if block not in known:
            raise ValueError(f"{name} has {block!r}; supported are {' and '.join(known)}")


def _implemented(key: str, value: object) -> bool:
    if value == _FIXED[key]:
        return True
    # Other spellings of the same network.
    return (key, value) in (("act_fn", "swish"), ("mid_block_only_cross_attention", False))


def _check_types(values: Mapping[str, object]) -> None:
    """Refuse values of a type that our network does not take, such as one cross_attention_dim per level."""
    for key, value in values.items():
        match key:
            case "use_linear_projection":
                fits = isinstance(value, bool)
            case "dropout" | "norm_eps":
                fits = isinstance(value, (int, float)) and not isinstance(value, bool)
            case "sample_size":
                pair = isinstance(value, tuple) and len(value) == 2 and all(map(_positive, value))
                fits = value is None or _positive(value) or pair
            case "attention_head_dim":
                fits = _positive(value) or (isinstance(value, tuple) and all(map(_positive, value)))
            case "block_out_channels":
                fits = isinstance(value, tuple) and all(map(_positive, value))
            case "down_block_types" | "up_block_types":
                fits = isinstance(value, tuple) and all(isinstance(block, str) for block in value)
            case _:
                fits = _positive(value)
        if not fits:
            raise ValueError(f"{key}={value!r} is not supported by this U-Net")
