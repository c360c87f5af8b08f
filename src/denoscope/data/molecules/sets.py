"""Sets of molecules: atoms at their places, conformer by conformer."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from denoscope.data.errors import DataError
from denoscope.data.molecules.chemistry import ELEMENTS, need_rdkit

if TYPE_CHECKING:
    from rdkit import Chem


@dataclass(frozen=True, slots=True, eq=False)
class MoleculeSet:
    """N conformers of at most A atoms.

    ``positions`` ``(N, A, 3)`` float32 in Å, the mean of a molecule's atoms at zero; ``kinds`` ``(N, A)`` int64 number
    the ``elements``; ``mask`` ``(N, A)`` bool is False where a smaller molecule is padded (positions and kinds are 0
    there). ``names`` are canonical SMILES. ``hydrogens`` says whether hydrogens are among the atoms. ``skipped`` holds
    the molecules that were left out and why.

    Raises :class:`DataError` when there are fewer than two conformers or the parts don't fit together.
    """

    positions: Tensor
    kinds: Tensor
    mask: Tensor
    names: tuple[str, ...]
    elements: tuple[str, ...]
    hydrogens: bool
    skipped: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        n = len(self.positions)
        if self.positions.dim() != 3 or self.positions.shape[2] != 3:
            raise DataError(f"positions must be (N, A, 3), not {tuple(self.positions.shape)}")
        if n < 2:
            raise DataError(f"{n} molecule{'s' * (n != 1)} can't be learnt from; at least two are needed")
        for name, found in (("kinds", self.kinds), ("mask", self.mask)):
            if found.shape != self.positions.shape[:2]:
                raise DataError(f"{name} must be {tuple(self.positions.shape[:2])}, not {tuple(found.shape)}")
        if len(self.names) != n:
            raise DataError(f"{len(self.names)} names for {n} molecules")
        if self.mask.dtype != torch.bool or not bool(self.mask.any(1).all()):
            raise DataError("the mask must be of bool, with an atom in every molecule")
        if not bool(((self.kinds >= 0) & (self.kinds < len(self.elements))).all()):
            raise DataError(f"kinds must number {len(self.elements)} elements, from 0")

    def __len__(self) -> int:
        """N."""
        return len(self.positions)

    @property
    def sizes(self) -> Tensor:
        """How many atoms each molecule has, ``(N,)`` int64."""
        return self.mask.sum(1)


@dataclass(frozen=True, slots=True)
class SmilesList:
    """``smiles``, canonical and each but once; ``skipped`` holds the numbers of lines that were left out and why."""

    smiles: tuple[str, ...]
    skipped: tuple[tuple[int, str], ...] = ()


def small_molecules(heavy: int = 6) -> tuple[str, ...]:
    """The shipped list: 1,680 molecules of C, N and O with at most six heavy atoms, the smaller first.

    Raises :class:`DataError` when ``heavy``, the greatest number of heavy atoms, is not from 1 to 6.

    >>> small_molecules(2)
    ('C', 'N', 'O', 'C#C', 'C#N', 'C=C', 'C=O', 'CC', 'CN', 'CO')
    """
    if not 1 <= heavy <= 6:
        raise DataError(f"the shipped molecules have 1 to 6 heavy atoms, not {heavy}")
    text = resources.files(__package__).joinpath("smiles.txt").read_text("utf-8")
    found = (line for line in text.splitlines() if line and not line.startswith("#"))
    return tuple(line for line in found if sum(letter in "CNOcno" for letter in line) <= heavy)


def load_smiles(path: Path, *, bad_lines: Literal["skip", "fail"] = "skip") -> SmilesList:
    """One's own molecules: a text file with a SMILES a line; what follows it on the line is ignored, as is ``#``.

    Molecules must be neutral, in one piece, and of the elements that can be read back from distances. Stereochemistry
    is dropped: it can't be told from bonds.

    Raises :class:`DataError` when the file can't be read or holds fewer than two such molecules, and, with
    ``bad_lines="fail"``, at the first line that is wrong.
    """
    need_rdkit()
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read ({error})") from error
    found: dict[str, int] = {}
    skipped: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            smiles = canonical(line.split()[0])
        except DataError as error:
            if bad_lines == "fail":
                raise DataError(f"{path}, line {number}: {error}") from error
            skipped.append((number, str(error)))
            continue
        if smiles in found:
            skipped.append((number, f"the same molecule as line {found[smiles]}"))
        else:
            found[smiles] = number
    if len(found) < 2:
        why = f"; line {skipped[0][0]} was skipped: {skipped[0][1]}" if skipped else ""
        raise DataError(f"{path} holds {len(found)} molecules that can be used, at least two are needed{why}")
    return SmilesList(tuple(found), tuple(skipped))


def canonical(smiles: str) -> str:
    """RDKit's canonical SMILES of a molecule, without stereochemistry.

    Raises :class:`DataError` for what RDKit does not read, and for charges, radicals, pieces and unknown elements.

    >>> canonical("OCC")
    'CCO'
    """
    need_rdkit()
    from rdkit import Chem, rdBase

    silence = rdBase.BlockLogs()
    mol = Chem.MolFromSmiles(smiles)
    del silence
    if mol is None or mol.GetNumAtoms() == 0:
        raise DataError(f"{smiles!r} is no molecule that RDKit reads")
    unknown = sorted({atom.GetSymbol() for atom in mol.GetAtoms()} - set(ELEMENTS))
    if unknown:
        raise DataError(f"{smiles!r} has {', '.join(unknown)}; known are {', '.join(ELEMENTS)}")
    if any(atom.GetFormalCharge() or atom.GetNumRadicalElectrons() for atom in mol.GetAtoms()):
        raise DataError(f"{smiles!r} has a charge or a radical, which can't be read back from distances")
    if len(Chem.GetMolFrags(mol)) > 1:
        raise DataError(f"{smiles!r} is in several pieces")
    return Chem.MolToSmiles(Chem.RemoveHs(mol), isomericSmiles=False)


def molecules(
    smiles: Sequence[str] | SmilesList | None = None,
    *,
    conformers: int = 1,
    seed: int = 0,
    hydrogens: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> MoleculeSet:
    """Conformers of the given molecules, by default of the shipped list.

    ETKDGv3 (Wang et al. 2020) draws ``conformers`` of each, MMFF94 relaxes them. The draws of a molecule depend on
    ``seed`` and its SMILES alone, never on the other molecules. Without ``hydrogens`` only heavy atoms are kept, of
    the same conformers. Molecules for which RDKit finds no conformer or no force field are in ``skipped``.

    Raises :class:`DataError` without RDKit, for SMILES that :func:`canonical` refuses, or when fewer than two are left.

    >>> found = molecules(["C", "CO"])
    >>> tuple(found.positions.shape), found.sizes.tolist(), found.elements
    ((2, 6, 3), [5, 6], ('H', 'C', 'O'))
    """
    need_rdkit()
    if conformers < 1:
        raise DataError(f"at least one conformer is needed, not {conformers}")
    given = smiles.smiles if isinstance(smiles, SmilesList) else smiles
    wanted = tuple(map(canonical, given)) if given is not None else small_molecules()
    skipped = [(f"line {line}", why) for line, why in smiles.skipped] if isinstance(smiles, SmilesList) else []
    places: list[Tensor] = []
    symbols: list[list[str]] = []
    names: list[str] = []
    for number, name in enumerate(wanted):
        try:
            mol = embedded(name, conformers, seed)
        except DataError as error:
            skipped.append((name, str(error)))
            continue
        kept = [atom.GetIdx() for atom in mol.GetAtoms() if hydrogens or atom.GetAtomicNum() > 1]
        for conformer in mol.GetConformers():
            places.append(torch.from_numpy(np.asarray(conformer.GetPositions())[kept]))
            symbols.append([mol.GetAtomWithIdx(index).GetSymbol() for index in kept])
            names.append(name)
        if progress is not None:
            progress(number + 1, len(wanted))
    elements = tuple(element for element in ELEMENTS if any(element in found for found in symbols))
    atoms = max((len(found) for found in symbols), default=1)
    positions = torch.zeros(len(places), atoms, 3)
    kinds = torch.zeros(len(places), atoms, dtype=torch.int64)
    mask = torch.zeros(len(places), atoms, dtype=torch.bool)
    for row, (place, found) in enumerate(zip(places, symbols, strict=True)):
        positions[row, : len(found)] = (place - place.mean(0)).float()
        kinds[row, : len(found)] = torch.tensor([elements.index(symbol) for symbol in found])
        mask[row, : len(found)] = True
    return MoleculeSet(positions, kinds, mask, tuple(names), elements, hydrogens, tuple(skipped))


def embedded(smiles: str, conformers: int = 1, seed: int = 0) -> "Chem.Mol":
    """An RDKit molecule with hydrogens and conformers.

    Raises :class:`DataError` when RDKit finds fewer conformers than wanted, or no force field for the molecule.
    """
    from rdkit import Chem
    from rdkit.Chem import rdDistGeom, rdForceFieldHelpers

    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    settings = rdDistGeom.ETKDGv3()
    digest = hashlib.blake2b(f"{seed}/{smiles}".encode(), digest_size=4).digest()
    settings.randomSeed = int.from_bytes(digest, "little") >> 1  # type: ignore[assignment]  # as RDKit's stubs say
    settings.numThreads = 1  # type: ignore[assignment]
    found = len(rdDistGeom.EmbedMultipleConfs(mol, conformers, settings))
    if found < conformers:
        raise DataError(f"RDKit finds {found} of {conformers} conformers")
    if mol.GetNumAtoms() > 1 and not rdForceFieldHelpers.MMFFHasAllMoleculeParams(mol):
        raise DataError("MMFF94 has no parameters for it")
    rdForceFieldHelpers.MMFFOptimizeMoleculeConfs(mol, numThreads=1, maxIters=2000)
    return mol
