"""The denoiser of molecules: positions and kinds of atoms as one sample, by an equivariant graph network.

As in EDM (Hoogeboom et al. 2022, section 3), a molecule is a tensor of 3 coordinates and a number for each kind of
atom; coordinates live in the subspace where their mean is zero, so that nothing depends on where a molecule is.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Self

import torch
from torch import Tensor, nn

from denoscope.networks.egnn import EGNN, EGNNConfig, centred

AXES: Final = 3
_CLASS_NAME: Final = "denoscope.MoleculeNet"


@dataclass(frozen=True, slots=True)
class MoleculeNetConfig:
    """``kinds`` of atoms, hidden width, layers; ``frequencies`` sines and cosines tell the time; the rest is EGNN's.

    ``cond_channels`` further numbers a molecule may be told, such as a property.

    Raises :class:`ValueError` for sizes that are not positive.
    """

    kinds: int
    hidden: int = 64
    layers: int = 4
    attends: bool = True
    coordinate_range: float = 15.0
    waves: int = 3
    frequencies: int = 4
    cond_channels: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that are not positive."""
        if self.kinds < 1 or self.frequencies < 0:
            raise ValueError("kinds must be at least 1 and frequencies not negative")
        self.egnn()

    @classmethod
    def from_diffusers(cls, config: Mapping[str, object]) -> Self:
        """Read a ``config.json`` of :meth:`to_diffusers`; the name is that of the other networks' method.

        Raises :class:`ValueError` for another class of network or an unknown key.
        """
        if config.get("_class_name") != _CLASS_NAME:
            raise ValueError(f"_class_name={config.get('_class_name')!r} is not supported; only {_CLASS_NAME!r} is")
        values = {key: value for key, value in config.items() if not key.startswith("_")}
        unknown = sorted(values.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"the key {unknown[0]!r} is unknown")
        return cls(**values)  # type: ignore[arg-type]  # checked by __post_init__

    def to_diffusers(self) -> dict[str, object]:
        """The content of a ``config.json``, every key written out."""
        return {"_class_name": _CLASS_NAME, **asdict(self)}

    def egnn(self) -> EGNNConfig:
        """The configuration of the network inside."""
        told = 2 * self.frequencies + self.cond_channels
        return EGNNConfig(
            self.kinds, self.hidden, self.layers, self.attends, self.coordinate_range, told, waves=self.waves
        )


class MoleculeNet(nn.Module):
    """Predicts noise or velocity of molecules ``(B, A, 3 + kinds)``; E(3)-equivariant, zero at first.

    >>> net = MoleculeNet(MoleculeNetConfig(kinds=4, hidden=8, layers=2))
    >>> z, mask = torch.randn(2, 6, 7), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    >>> float(net(z, torch.tensor([10.0, 500.0]), mask=mask).detach().abs().max())
    0.0
    """

    def __init__(self, config: MoleculeNetConfig) -> None:
        super().__init__()
        self.config = config
        self.network = EGNN(config.egnn(), AXES)
        nn.init.zeros_(self.network.read.weight)
        nn.init.zeros_(self.network.read.bias)
        for layer in self.network.layers:
            nn.init.zeros_(layer.pull[-1].weight)  # type: ignore[index, union-attr]

    def forward(
        self, z: Tensor, timestep: Tensor | float, mask: Tensor | None = None, cond: Tensor | None = None
    ) -> Tensor:
        """Predict; ``timestep`` of 1,000, one or ``(B,)``; ``mask`` ``(B, A)``; ``cond`` ``(B, cond_channels)``.

        Positions are moved to mean zero on the way in, predicted positions have mean zero; both are zero where the mask
        is. Raises :class:`ValueError` for another number of channels, or for a mask of another shape.
        """
        if mask is not None and mask.shape != z.shape[:2]:
            raise ValueError(f"a mask of shape {tuple(z.shape[:2])} is needed, not {tuple(mask.shape)}")
        if (cond is None) != (self.config.cond_channels == 0):
            raise ValueError(f"this network takes {self.config.cond_channels} numbers as cond")
        time = torch.as_tensor(timestep, device=z.device, dtype=z.dtype).reshape(-1).expand(len(z))
        told = self._waves(time)
        if cond is not None:
            told = torch.cat([told, cond.to(z)], dim=1)
        held = zero_centre(z, mask)
        return zero_centre(self.network(held, time, mask, told if told.shape[1] else None), mask)

    def _waves(self, time: Tensor) -> Tensor:
        octaves = 2.0 ** torch.arange(self.config.frequencies, device=time.device, dtype=time.dtype)
        angles = time[:, None] / 1000 * math.pi * octaves
        return torch.cat([angles.sin(), angles.cos()], dim=1)


def zero_centre(z: Tensor, mask: Tensor | None = None) -> Tensor:
    """Molecules or noise ``(B, A, 3 + …)`` with the positions' mean over the mask at zero, and zero outside of it.

    Standard normal noise becomes normal noise of the subspace of mean zero, with (n − 1)·3 degrees of freedom for the
    positions of n atoms (Hoogeboom et al. 2022, section 3.1).

    >>> zero_centre(torch.tensor([[[1.0, 0.0, 0.0, 5.0], [3.0, 0.0, 0.0, 7.0]]]))[0, :, [0, 3]].tolist()
    [[-1.0, 5.0], [1.0, 7.0]]
    """
    there = torch.ones(z.shape[:2], device=z.device, dtype=z.dtype) if mask is None else mask.to(z)
    return torch.cat([centred(z[..., :AXES], there), z[..., AXES:] * there[..., None]], dim=-1)
