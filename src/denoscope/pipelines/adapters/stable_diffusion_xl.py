"""Stable Diffusion XL, base and refiner: two CLIP text encoders, joined along features, so one set of columns."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from diffusers import DiffusionPipeline
from torch import nn

from denoscope.pipelines.adapters.base import Adapter, PromptTokens, TextPart
from denoscope.pipelines.adapters.spelling import read_tokens

_SECOND = TextPart("text_encoder_2", "tokenizer_2", "clip")


class StableDiffusionXLAdapter(Adapter):
    """SDXL and its img2img (the refiner), inpainting and ControlNet forms.

    Both encoders read the same words; the second is the one that base and refiner have. Without a negative prompt the
    unguided branch has embeddings of zero, so its maps are uniform.
    """

    name = "stable-diffusion-xl"
    classes: ClassVar[tuple[str, ...]] = (
        "StableDiffusionXLPipeline",
        "StableDiffusionXLImg2ImgPipeline",
        "StableDiffusionXLInpaintPipeline",
        "StableDiffusionXLControlNetPipeline",
    )
    parts = (_SECOND,)
    # SDXL has three levels.
    feature_layers = ("down_blocks.2", "mid_block", "up_blocks.0", "up_blocks.1")
    note = "the unguided branch is uniform without a negative prompt: its text embeddings are zero"

    def prompt_tokens(self, pipe: DiffusionPipeline, ids: Sequence[Sequence[int]]) -> PromptTokens:
        """The second tokenizer pads with another token than the first, and spells words alike."""
        words, kinds = read_tokens(pipe.tokenizer_2, ids[0], "clip")
        return PromptTokens(tuple(words), tuple(kinds))

    def text_encoders(self, pipe: DiffusionPipeline) -> Mapping[str, nn.Module]:
        """The second one alone: a prompt_2 of its own goes there."""
        return {"text_encoder_2": pipe.text_encoder_2} if pipe.text_encoder_2 is not None else {}
