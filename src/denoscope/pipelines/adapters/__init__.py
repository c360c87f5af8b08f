"""One adapter per diffusers architecture: where its denoiser is, what its layers and tokens are called."""

from denoscope.pipelines.adapters.base import Adapter, Attends, Branch, DenoiserCall, PromptTokens, Section
from denoscope.pipelines.adapters.registry import ADAPTERS, adapter_for
from denoscope.pipelines.adapters.spelling import TokenKind, Word

__all__ = [
    "ADAPTERS",
    "Adapter",
    "Attends",
    "Branch",
    "DenoiserCall",
    "PromptTokens",
    "Section",
    "TokenKind",
    "Word",
    "adapter_for",
]
