"""Which adapter serves which pipeline."""

import difflib
from typing import Final

from diffusers import DiffusionPipeline

from denoscope.pipelines.adapters.base import Adapter
from denoscope.pipelines.adapters.flux import FluxAdapter
from denoscope.pipelines.adapters.flux2 import Flux2Adapter, Flux2KleinAdapter
from denoscope.pipelines.adapters.instruct_pix2pix import InstructPix2PixAdapter, InstructPix2PixXLAdapter
from denoscope.pipelines.adapters.kandinsky import KandinskyDecoderAdapter, KandinskyPriorAdapter
from denoscope.pipelines.adapters.perturbed_attention import PerturbedAttentionAdapter, PerturbedAttentionXLAdapter
from denoscope.pipelines.adapters.pixart import PixArtAlphaAdapter, PixArtSigmaAdapter
from denoscope.pipelines.adapters.stable_diffusion import StableDiffusionAdapter
from denoscope.pipelines.adapters.stable_diffusion_3 import StableDiffusion3Adapter
from denoscope.pipelines.adapters.stable_diffusion_xl import StableDiffusionXLAdapter
from denoscope.pipelines.adapters.unclip import UnCLIPAdapter
from denoscope.pipelines.adapters.unconditional import DiTAdapter, UnconditionalAdapter
from denoscope.pipelines.errors import ModelError

ADAPTERS: Final[tuple[Adapter, ...]] = (
    StableDiffusionAdapter(),
    StableDiffusionXLAdapter(),
    StableDiffusion3Adapter(),
    FluxAdapter(),
    Flux2KleinAdapter(),
    Flux2Adapter(),
    PixArtAlphaAdapter(),
    PixArtSigmaAdapter(),
    UnCLIPAdapter(),
    KandinskyPriorAdapter(),
    KandinskyDecoderAdapter(),
    InstructPix2PixAdapter(),
    InstructPix2PixXLAdapter(),
    PerturbedAttentionAdapter(),
    PerturbedAttentionXLAdapter(),
    UnconditionalAdapter(),
    DiTAdapter(),
)
"""Every architecture that can be observed."""

_BY_CLASS: Final = {name: adapter for adapter in ADAPTERS for name in adapter.classes}


def adapter_for(pipe: DiffusionPipeline) -> Adapter:
    """The adapter for a pipeline's class. A class derived from a supported one may call its denoiser in another way.

    Raises :class:`ModelError` for a class without one, naming the nearest classes that have one.
    """
    name = type(pipe).__name__
    if name in _BY_CLASS and type(pipe).__module__.startswith("diffusers."):
        return _BY_CLASS[name]
    near = difflib.get_close_matches(name, _BY_CLASS, n=3, cutoff=0.0)
    raise ModelError(
        f"{name} is not supported yet; the nearest supported pipelines are {', '.join(near)} "
        "(`denoscope models list` has all; docs/adapters.md says how to add one)"
    )
