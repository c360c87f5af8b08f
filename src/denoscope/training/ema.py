"""Moving averages of weights: exponential, and the power functions that can be put together after training."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Decay = Callable[[int], float]
"""The share of the old average that update number k = 0, 1 … keeps."""


def warmed_up(decay: float) -> Decay:
    """min(decay, (1 + k)/(10 + k)), so that the average is not held back by the random start.

    >>> [round(warmed_up(0.9)(k), 3) for k in (0, 1, 100)]
    [0.1, 0.182, 0.9]
    """
    return lambda update: min(decay, (1 + update) / (10 + update))


def power_function(sigma_rel: float) -> Decay:
    """(1 − 1/k)^(γ + 1), an average whose width is ``sigma_rel`` of the training so far (Karras et al. 2024, eq. 127).

    >>> round(power_function(0.10)(99), 4)  # the hundredth update: 0.99 ** 7.94
    0.9233
    """
    exponent = power_exponent(sigma_rel) + 1
    return lambda update: (1 - 1 / (update + 1)) ** exponent


def power_exponent(sigma_rel: float) -> float:
    """γ of the power function t^γ with relative standard deviation ``sigma_rel`` (Karras et al. 2024, eq. 126).

    σ_rel² = (γ + 1)/((γ + 2)²·(γ + 3)), solved for the one root that is not negative.

    Raises :class:`ValueError` when there is none: ``sigma_rel`` must lie in (0, 0.2886).

    >>> round(power_exponent(0.05), 2), round(power_exponent(0.10), 2)
    (16.97, 6.94)
    """
    if not 0 < sigma_rel < math.sqrt(1 / 12):
        raise ValueError(f"sigma_rel must lie between 0 and 0.2886, not {sigma_rel!r}")
    from scipy.optimize import brentq

    def gap(gamma: float) -> float:
        return (gamma + 1) / ((gamma + 2) ** 2 * (gamma + 3)) - sigma_rel**2

    return float(brentq(gap, 0.0, 2 / sigma_rel, xtol=1e-12))


class Ema:
    """A moving average of a module's weights in float32 (float64 stays float64); buffers that are counts are copied.

    Call :meth:`update` after each optimizer step, not after each accumulation step. ``decay`` is a number, which warms
    up, or any rule.

    >>> layer = torch.nn.Linear(1, 1, bias=False)
    >>> ema = Ema(layer, decay=0.9)
    >>> with torch.no_grad(): _ = layer.weight.fill_(1.0)
    >>> ema.update(); round(ema.decay_at(0), 3)
    0.1
    """

    def __init__(self, module: nn.Module, decay: float | Decay = 0.999) -> None:
        self.module = module
        self.decay_at: Decay = decay if callable(decay) else warmed_up(decay)
        self.updates = 0
        self.average = {name: _wide(value.detach()).clone() for name, value in module.state_dict().items()}

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

    def copy_to(self, module: nn.Module) -> None:
        """Put the average into a module of the same layout, cast to its dtypes."""
        module.load_state_dict(self.average)

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """The module with the averaged weights, put back on leaving."""
        trained = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        self.module.load_state_dict(self.average)
        try:
            yield self.module
        finally:
            self.module.load_state_dict(trained)


def _wide(value: Tensor) -> Tensor:
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
