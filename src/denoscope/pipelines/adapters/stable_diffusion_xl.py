"""Stable Diffusion XL, base and refiner: two CLIP text encoders, joined along features, so one set of columns."""

from typing import ClassVar

from denoscope.pipelines.adapters.base import Adapter, TextPart


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
        "StableDiffusionXLControlNetImg2ImgPipeline",
        "StableDiffusionXLControlNetInpaintPipeline",
    )
    parts = (TextPart("text_encoder_2", "tokenizer_2", "clip"),)
    # SDXL has three levels.
    feature_layers = ("down_blocks.2", "mid_block", "up_blocks.0", "up_blocks.1")
    note = "the unguided branch is uniform without a negative prompt: its text embeddings are zero"
