"""Molecules to train on, and molecules read back from points in space. Needs RDKit: the extra ``molecules``."""

from denoscope.data.errors import DataError
from denoscope.data.molecules.drawing import draw, draw_clouds, write_sdf, write_xyz
from denoscope.data.molecules.joint import from_joint, to_joint
from denoscope.data.molecules.reading import Figures, Reading, figures, read, read_all
from denoscope.data.molecules.sets import MoleculeSet, SmilesList, load_smiles, molecules, small_molecules

__all__ = [
    "DataError",
    "Figures",
    "MoleculeSet",
    "Reading",
    "SmilesList",
    "draw",
    "draw_clouds",
    "figures",
    "from_joint",
    "load_smiles",
    "molecules",
    "read",
    "read_all",
    "small_molecules",
    "to_joint",
    "write_sdf",
    "write_xyz",
]
