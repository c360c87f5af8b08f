"""Stable Diffusion 3 and 3.5 (Esser et al. 2024): picture and text in joint layers; columns of CLIP, then of T5."""

from collections.abc import Mapping, Sequence

from diffusers import DiffusionPipeline
from torch import nn

from denoscope.pipelines.adapters.base import (
    Adapter,
    Attends,
    Branch,
    DenoiserCall,
    PromptTokens,
    Section,
    TextPart,
)
from denoscope.pipelines.adapters.spelling import read_tokens


class StableDiffusion3Adapter(Adapter):
    """Joint attention of [picture, text]; the text is 77 columns of CLIP and 256 of T5, a word owns columns in both.

    SD3.5's ``attn2`` is attention of the picture to itself.
    """

    name = "stable-diffusion-3"
    classes = (
        "StableDiffusion3Pipeline",
        "StableDiffusion3Img2ImgPipeline",
        "StableDiffusion3InpaintPipeline",
        "StableDiffusion3ControlNetPipeline",
        "StableDiffusion3ControlNetInpaintingPipeline",
    )
    denoiser_name = "transformer"
    sample_name = "hidden_states"
    patch = 2
    parts = (
        TextPart("text_encoder", "tokenizer", "clip"),
        TextPart("text_encoder_3", "tokenizer_3", "sentencepiece", 256),
    )
    joint = True
    processor_name = "JointAttnProcessor2_0"
    feature_layers = ("transformer_blocks.*",)
    note = "a call with skipped layers (skip-layer guidance) is not counted"

    def layers(self, pipe: DiffusionPipeline, attends: Attends) -> Mapping[str, nn.Module]:
        """``attn`` of every block, which is both; for itself also SD3.5's ``attn2``."""
        endings = ("attn",) if attends == "cross" else ("attn", "attn2")
        found = self.denoiser(pipe).named_modules()
        return {name: layer for name, layer in found if name.split(".")[-1] in endings}

    def prompt_tokens(self, pipe: DiffusionPipeline, ids: Sequence[Sequence[int]]) -> PromptTokens:
        """Without T5 its columns are zeros: padding."""
        if pipe.text_encoder_3 is not None:
            return super().prompt_tokens(pipe, ids)
        words, kinds = read_tokens(pipe.tokenizer, ids[0], "clip")
        kinds += ["padding"] * 256
        return PromptTokens(tuple(words), tuple(kinds))

    def branches(self, pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
        """The call that skips layers is no branch."""
        if call.arguments.get("skip_layers") is not None:
            return {}
        return super().branches(pipe, call, rows)

    def section(self, call: DenoiserCall, layer: nn.Module, queries: int, keys: int) -> Section | None:
        """[picture, text] in both directions; ``attn2`` and the last block's queries are the picture alone."""
        text = call.tensor("encoder_hidden_states").shape[1]
        places = self._places(call)
        if keys == places + text:
            return Section(slice(0, places), slice(places, keys), slice(0, places))
        return Section(slice(0, places), slice(0, 0), slice(0, places)) if keys == places else None

    def _places(self, call: DenoiserCall) -> int:
        # Patches of 2 × 2 in every SD3.
        height, width = call.tensor("hidden_states").shape[-2:]
        return (height // 2) * (width // 2)

    def refusal(self, pipe: DiffusionPipeline) -> str | None:
        """Fused projections skip the norms of queries and keys in diffusers, so the model itself goes wrong."""
        for layer in self.layers(pipe, "cross").values():
            if getattr(layer, "fused_projections", False) and getattr(layer, "norm_q", None) is not None:
                return (
                    "fuse_qkv_projections() leaves out this model's norms of queries and keys, so its pictures are "
                    "wrong; call unfuse_qkv_projections() first"
                )
        return None
