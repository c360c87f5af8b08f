"""How strongly the denoiser's output leans on each word's embedding."""

from collections.abc import Sequence

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from denoscope.information.conditioning import Conditioning, predict
from denoscope.information.errors import InformationError


def gradient_flow(
    pipe: DiffusionPipeline,
    z: Tensor,
    timestep: Tensor | float,
    given: Conditioning,
    columns: Sequence[Sequence[int]],
    direction: Tensor | None = None,
) -> Tensor:
    """Norm of the gradient of the denoiser's output along each word's columns of text: ``(words,)`` float64.

    The gradient is that of ⟨output, direction⟩, or without a direction of ½·‖output‖²: the output projected on itself.
    ``z`` and ``timestep`` as for :func:`denoscope.information.conditioning.predict`, ``columns`` each word's positions.
    One backward pass; weights get no gradient. It tells a slope at one point, which may vanish where a word, once
    left out, would change a lot: beside the information, not in its place.

    Raises :class:`InformationError` for a model without text embeddings, or whose output doesn't depend on them
    differentiably (the exact model reads words).
    """
    with torch.enable_grad():
        states = given.states.detach().clone().requires_grad_(True)
        output = predict(pipe, z.detach(), timestep, given.with_states(states))
        if not output.requires_grad:
            raise InformationError("this model's output has no gradient along its text embeddings")
        towards = output.detach() if direction is None else direction.to(output)
        (found,) = torch.autograd.grad((output * towards).sum(), states)
    norms = [found[0, torch.tensor(list(own), device=found.device)].double().norm() for own in columns]
    return torch.stack(norms).cpu()
