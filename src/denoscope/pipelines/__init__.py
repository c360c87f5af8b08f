"""Loading diffusers pipelines, and one adapter per architecture."""

from denoscope.pipelines.adapters import adapter_for
from denoscope.pipelines.decoding import decode_latents
from denoscope.pipelines.defaults import sampling_defaults
from denoscope.pipelines.errors import ModelError
from denoscope.pipelines.fingerprint import model_sha256
from denoscope.pipelines.loading import load

__all__ = ["ModelError", "adapter_for", "decode_latents", "load", "model_sha256", "sampling_defaults"]
