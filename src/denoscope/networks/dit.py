"""A transformer on patches, of a class: diffusers' ``DiTTransformer2DModel`` (Peebles & Xie 2023, "DiT")."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from denoscope.networks.attention import Attention
from denoscope.networks.blocks import zero
from denoscope.networks.embeddings import TimestepEmbedding, grid_embedding, sinusoidal_embedding

_CLASS_NAME: Final = "DiTTransformer2DModel"
_OLD_CLASS_NAME: Final = "Transformer2DModel"  # what the published DiT models say
_OLD_DEFAULTS: Final[Mapping[str, object]] = {
    "activation_fn": "geglu",
    "attention_bias": False,
    "attention_head_dim": 88,
    "norm_elementwise_affine": True,
    "norm_type": "layer_norm",
    "num_embeds_ada_norm": None,
    "num_layers": 1,
    "patch_size": None,
}
_FIXED: Final[Mapping[str, object]] = {
    "activation_fn": "gelu-approximate",
    "dropout": 0.0,
    "norm_elementwise_affine": False,
    "norm_type": "ada_norm_zero",
    "upcast_attention": False,
}
_WITHOUT_EFFECT: Final[Mapping[str, object]] = {"norm_num_groups": 32}
_SINUSOIDS: Final = 256
_EPS: Final = 1e-6  # of the norms before attention and at the end; diffusers fixes it


@dataclass(frozen=True, slots=True)
class DiTConfig:
    """What a :class:`DiT` is made of; names and defaults (those of DiT-XL/2) are diffusers'.

    The width is ``num_attention_heads`` times ``attention_head_dim``. ``sample_size`` is the height and width that
    positions are measured against. ``out_channels`` None is ``in_channels``; twice as many is the paper's learned
    variance. ``num_embeds_ada_norm`` is the number of classes; one more, :attr:`null_class`, stands for none. The
    layout has no network without classes: for unconditional use take one class and don't give labels.

    Raises :class:`ValueError` naming the key, when the values don't fit together.

    >>> config = DiTConfig.preset("S/2")
    >>> config.width, config.num_layers, config.null_class
    (384, 12, 1000)
    """

    num_attention_heads: int = 16
    attention_head_dim: int = 72
    in_channels: int = 4
    out_channels: int | None = None
    num_layers: int = 28
    attention_bias: bool = True
    sample_size: int = 32
    patch_size: int = 2
    num_embeds_ada_norm: int = 1000
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        """Refuse values that don't fit together."""
        others = ("out_channels", "attention_bias", "norm_eps")
        counts = [field.name for field in fields(self) if field.name not in others]
        for name in counts + ["out_channels"] * (self.out_channels is not None):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive whole number, not {value!r}")
        if not isinstance(self.attention_bias, bool) or not isinstance(self.norm_eps, float) or not self.norm_eps > 0:
            raise ValueError(
                f"attention_bias {self.attention_bias!r} must be true or false and norm_eps {self.norm_eps!r} positive"
            )
        if self.width % 4:
            raise ValueError(
                f"num_attention_heads times attention_head_dim must be a multiple of 4, not {self.width}: "
                "positions need sines and cosines of rows and columns"
            )
        if self.sample_size % self.patch_size:
            raise ValueError(f"patch_size {self.patch_size} does not divide sample_size {self.sample_size}")

    @property
    def width(self) -> int:
        """Channels of a patch's row."""
        return self.num_attention_heads * self.attention_head_dim

    @property
    def null_class(self) -> int:
        """The label that means "no class", for classifier-free guidance: the one after the last class."""
        return self.num_embeds_ada_norm

    @classmethod
    def preset(
        cls,
        name: str,
        sample_size: int = 32,
        in_channels: int = 4,
        num_embeds_ada_norm: int = 1000,
        out_channels: int | None = None,
    ) -> Self:
        """The paper's "S/2" and "B/2" (table 1), and "tiny" for a CPU, 1.4 million parameters at ten classes.

        Raises :class:`ValueError` for another name.
        """
        shapes = {"tiny": (4, 4, 32), "S/2": (12, 6, 64), "B/2": (12, 12, 64)}
        if name not in shapes:
            raise ValueError(f"there are presets {', '.join(shapes)}, but no {name!r}")
        layers, heads, head_width = shapes[name]
        return cls(
            num_layers=layers,
            num_attention_heads=heads,
            attention_head_dim=head_width,
            sample_size=sample_size,
            in_channels=in_channels,
            out_channels=out_channels,
            num_embeds_ada_norm=num_embeds_ada_norm,
        )

    @classmethod
    def from_diffusers(cls, config: Mapping[str, object]) -> Self:
        """Read a config file's content, also of the published models, which call themselves ``Transformer2DModel``.

        Keys that are absent take diffusers' defaults. Raises :class:`ValueError` naming the first key whose value our
        network does not implement.

        >>> DiTConfig.from_diffusers({"norm_type": "ada_norm_single"})
        Traceback (most recent call last):
        ValueError: norm_type='ada_norm_single' is not supported; only 'ada_norm_zero' is
        """
        class_name = config.get("_class_name", _CLASS_NAME)
        known: Mapping[str, object] = _FIXED
        if class_name == _OLD_CLASS_NAME:
            config, known = {**_OLD_DEFAULTS, **config}, {**_FIXED, "attention_type": "default"}
        elif class_name != _CLASS_NAME:
            raise ValueError(f"_class_name={class_name!r} is not supported; only {_CLASS_NAME!r} is")
        own = {field.name for field in fields(cls)}
        values: dict[str, object] = {}
        for key, value in config.items():
            if key in own:
                values[key] = value
            elif key in known and value != known[key]:
                raise ValueError(f"{key}={value!r} is not supported; only {known[key]!r} is")
            elif key not in known and key not in _WITHOUT_EFFECT and not key.startswith("_") and value:
                raise ValueError(f"{key}={value!r} is not supported; the key is unknown")
        return cls(**values)  # type: ignore[arg-type]  # checked by __post_init__

    def to_diffusers(self) -> dict[str, object]:
        """The content of a diffusers ``config.json``, every key written out.

        >>> DiTConfig().to_diffusers()["_class_name"]
        'DiTTransformer2DModel'
        """
        return {"_class_name": _CLASS_NAME, **dict(sorted({**_FIXED, **_WITHOUT_EFFECT, **asdict(self)}.items()))}


