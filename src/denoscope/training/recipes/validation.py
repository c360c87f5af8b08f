"""What is measured while a model is trained: its loss by noise level, and whether it copies its examples."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from denoscope.training.draws import Draws
from denoscope.training.objectives import Objective
from denoscope.training.recipes.losses import batch_loss
from denoscope.training.recipes.modality import Examples, Modality

LEVELS: Final = 10
"""Into how many equal parts of the noise levels the validation loss is divided."""


@torch.no_grad()
def loss_by_level(
    objective: Objective, network: nn.Module, modality: Modality, examples: Examples, batch_size: int = 64
) -> list[float]:
    """Mean loss in each tenth of the noise levels that training draws, cleanest first: ``LEVELS`` numbers.

    The same examples, levels and noise at each call, so that calls can be compared. Each of up to 64 examples is taken
    eight times, or of up to 512 as often as makes 512; at least 64 in all.
    """
    n = max(64, min(512, 8 * len(examples)))
    device = next(network.parameters()).device
    losses: list[Tensor] = []
    times: list[Tensor] = []

    def listening(z: Tensor, t: Tensor, **cond: Tensor) -> Tensor:
        times.append(t.detach().double().cpu())
        said: Tensor = network(z, t, **cond)
        return said

    for step, start in enumerate(range(0, n, batch_size)):
        count = min(batch_size, n - start)
        draws = Draws.of(count, seed=1, step=step)
        clean, cond = examples.batch((torch.arange(start, start + count) * 7919) % len(examples))
        told = {name: value.to(device) for name, value in cond.items()}
        found = batch_loss(objective, listening, modality, clean.to(device), told, draws)
        losses.append(found.double().cpu())
    order = torch.cat(times).argsort()  # what networks are told rises with the noise, in every family
    return [float(part.mean()) for part in torch.cat(losses)[order].tensor_split(LEVELS)]


@dataclass(frozen=True, slots=True)
class Copies:
    """How near samples lie to the training examples, compared with how near examples do that were held out.

    ``share`` of the samples lie nearer to their nearest training example than 95 % of the held-out ones do to theirs:
    about .05 for a model that learnt the distribution. ``nearest`` ``(n,)`` numbers each sample's nearest example.
    """

    share: float
    nearest: Tensor
    distances: Tensor

    @property
    def warning(self) -> str | None:
        """A sentence when the model copies."""
        if self.share <= 0.25:
            return None
        return (
            f"{self.share:.0%} of the samples lie nearer to a training example than 95 % of held-out examples do: "
            "the model memorises; train it for fewer steps, on more data, or make it smaller"
        )


def copies(samples: Tensor, examples: Examples, held_out: Examples) -> Copies | None:
    """Compare samples ``(n, …)`` with the training examples; None when nothing was held out.

    Distances are Euclidean, between values as the network sees them. Memory: distances to one block of examples.
    """
    if len(held_out) == 0:
        return None
    nearest, distances = _nearest(samples, examples)
    _, usual = _nearest(held_out.batch(torch.arange(min(len(held_out), 1000)))[0], examples)
    share = float((distances < usual.double().quantile(0.05)).double().mean())
    return Copies(share, nearest, distances)


def _nearest(samples: Tensor, examples: Examples, block: int = 4096) -> tuple[Tensor, Tensor]:
    queries = samples.flatten(1).float()
    best = torch.full((len(queries),), torch.inf)
    who = torch.zeros(len(queries), dtype=torch.int64)
    for start in range(0, len(examples), block):
        candidates, _ = examples.batch(torch.arange(start, min(start + block, len(examples))))
        found, index = torch.cdist(queries, candidates.flatten(1)).min(1)
        closer = found < best
        best, who = torch.where(closer, found, best), torch.where(closer, index + start, who)
    return who, best
