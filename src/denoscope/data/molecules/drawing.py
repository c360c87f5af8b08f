"""Pictures and files of molecules."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from denoscope.data.errors import DataError
from denoscope.data.molecules.chemistry import need_rdkit
from denoscope.data.molecules.reading import Reading

if TYPE_CHECKING:
    from rdkit import Chem

COLOURS: Final = {
    "H": (225, 225, 225),
    "C": (70, 70, 70),
    "N": (48, 80, 248),
    "O": (255, 13, 13),
    "F": (144, 224, 80),
    "Cl": (31, 240, 31),
    "Br": (166, 41, 41),
}
"""The usual colours of atoms (Jmol's)."""

RADII: Final = {"H": 0.31, "C": 0.76, "N": 0.71, "O": 0.66, "F": 0.57, "Cl": 1.02, "Br": 1.20}
"""Covalent radii in Å (Cordero et al. 2008)."""


def draw(mols: "Sequence[Chem.Mol | Reading | None]", *, columns: int = 6, size: int = 160) -> Image.Image:
    """RDKit's flat depictions side by side, hydrogens left out; what could not be read says why.

    Each cell is ``size`` pixels wide and high. Raises :class:`DataError` without RDKit, for no molecules, or sizes that
    are not positive.

    >>> draw([None, None, None], columns=2, size=50).size
    (100, 100)
    """
    need_rdkit()
    from rdkit import Chem
    from rdkit.Chem import Draw

    def cell(mol: "Chem.Mol | Reading | None") -> Image.Image:
        verdict = mol.verdict if isinstance(mol, Reading) else "no molecule"
        found = mol.mol if isinstance(mol, Reading) else mol
        if found is None:
            blank = Image.new("RGB", (size, size), (255, 255, 255))
            ImageDraw.Draw(blank).text((size / 2, size / 2), verdict, (150, 150, 150), anchor="mm")
            return blank
        flat = Chem.RemoveHs(found)
        flat.RemoveAllConformers()
        picture: Image.Image = Draw.MolToImage(flat, size=(size, size))  # type: ignore[no-untyped-call]
        return picture.convert("RGB")

    _check(len(mols), columns, size)
    return _grid([cell(mol) for mol in mols], columns, size)


def draw_clouds(
    positions: Tensor, kinds: Tensor, mask: Tensor, elements: Sequence[str], *, columns: int = 6, size: int = 160
) -> Image.Image:
    """Atoms as balls, seen along the direction in which a molecule is thinnest; the nearest are drawn last.

    ``(N, A, 3)`` in Å, ``(N, A)``, ``(N, A)``; one scale for all. Raises :class:`DataError` for no molecules, sizes
    that are not positive, or positions that are not finite.

    >>> import torch
    >>> draw_clouds(torch.zeros(3, 1, 3), torch.zeros(3, 1).long(), torch.ones(3, 1).bool(), ("C",), size=50).size
    (300, 50)
    """
    _check(len(positions), columns, size)
    where = positions.detach().cpu().double().numpy()
    there = mask.detach().cpu().bool().numpy()
    if not np.isfinite(where[there]).all():
        raise DataError("positions that are not finite can't be drawn")
    turned = []
    for place, row in zip(where, there, strict=True):
        cloud = place[row] - place[row].mean(0)
        turned.append(cloud @ np.linalg.svd(cloud, full_matrices=True)[2].T)
    reach = max(float(np.abs(cloud[:, :2]).max()) for cloud in turned) + 1.0
    scale = size / 2 / reach
    cells = []
    for cloud, row, kind in zip(turned, there, kinds.tolist(), strict=True):
        picture = Image.new("RGB", (size, size), (255, 255, 255))
        pen = ImageDraw.Draw(picture)
        names = [elements[number] for number, here in zip(kind, row, strict=True) if here]
        for index in np.argsort(cloud[:, 2]):
            x, y = cloud[index, :2] * scale + size / 2
            radius = RADII[names[index]] * scale * 0.8
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), COLOURS[names[index]], (40, 40, 40))
        cells.append(picture)
    return _grid(cells, columns, size)


def write_sdf(path: Path, readings: Sequence[Reading]) -> int:
    """Write the molecules that could be read, with their positions and bonds, as an SDF file; says how many.

    Each is named by its SMILES. Raises :class:`DataError` without RDKit, and :class:`OSError` when the file can't be
    written.
    """
    need_rdkit()
    from rdkit import Chem

    written = 0
    with path.open("w", encoding="utf-8") as file:
        for reading in readings:
            if reading.mol is not None:
                mol = Chem.Mol(reading.mol)
                mol.SetProp("_Name", reading.smiles or "")
                file.write(Chem.MolToMolBlock(mol) + "$$$$\n")
                written += 1
    return written


def write_xyz(path: Path, positions: Tensor, kinds: Tensor, mask: Tensor, elements: Sequence[str]) -> None:
    """Write all clouds, read or not, as one XYZ file: number of atoms, number of the molecule, an atom a line in Å.

    ``(N, A, 3)``, ``(N, A)``, ``(N, A)``. Raises :class:`OSError` when the file can't be written.
    """
    lines = []
    for number, (place, kind, there) in enumerate(zip(positions.tolist(), kinds.tolist(), mask.tolist(), strict=True)):
        atoms = [(elements[k], p) for k, p, here in zip(kind, place, there, strict=True) if here]
        lines += [str(len(atoms)), f"molecule {number}"]
        lines += [f"{symbol:2s} " + " ".join(f"{axis:12.6f}" for axis in place) for symbol, place in atoms]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _check(count: int, columns: int, size: int) -> None:
    if count == 0:
        raise DataError("there are no molecules to draw")
    if columns < 1 or size < 1:
        raise DataError(f"columns and size must be positive, not {columns} and {size}")


def _grid(cells: Sequence[Image.Image], columns: int, size: int) -> Image.Image:
    rows = -(-len(cells) // columns)
    sheet = Image.new("RGB", (columns * size, rows * size), (255, 255, 255))
    for index, cell in enumerate(cells):
        sheet.paste(cell, (index % columns * size, index // columns * size))
    return sheet