class Condition(nn.Module):
    """The sum of what is told of the noise level and of the class: ``(B, width)``."""

    def __init__(self, classes: int, width: int) -> None:
        """One label more than ``classes`` is known, the null class."""
        super().__init__()
        self.timestep_embedder = TimestepEmbedding(_SINUSOIDS, width)
        self.class_embedder = nn.ModuleDict({"embedding_table": nn.Embedding(classes + 1, width)})

    def forward(self, sinusoids: Tensor, labels: Tensor) -> Tensor:
        """``sinusoids`` is ``(B, 256)``, ``labels`` ``(B,)``."""
        condition: Tensor = self.timestep_embedder(sinusoids) + self.class_embedder["embedding_table"](labels)
        return condition


class AdaptiveNorm(nn.Module):
    """adaLN-zero: a norm that is scaled and shifted as the condition says, and two gates that start closed."""

    def __init__(self, classes: int, width: int) -> None:
        """Each block has its own condition, as in diffusers; the paper has one for all blocks."""
        super().__init__()
        self.emb = Condition(classes, width)
        self.linear = nn.Linear(width, 6 * width)
        self.norm = nn.LayerNorm(width, eps=_EPS, elementwise_affine=False)

    def forward(self, sinusoids: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Shift, scale and gate of the attention, then of the feed-forward: six ``(B, 1, width)``."""
        told: Tensor = self.linear(functional.silu(self.emb(sinusoids, labels)))
        return told[:, None].chunk(6, dim=2)


class GELU(nn.Module):
    """A linear layer and a GELU by its tanh formula: ``(…, channels)`` to ``(…, width)``."""

    def __init__(self, channels: int, width: int) -> None:
        """``width`` channels come out."""
        super().__init__()
        self.proj = nn.Linear(channels, width)

    def forward(self, x: Tensor) -> Tensor:
        """Each row on its own."""
        return functional.gelu(self.proj(x), approximate="tanh")


class DiTBlock(nn.Module):
    """Self-attention and feed-forward under adaLN-zero: ``(B, N, width)`` to the same; the identity at first."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        width = config.width
        self.norm1 = AdaptiveNorm(config.num_embeds_ada_norm, width)
        self.attn1 = Attention(width, width, config.num_attention_heads, bias=config.attention_bias)
        self.norm3 = nn.LayerNorm(width, eps=config.norm_eps, elementwise_affine=False)
        self.ff = nn.ModuleDict(
            # The middle place is diffusers' dropout.
            {"net": nn.Sequential(GELU(width, 4 * width), nn.Identity(), nn.Linear(4 * width, width))}
        )

    def forward(self, x: Tensor, sinusoids: Tensor, labels: Tensor) -> Tensor:
        """``x`` is ``(B, N, width)``; the rest as for :class:`Condition`."""
        shift, scale, gate, feed_shift, feed_scale, feed_gate = self.norm1(sinusoids, labels)
        normed = self.norm1.norm(x) * (1 + scale) + shift
        x = x + gate * self.attn1(normed, normed)
        fed: Tensor = self.ff["net"](self.norm3(x) * (1 + feed_scale) + feed_shift)
        return x + feed_gate * fed


class DiT(nn.Module):
    """The denoiser of Peebles & Xie 2023, with diffusers' keys and output; a new one returns zero.

    Nothing is drawn at random inside: diffusers' network drops a tenth of the labels when it trains, here the trainer
    says which labels are the null class. Height and width may differ from each other and from the config's.

    >>> net = DiT(DiTConfig.preset("tiny", sample_size=8, in_channels=3, num_embeds_ada_norm=10))
    >>> net(torch.randn(2, 3, 8, 12), 10, torch.tensor([3, net.config.null_class])).shape
    torch.Size([2, 3, 8, 12])
    """

    def __init__(self, config: DiTConfig) -> None:
        """Draw initial weights for ``config``, as the paper's code does."""
        super().__init__()
        self.config = config
        width, patch = config.width, config.patch_size
        self.pos_embed = nn.ModuleDict({"proj": nn.Conv2d(config.in_channels, width, patch, stride=patch)})
        self.transformer_blocks = nn.ModuleList([DiTBlock(config) for _ in range(config.num_layers)])
        self.norm_out = nn.LayerNorm(width, eps=_EPS, elementwise_affine=False)
        self.proj_out_1 = nn.Linear(width, 2 * width)
        self.proj_out_2 = nn.Linear(width, patch**2 * (config.out_channels or config.in_channels))
        self._start()

    def _start(self) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                if "timestep_embedder" in name:
                    nn.init.normal_(module.weight, std=0.02)
                else:
                    nn.init.xavier_uniform_(module.weight.flatten(1))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        for module in self.modules():
            if isinstance(module, AdaptiveNorm):
                zero(module.linear)
        zero(self.proj_out_1)
        zero(self.proj_out_2)

    def forward(self, sample: Tensor, timestep: Tensor | float, class_labels: Tensor | None = None) -> Tensor:
        """Predict what the network was trained for.

        ``sample`` is ``(B, in_channels, H, W)``; ``timestep`` one number for all or ``(B,)``, in training steps,
        fractions allowed; ``class_labels`` ``(B,)`` whole numbers up to the null class, or None for the null class
        throughout. Returns ``(B, out_channels, H, W)``.

        Raises :class:`ValueError` when the patch size does not divide height and width, or labels don't fit the batch.
        """
        batch, patch = len(sample), self.config.patch_size
        height, width = sample.shape[2:]
        if height % patch or width % patch:
            raise ValueError(f"patch_size {patch} does not divide a sample of {height}×{width}")
        if class_labels is None:
            class_labels = torch.full((batch,), self.config.null_class, device=sample.device)
        elif class_labels.shape != (batch,) or class_labels.is_floating_point():
            raise ValueError(f"class_labels must be {batch} whole numbers, one a sample")
        timesteps = torch.as_tensor(timestep, device=sample.device).reshape(-1).expand(batch)
        sinusoids = sinusoidal_embedding(timesteps, _SINUSOIDS, freq_shift=1).to(sample.dtype)

        rows, columns = height // patch, width // patch
        x: Tensor = self.pos_embed["proj"](sample).flatten(2).transpose(1, 2)
        base = self.config.sample_size // patch
        x = (x + grid_embedding(rows, columns, base, self.config.width, x.device)).to(x.dtype)
        for block in self.transformer_blocks:
            x = block(x, sinusoids, class_labels)
        first = cast(DiTBlock, self.transformer_blocks[0])
        told = first.norm1.emb(sinusoids, class_labels)  # diffusers has no condition of the end's own
        shift, scale = self.proj_out_1(functional.silu(told))[:, None].chunk(2, dim=2)
        patches: Tensor = self.proj_out_2(self.norm_out(x) * (1 + scale) + shift)
        x = patches.reshape(batch, rows, columns, patch, patch, -1)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(batch, -1, height, width)
