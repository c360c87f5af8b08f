"""Which adapter serves which pipeline."""

from diffusers import DiffusionPipeline, StableDiffusionPipeline

from denoscope.pipelines.adapters.base import Adapter
from denoscope.pipelines.adapters.stable_diffusion import StableDiffusionAdapter
from denoscope.pipelines.errors import ModelError

_ADAPTERS: dict[type[DiffusionPipeline], Adapter] = {StableDiffusionPipeline: StableDiffusionAdapter()}


def adapter_for(pipe: DiffusionPipeline) -> Adapter:
    """The adapter for a pipeline's class.

    Raises :class:`ModelError` for a class without one, naming the classes that have one.
    """
    adapter = _ADAPTERS.get(type(pipe))
    if adapter is None:
        known = ", ".join(sorted(cls.__name__ for cls in _ADAPTERS))
        raise ModelError(f"{type(pipe).__name__} is not supported yet; supported pipelines: {known}")
    return adapter
