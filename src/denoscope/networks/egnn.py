"""An equivariant graph network for point clouds and molecules (Satorras et al. 2021; Hoogeboom et al. 2022, "EDM").

Turning or mirroring the points does the same to the predicted coordinates and leaves the predicted features alone;
shifting the points changes nothing; renumbering them renumbers the prediction.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class EGNNConfig:
    """``features`` numbers a point (one-hot elements, charges), hidden width, layers; ``attends``: edges are gated.

    ``coordinate_range`` bounds what all layers may move a point along one edge, which keeps training stable. ``waves``
    frequencies tell distances as sines and cosines too, of wavelengths 15, 15/4, 15/16 … (an option of EDM's code).

    Raises :class:`ValueError` for sizes that are not positive.
    """

    features: int
    hidden: int = 64
    layers: int = 4
    attends: bool = True
    coordinate_range: float = 15.0
    cond_channels: int = 0
    waves: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that are not positive."""
        for name in ("features", "hidden", "layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if self.coordinate_range <= 0 or self.cond_channels < 0 or self.waves < 0:
            raise ValueError("coordinate_range must be positive, cond_channels and waves not negative")


class EquivariantLayer(nn.Module):
    """One round of messages (Hoogeboom et al. 2022, eq. 12): coordinates move along edges, features by messages."""

    def __init__(self, config: EGNNConfig) -> None:
        super().__init__()
        width = config.hidden
        self.reach = config.coordinate_range / config.layers
        self.waves = config.waves
        edge = 2 * width + 2 * (1 + 2 * config.waves)
        self.message = nn.Sequential(nn.Linear(edge, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.gate = nn.Sequential(nn.Linear(width, 1), nn.Sigmoid()) if config.attends else None
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.pull = nn.Sequential(
            nn.Linear(edge, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1, bias=False)
        )
        nn.init.xavier_uniform_(self.pull[-1].weight, gain=1e-3)  # type: ignore[arg-type]

    def forward(self, x: Tensor, h: Tensor, start: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """``x`` ``(B, N, D)``, ``h`` ``(B, N, hidden)``; ``start`` tells the input's distances, ``edges`` is a mask."""
        difference = x[:, :, None] - x[:, None]
        squared = difference.square().sum(-1, keepdim=True)
        distances = torch.cat([_told(squared, self.waves), start], dim=-1)
        pull = self.pull[1:](_of_pairs(self.pull[0], h, distances))
        message = self.message[1:](_of_pairs(self.message[0], h, distances))
        if self.gate is not None:
            message = message * self.gate(message)
        neighbours = edges.sum(2).clamp(min=1)
        h = h + self.update(torch.cat([h, (message * edges).sum(2) / neighbours], dim=-1))
        # Divided by the distance plus one, so that near points do not throw each other away (eq. 12).
        direction = difference / (squared + 1e-8).sqrt().add(1)
        moved = (direction * torch.tanh(pull) * self.reach * edges).sum(2) / neighbours
        return x + moved, h


def _told(squared: Tensor, waves: int) -> Tensor:
    """Squared distances ``(…, 1)``, followed by ``waves`` sines and cosines of the distances."""
    if waves == 0:
        return squared
    frequencies = 2 * math.pi / 15 * 4.0 ** torch.arange(waves, device=squared.device, dtype=squared.dtype)
    angles = (squared + 1e-8).sqrt() * frequencies
    return torch.cat([squared, angles.sin(), angles.cos()], dim=-1)


def _of_pairs(linear: nn.Module, h: Tensor, distances: Tensor) -> Tensor:
    """``linear`` of (hᵢ, hⱼ, distances) for all pairs, each h multiplied but once: ``(B, N, N, hidden)``."""
    assert isinstance(linear, nn.Linear)
    one, other, between = torch.split(linear.weight, [h.shape[-1], h.shape[-1], distances.shape[-1]], dim=1)
    own = functional.linear(h, one, linear.bias)
    return own[:, :, None] + functional.linear(h, other)[:, None] + functional.linear(distances, between)


class EGNN(nn.Module):
    """Predicts noise or velocity for coordinates and features of a cloud of points; E(n)-equivariant.

    A sample is ``(B, N, D + F)``: D coordinates, then F features, for N points; points that are not there have 0 in the
    mask. The predicted coordinates have their mean over points at zero, as their noise must have.

    >>> net = EGNN(EGNNConfig(features=5, hidden=8, layers=2), dimensions=3)
    >>> net(torch.randn(2, 6, 8), torch.tensor([10.0, 500.0])).shape
    torch.Size([2, 6, 8])
    """

    def __init__(self, config: EGNNConfig, dimensions: int = 3) -> None:
        """``dimensions`` is D, the number of coordinates."""
        super().__init__()
        self.config = config
        self.dimensions = dimensions
        self.embed = nn.Linear(config.features + 1 + config.cond_channels, config.hidden)
        self.layers = nn.ModuleList([EquivariantLayer(config) for _ in range(config.layers)])
        self.read = nn.Linear(config.hidden, config.features)

    def forward(
        self,
        sample: Tensor,
        timestep: Tensor | float,
        mask: Tensor | None = None,
        cond: Tensor | None = None,
    ) -> Tensor:
        """Predict; ``timestep`` of 1,000, one or ``(B,)``; ``mask`` is ``(B, N)``, ``cond`` ``(B, cond_channels)``.

        Returns the shape of ``sample``, zero where the mask is. Raises :class:`ValueError` for another number of
        channels.
        """
        wanted = self.dimensions + self.config.features
        if sample.dim() != 3 or sample.shape[2] != wanted:
            raise ValueError(f"a sample of shape (B, N, {wanted}) is needed, not {tuple(sample.shape)}")
        if (cond is None) != (self.config.cond_channels == 0):
            raise ValueError(f"this network takes {self.config.cond_channels} numbers as cond")
        batch, n, _ = sample.shape
        there = torch.ones(batch, n, device=sample.device, dtype=sample.dtype) if mask is None else mask.to(sample)
        x, features = sample[..., : self.dimensions], sample[..., self.dimensions :]
        x, features = x * there[..., None], features * there[..., None]
        edges = (there[:, :, None] * there[:, None] * (1 - torch.eye(n, device=x.device, dtype=x.dtype)))[..., None]
        start = _told((x[:, :, None] - x[:, None]).square().sum(-1, keepdim=True), self.config.waves)
        time = torch.as_tensor(timestep, device=x.device, dtype=x.dtype).reshape(-1).expand(batch) / 1000
        told = [features, time[:, None, None].expand(batch, n, 1)]
        if cond is not None:
            told.append(cond.to(x)[:, None].expand(batch, n, -1))
        h = self.embed(torch.cat(told, dim=2))
        moved = x
        for layer in self.layers:
            moved, h = layer(moved, h, start, edges)
        return torch.cat([centred(moved - x, there), self.read(h) * there[..., None]], dim=2)


def centred(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Points ``(B, N, D)`` shifted so that the mean of those in the mask ``(B, N)`` is zero; zero outside of it.

    Noise on coordinates must be of this kind: it has (N − 1)·D degrees of freedom.

    >>> centred(torch.tensor([[[1.0], [3.0]]])).flatten().tolist()
    [-1.0, 1.0]
    """
    there = torch.ones_like(x[..., 0]) if mask is None else mask.to(x)
    count = there.sum(1).clamp(min=1)
    mean = (x * there[..., None]).sum(1) / count[:, None]
    return (x - mean[:, None]) * there[..., None]
