"""What a step's predictions say: the guidance difference, and the clean latents predicted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from denoscope.observer.errors import ObserveError
from denoscope.pipelines.adapters import Adapter, Branch
from denoscope.schedules import NoiseLevels, convert_prediction, prediction_type_of, signal_and_noise


@dataclass(frozen=True, slots=True)
class Predicted:
    """A step: what each branch was given and predicted, the guided ``output``, and the latents ``held`` before it."""

    inputs: Mapping[Branch, Tensor]
    predictions: Mapping[Branch, Tensor]
    output: Tensor
    held: Tensor


def read_predictions(
    adapter: Adapter, scheduler: object, level: NoiseLevels, told: Predicted, size: tuple[int, int]
) -> tuple[Tensor | None, Tensor | None]:
    """‖ε_cond − ε_uncond‖² over channels ``(S, y, x)``, and predicted clean latents under guidance ``(S, C, y, x)``.

    float32 on the CPU. ``None`` for the first without guidance, and for both where latents are no map. Raises
    :class:`ObserveError` for a scheduler that rescales what the network predicts.
    """
    if "sigma_data" in getattr(scheduler, "config", {}):
        raise ObserveError(
            f"{type(scheduler).__name__} rescales what the model predicts, so that x0 and guidance can't be told; "
            "observe with guidance=False, x0=False"
        )
    kind = prediction_type_of(scheduler)
    alpha, sigma = signal_and_noise(scheduler, level)
    axis = adapter.channel_axis

    def on_map(latents: Tensor) -> Tensor | None:
        own = latents.narrow(axis, 0, told.held.shape[axis]) if latents.dim() > axis else latents
        return adapter.spatial(own.float(), size)

    # Also for the Euler family: what the denoiser is given is scaled to unit variance, whatever the sampler holds.
    z = on_map(told.inputs["cond"])
    if z is None:
        return None, None
    guidance = None
    if "uncond" in told.predictions:
        cond, uncond = (
            convert_prediction(cast(Tensor, on_map(told.predictions[name])), kind, "epsilon", z, alpha, sigma)
            for name in ("cond", "uncond")
        )
        guidance = (cond - uncond).square().sum(1).cpu()
    guided = cast(Tensor, on_map(told.output))[-len(z) :]  # DiT steps both branches; they are the same
    return guidance, convert_prediction(guided, kind, "sample", z, alpha, sigma).to("cpu", copy=True)
