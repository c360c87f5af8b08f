"""Exponential moving average of weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Ema:
    """A float32 moving average of a module's parameters; buffers are copied.

    The decay warms up as min(decay, (1 + k) / (10 + k)), so that the average is not held back by the random start.
    Call :meth:`update` after each optimizer step, not after each accumulation step.

    >>> layer = torch.nn.Linear(1, 1, bias=False)
    >>> ema = Ema(layer, decay=0.9)
    >>> with torch.no_grad(): _ = layer.weight.fill_(1.0)
    >>> ema.update(); round(ema.decay_at(0), 3)
    0.1
    """

    def __init__(self, module: nn.Module, decay: float = 0.999) -> None:
        self.module = module
        self.decay = decay
        self.updates = 0
        self.average = {name: value.detach().clone() for name, value in module.state_dict().items()}

    def decay_at(self, update: int) -> float:
        """The decay used by the update with this index."""
        return min(self.decay, (1 + update) / (10 + update))

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the module's present weights."""
        weight = 1 - self.decay_at(self.updates)
        self.updates += 1
        floating: tuple[list[Tensor], list[Tensor]] = ([], [])
        for name, value in self.module.state_dict().items():
            if value.is_floating_point():
                floating[0].append(self.average[name])
                floating[1].append(value.to(self.average[name].dtype))
            else:
                self.average[name].copy_(value)
        torch._foreach_lerp_(floating[0], floating[1], weight)

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """The module with the averaged weights, put back on leaving."""
        trained = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        self.module.load_state_dict(self.average)
        try:
            yield self.module
        finally:
            self.module.load_state_dict(trained)
