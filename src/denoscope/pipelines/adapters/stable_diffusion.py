"""Stable Diffusion 1.x and 2.x and what is built like them: CLIP text encoder, U-Net with ``attn2`` layers."""

from denoscope.pipelines.adapters.base import Adapter


class StableDiffusionAdapter(Adapter):
    """``StableDiffusionPipeline`` and its img2img, inpainting and ControlNet forms; LCM and turbo models.

    Cross-attention layers are the modules named ``….attn2`` (``attn1`` is image-to-image). Under guidance the batch is
    [unconditional, conditional].
    """

    name = "stable-diffusion"
    classes = (
        "StableDiffusionPipeline",
        "StableDiffusionImg2ImgPipeline",
        "StableDiffusionInpaintPipeline",
        "StableDiffusionControlNetPipeline",
        "StableDiffusionControlNetImg2ImgPipeline",
        "StableDiffusionControlNetInpaintPipeline",
        "LatentConsistencyModelPipeline",
        "LatentConsistencyModelImg2ImgPipeline",
    )
