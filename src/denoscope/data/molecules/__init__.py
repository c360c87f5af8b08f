"""Molecules to train on, and molecules read back from points in space. Needs RDKit: the extra ``molecules``."""

from denoscope.data.molecules.molecules import MoleculeSet, SmilesList, load_smiles, molecules, small_molecules
from denoscope.data.molecules.reading import Figures, Reading, figures, read, read_all
from denoscope.data.pictures.errors import DataError

__all__ = [
    "DataError",
    "Figures",
    "MoleculeSet",
    "Reading",
    "SmilesList",
    "figures",
    "load_smiles",
    "molecules",
    "read",
    "read_all",
    "small_molecules",
]
