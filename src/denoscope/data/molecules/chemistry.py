"""RDKit, asked for only where it is needed, and the chemistry that denoscope takes for granted."""

import importlib.util
from typing import Final

from denoscope.data.errors import DataError

ELEMENTS: Final = ("H", "C", "N", "O", "F", "Cl", "Br")
"""What the table of bonds knows."""

VALENCES: Final = {"H": 1, "C": 4, "N": 3, "O": 2, "F": 1, "Cl": 1, "Br": 1}
"""Bonds of a neutral atom."""


def need_rdkit() -> None:
    """Make sure that RDKit is there.

    Raises :class:`DataError` saying how to install it.
    """
    if importlib.util.find_spec("rdkit") is None:
        raise DataError("molecules need RDKit, which is not installed: pip install denoscope[molecules]")
