"""Which layers are watched, and which pipelines can't be."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from diffusers import DiffusionPipeline
from torch import nn

from denoscope.observer.errors import ObserveError
from denoscope.observer.features import select_layers
from denoscope.pipelines.adapters import Adapter, Attends


def attention_layers(adapter: Adapter, pipe: DiffusionPipeline, attends: Attends, layers: str) -> dict[str, nn.Module]:
    """The layers that match a glob on their dotted names.

    Raises :class:`ObserveError` when there are none, naming those that there are.
    """
    found = adapter.layers(pipe, attends)
    if not found:
        other = "self" if attends == "cross" and adapter.layers(pipe, "self") else None
        raise ObserveError(
            f"{type(adapter.denoiser(pipe)).__name__} has no {attends}-attention; observe with attention={other!r}"
        )
    chosen = {name: module for name, module in found.items() if fnmatchcase(name, layers)}
    if not chosen:
        raise ObserveError(f"no {attends}-attention layer matches {layers!r}; there are {', '.join(found)}")
    return chosen


def feature_layers(
    adapter: Adapter, denoiser: nn.Module, features: bool | Sequence[str], cells: int
) -> dict[str, nn.Module]:
    """The layers named, or a family's usual ones for True.

    Raises :class:`ObserveError` for a name that is no layer's, and for a grid without ``cells``.
    """
    if cells < 1:
        raise ObserveError(f"feature_grid must be at least 1, not {cells}")
    if features is True:  # small models lack some of a family's usual layers
        names = {".".join(name.split(".")[:2]) for name, _ in denoiser.named_modules()}
        usual = [layer for layer in adapter.feature_layers if "*" in layer or layer in names or "." not in layer]
        return select_layers(denoiser, usual)
    asked = features or ()
    return select_layers(denoiser, [asked] if isinstance(asked, str) else asked)


def refuse(pipe: DiffusionPipeline, adapter: Adapter, denoiser: nn.Module) -> None:
    """Raises :class:`ObserveError` for what would give wrong maps, or none, whatever is asked."""
    if hasattr(denoiser, "_orig_mod") or getattr(denoiser, "_compiled_call_impl", None) is not None:
        raise ObserveError(
            "a compiled denoiser hides its layers; observe the pipeline before torch.compile, or take "
            f"pipe.{adapter.denoiser_name}._orig_mod back for this call"
        )
    reason = adapter.refusal(pipe)
    if reason is not None:
        raise ObserveError(reason)
