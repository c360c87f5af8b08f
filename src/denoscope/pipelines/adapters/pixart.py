"""PixArt-α and PixArt-Σ (Chen et al. 2023, 2024): a DiT with cross-attention to T5."""

from typing import ClassVar

from denoscope.pipelines.adapters.base import Adapter, TextPart


class PixArtAlphaAdapter(Adapter):
    """Cross-attention layers are ``….attn2``; padding is masked out, so it has no mass."""

    name = "pixart-alpha"
    classes: ClassVar[tuple[str, ...]] = ("PixArtAlphaPipeline",)
    denoiser_name = "transformer"
    sample_name = "hidden_states"
    patch = 2
    parts = (TextPart("text_encoder", "tokenizer", "sentencepiece", 120),)
    feature_layers = ("transformer_blocks.*",)


class PixArtSigmaAdapter(PixArtAlphaAdapter):
    """As α, with 300 columns of text."""

    name = "pixart-sigma"
    classes = ("PixArtSigmaPipeline",)
    parts = (TextPart("text_encoder", "tokenizer", "sentencepiece", 300),)
