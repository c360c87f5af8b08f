"""One adapter per diffusers architecture: where its denoiser is, what its layers and tokens are called."""

from denoscope.pipelines.adapters.base import Adapter, Word
from denoscope.pipelines.adapters.registry import adapter_for

__all__ = ["Adapter", "Word", "adapter_for"]
