"""Perturbed-attention guidance (Ahn et al. 2024) for Stable Diffusion and SDXL: a branch more."""

from collections.abc import Mapping

from diffusers import DiffusionPipeline

from denoscope.pipelines.adapters.base import Adapter, Branch, DenoiserCall
from denoscope.pipelines.adapters.stable_diffusion_xl import StableDiffusionXLAdapter


def _branches(pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
    """[uncond, cond, perturbed], or less of it."""
    names: tuple[Branch, ...] = ("uncond", "cond") if call.guided else ("cond",)
    if pipe.do_perturbed_attention_guidance:
        names = (*names, "perturbed")
    # Perturbed layers hand the kernel all rows but the perturbed ones.
    part = len(call.tensor("sample")) // len(names)
    return {name: slice(i * part, (i + 1) * part) for i, name in enumerate(names) if (i + 1) * part <= rows}


class PerturbedAttentionAdapter(Adapter):
    """Stable Diffusion with PAG; self-attention is perturbed, cross-attention is as ever."""

    name = "stable-diffusion-pag"
    classes = ("StableDiffusionPAGPipeline", "StableDiffusionPAGImg2ImgPipeline", "StableDiffusionPAGInpaintPipeline")

    def branches(self, pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
        """The perturbed branch comes last."""
        return _branches(pipe, call, rows)


class PerturbedAttentionXLAdapter(StableDiffusionXLAdapter):
    """SDXL with PAG."""

    name = "stable-diffusion-xl-pag"
    classes = (
        "StableDiffusionXLPAGPipeline",
        "StableDiffusionXLPAGImg2ImgPipeline",
        "StableDiffusionXLPAGInpaintPipeline",
    )

    def branches(self, pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
        """The perturbed branch comes last."""
        return _branches(pipe, call, rows)
