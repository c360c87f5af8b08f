"""A noise schedule that is learnt with the network (Kingma et al. 2021, "Variational diffusion models", appendix H)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from denoscope.schedules.continuous import ContinuousSchedule


class LearnedSchedule(nn.Module):
    """logsnr(t) as a network that can only fall: weights are kept positive, and the ends are free.

    l₁(t) + l₃(sigmoid(l₂(l₁(t)))) is scaled so that it runs from ``logsnr_max`` at t = 0 to ``logsnr_min`` at t = 1;
    both are learnt as well.

    >>> schedule = LearnedSchedule()
    >>> ends = schedule(torch.tensor([0.0, 1.0]))
    >>> [round(float(end), 3) for end in ends]
    [13.3, -5.0]
    """

    def __init__(self, logsnr_max: float = 13.3, logsnr_min: float = -5.0, hidden: int = 1024) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(1, 1))
        self.inner = nn.Parameter(torch.randn(hidden, 1))
        self.inner_bias = nn.Parameter(torch.randn(hidden))
        self.outer = nn.Parameter(torch.full((1, hidden), -4.0))
        self.ends = nn.Parameter(torch.tensor([logsnr_max, logsnr_min]))

    def forward(self, t: Tensor) -> Tensor:
        """Logsnr at times ``t`` in [0, 1], of the shape and dtype of ``t``; differentiable."""
        edges = torch.tensor([0.0, 1.0], dtype=t.dtype, device=t.device)
        raw = self._rising(torch.cat([edges, t.reshape(-1)]))
        share = (raw[2:] - raw[0]) / (raw[1] - raw[0])
        return (self.ends[0] + share * (self.ends[1] - self.ends[0])).reshape(t.shape).to(t.dtype)

    def _rising(self, t: Tensor) -> Tensor:
        # Positive weights and a rising nonlinearity: the sum can only rise.
        straight = functional.softplus(self.slope) * t[:, None].to(self.slope.dtype)
        bend = torch.sigmoid(functional.linear(straight, functional.softplus(self.inner), self.inner_bias))
        return (straight + functional.linear(bend, functional.softplus(self.outer)))[:, 0]

    def frozen(self) -> ContinuousSchedule:
        """The schedule as it is now, for sampling and for tables; float64, apart from this module."""
        copy = LearnedSchedule(hidden=len(self.inner_bias)).double()
        copy.load_state_dict(self.state_dict())
        copy.requires_grad_(False)
        return ContinuousSchedule(lambda t: copy(t))
