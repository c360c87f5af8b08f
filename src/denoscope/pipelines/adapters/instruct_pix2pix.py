"""InstructPix2Pix (Brooks et al. 2023): Stable Diffusion, or SDXL, told a picture to edit; three branches."""

from collections.abc import Mapping

from diffusers import DiffusionPipeline

from denoscope.pipelines.adapters.base import Adapter, Branch, DenoiserCall
from denoscope.pipelines.adapters.stable_diffusion_xl import StableDiffusionXLAdapter


def _branches(call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
    """[prompt and picture, picture alone, neither], or the first of them."""
    if not call.guided:
        return {"cond": slice(0, rows)}
    third = rows // 3
    return {"cond": slice(0, third), "image": slice(third, 2 * third), "uncond": slice(2 * third, rows)}


class InstructPix2PixAdapter(Adapter):
    """The batch is [prompt and picture, picture alone, neither]."""

    name = "instruct-pix2pix"
    classes = ("StableDiffusionInstructPix2PixPipeline",)
    encode_method = "_encode_prompt"

    def branches(self, pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
        """The prompt's branch comes first."""
        return _branches(call, rows)


class InstructPix2PixXLAdapter(StableDiffusionXLAdapter):
    """The same of SDXL."""

    name = "stable-diffusion-xl-instruct-pix2pix"
    classes = ("StableDiffusionXLInstructPix2PixPipeline",)

    def branches(self, pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
        """The prompt's branch comes first."""
        return _branches(call, rows)
