"""Bonds told from distances: a table of bond lengths with margins, as in EDM (Hoogeboom et al. 2022, appendix C).

Two atoms are bonded when they are closer than the length of a single bond and 10 pm; the bond is double below the
length of a double bond and 5 pm, triple below that of a triple bond and 3 pm. The margins are EDM's.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from denoscope.data.errors import DataError
from denoscope.data.molecules.chemistry import ELEMENTS

MARGINS: Final = (0.10, 0.05, 0.03)
"""Å, for single, double and triple bonds."""

LENGTHS: Final[tuple[dict[str, int], ...]] = (
    {
        "H-H": 74,
        "H-C": 109,
        "H-N": 101,
        "H-O": 96,
        "H-F": 92,
        "H-Cl": 127,
        "H-Br": 141,
        "C-C": 154,
        "C-N": 147,
        "C-O": 143,
        "C-F": 135,
        "C-Cl": 177,
        "C-Br": 194,
        "N-N": 145,
        "N-O": 140,
        "N-F": 136,
        "N-Cl": 175,
        "N-Br": 214,
        "O-O": 148,
        "O-F": 142,
        "O-Cl": 164,
        "O-Br": 172,
        "F-F": 142,
        "F-Cl": 166,
        "F-Br": 178,
        "Cl-Cl": 199,
        "Cl-Br": 214,
        "Br-Br": 228,
    },
    {"C-C": 134, "C-N": 129, "C-O": 120, "N-N": 125, "N-O": 121, "O-O": 121},
    {"C-C": 120, "C-N": 116, "C-O": 113, "N-N": 110},
)
"""Lengths of single, double and triple bonds, pm."""

AROMATIC: Final = {"C-C": (1.34, 1.43), "C-N": (1.29, 1.38), "N-N": (1.27, 1.39)}
"""Bonds of an aromatic ring of six, Å: between a double and a single bond, where the table alone would be wrong."""


def bond_orders(
    positions: NDArray[np.floating], kinds: NDArray[np.integer], elements: Sequence[str]
) -> NDArray[np.int64]:
    """Orders 0 to 3 of all bonds, ``(A, A)``, symmetric, of atoms at ``positions`` ``(A, 3)`` in Å.

    ``kinds`` ``(A,)`` number the ``elements``. Raises :class:`DataError` for elements that the table lacks.

    >>> bond_orders(np.array([[0, 0, 0], [1.34, 0, 0], [2.84, 0, 0]]), np.zeros(3, int), ("C",)).tolist()
    [[0, 2, 0], [2, 0, 1], [0, 1, 0]]
    """
    limits = thresholds(elements)[:, kinds[:, None], kinds[None]]
    difference = positions[:, None].astype(np.float64) - positions[None]
    distance = np.sqrt((difference**2).sum(-1))
    bonded = distance < limits[0]
    orders = (distance < limits).sum(0) * bonded
    np.fill_diagonal(orders, 0)
    return orders.astype(np.int64)


def thresholds(elements: Sequence[str]) -> NDArray[np.float64]:
    """Å below which two atoms are bonded once, twice, thrice: ``(3, E, E)``; −∞ where there is no such bond.

    Raises :class:`DataError` for elements that the table lacks.
    """
    unknown = [element for element in elements if element not in ELEMENTS]
    if unknown:
        raise DataError(f"bonds of {', '.join(unknown)} are not known; known are those of {', '.join(ELEMENTS)}")
    found = np.full((3, len(elements), len(elements)), -np.inf)
    for order, (lengths, margin) in enumerate(zip(LENGTHS, MARGINS, strict=True)):
        for i, first in enumerate(elements):
            for j, second in enumerate(elements):
                length = lengths.get(f"{first}-{second}", lengths.get(f"{second}-{first}"))
                if length is not None:
                    found[order, i, j] = length / 100 + margin
    return found
