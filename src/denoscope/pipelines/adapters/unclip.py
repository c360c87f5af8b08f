"""unCLIP (Ramesh et al. 2022), the design of DALL-E 2: the decoder, which draws from a picture's CLIP embedding."""

from collections.abc import Mapping

from diffusers import DiffusionPipeline
from torch import nn

from denoscope.pipelines.adapters.base import Adapter, Attends, DenoiserCall, Section, in_calling_order


class AddedKeysAdapter(Adapter):
    """U-Nets whose self-attention has the text's keys added in front: [text, places]."""

    joint = True
    processor_name = "AttnAddedKVProcessor2_0"

    def layers(self, pipe: DiffusionPipeline, attends: Attends) -> Mapping[str, nn.Module]:
        """The layers with added keys: both kinds of attention in one."""
        found = self.denoiser(pipe).named_modules()
        return in_calling_order(
            {name: layer for name, layer in found if getattr(layer, "add_k_proj", None) is not None}
        )

    def section(self, call: DenoiserCall, layer: nn.Module, queries: int, keys: int) -> Section | None:
        """[text, places]."""
        text = keys - queries
        return Section(slice(0, queries), slice(0, text), slice(text, keys)) if text > 0 else None


class UnCLIPAdapter(AddedKeysAdapter):
    """The decoder of ``UnCLIPPipeline``; prior and super-resolution are not watched.

    Four columns before the text hold the picture's embedding.
    """

    name = "unclip"
    classes = ("UnCLIPPipeline",)
    denoiser_name = "decoder"
    scheduler_name = "decoder_scheduler"
    encode_method = "_encode_prompt"
    note = "the decoder is watched, not the prior nor the super-resolution"

    columns_before = 4
    image_columns = True
