"""The loss of a batch of examples of any modality."""

from torch import Tensor

from denoscope.training.draws import Draws
from denoscope.training.objectives import Network, Objective
from denoscope.training.recipes.modality import Conditions, Modality


def batch_loss(
    objective: Objective, network: Network, modality: Modality, clean: Tensor, told: Conditions, draws: Draws
) -> Tensor:
    """One loss a sample ``(B,)``, with the modality's noise, and padding left out of the mean."""
    noise = modality.noise
    if noise is not None:
        draws.project = lambda drawn: noise(drawn, told)
    losses = objective(network, clean, draws, **told)
    return losses if modality.weight is None else losses * modality.weight(told)
