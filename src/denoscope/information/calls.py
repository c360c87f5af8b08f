"""Every denoiser call of a generation, told with room for further calls; the picture stays as it is."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope.information.conditioning import arguments_of, counted, predicted
from denoscope.information.errors import InformationError
from denoscope.pipelines.adapters import DenoiserCall, adapter_for
from denoscope.schedules import PredictionType, convert_prediction, logsnr_of, prediction_type_of, signal_and_noise


@dataclass(frozen=True, slots=True)
class Level:
    """A noise level z = α·x₀ + σ·ε as the denoiser sees it."""

    logsnr: float
    alpha: float
    sigma: float

    def convert(self, prediction: Tensor, scheduler: object, to: PredictionType, z: Tensor) -> Tensor:
        """A prediction of the model's own kind as another kind, in float32 at least."""
        held = prediction.to(torch.promote_types(prediction.dtype, torch.float32))
        return convert_prediction(held, prediction_type_of(scheduler), to, z.to(held), self.alpha, self.sigma)


def level_at(scheduler: object, timestep: Tensor | float) -> Level:
    """The level that a scheduler's timestep means.

    Raises :class:`InformationError` for schedulers that rescale what the model predicts (EDM).
    """
    if "sigma_data" in getattr(scheduler, "config", {}):
        raise InformationError(f"{type(scheduler).__name__} rescales what the model predicts: use another scheduler")
    found = logsnr_of(scheduler, torch.as_tensor(timestep).reshape(1))
    return Level(float(found.logsnr[0]), *signal_and_noise(scheduler, found))


@dataclass(frozen=True, slots=True)
class Call:
    """The conditional branch of one denoiser call: ``z`` as the denoiser was given it, and what it predicted.

    ``timestep`` is the scheduler's; ``grid`` height and width of the latents.
    """

    step: int
    timestep: float
    level: Level
    z: Tensor
    prediction: Tensor
    grid: tuple[int, int]


@contextmanager
def watched(pipe: DiffusionPipeline, on_call: Callable[[Call], None]) -> Iterator[None]:
    """Tell ``on_call`` of each step's conditional call; it may call the denoiser itself, those calls are not told.

    The random state and the prediction that goes on to the scheduler are not touched.
    """
    adapter = adapter_for(pipe)
    inside, last = False, -1

    with counted(pipe) as count:

        def after(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object) -> None:
            nonlocal inside, last
            if inside:
                return
            arguments = arguments_of(module, args, kwargs)
            sample = cast(Tensor, arguments[adapter.sample_name])
            call = DenoiserCall(arguments, count.call - 1, count.guided)
            rows = adapter.branches(pipe, call, len(sample)).get("cond")
            if rows is None or count.step == last:
                return
            scheduler = adapter.scheduler(pipe)
            timestep = float(cast(Tensor, getattr(scheduler, "timesteps"))[count.step])  # noqa: B009
            z, last = sample[rows], count.step
            own = predicted(adapter, output, sample)[rows]
            calls, inside = count.call, True
            try:
                on_call(Call(count.step, timestep, level_at(scheduler, timestep), z, own, adapter.grid(pipe, call)))
            finally:
                count.call, inside = calls, False

        hook = adapter.denoiser(pipe).register_forward_hook(after, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()
