"""A molecule as one tensor: positions and one-hot kinds, each to its own scale."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from denoscope.data.errors import DataError
from denoscope.data.molecules.sets import MoleculeSet

POSITION_SCALE: Final = 0.8
"""What a position in Å is multiplied by: about one over its spread."""

KIND_SCALE: Final = 0.25
"""What a one-hot kind is multiplied by. Small, so that kinds are decided after positions (EDM, section 3.3)."""


def to_joint(found: MoleculeSet, *, position_scale: float = POSITION_SCALE, kind_scale: float = KIND_SCALE) -> Tensor:
    """``(N, A, 3 + E)`` float32: scaled positions, then scaled one-hot kinds; zero where the mask is False.

    Raises :class:`DataError` when a scale is not positive.
    """
    if not (position_scale > 0 and kind_scale > 0):
        raise DataError(f"scales must be positive, not {position_scale!r} and {kind_scale!r}")
    kinds = functional.one_hot(found.kinds, len(found.elements)) * kind_scale
    return torch.cat([found.positions * position_scale, kinds], dim=-1) * found.mask[..., None]


def from_joint(z: Tensor, mask: Tensor, *, position_scale: float = POSITION_SCALE) -> tuple[Tensor, Tensor]:
    """Positions ``(N, A, 3)`` in Å and kinds ``(N, A)`` int64 of molecules ``(N, A, 3 + E)``: the greatest number wins.

    >>> from denoscope.data.molecules import molecules
    >>> found = molecules(["C", "CO"])
    >>> positions, kinds = from_joint(to_joint(found), found.mask)
    >>> bool(torch.allclose(positions, found.positions)), bool(torch.equal(kinds, found.kinds))
    (True, True)
    """
    kinds = z[..., 3:].argmax(-1)
    return z[..., :3] / position_scale * mask[..., None], kinds * mask
