"""Molecules read back from points in space, and what is to be said of many of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from denoscope.data.errors import DataError
from denoscope.data.molecules.bonds import AROMATIC, bond_orders
from denoscope.data.molecules.chemistry import VALENCES, need_rdkit

if TYPE_CHECKING:
    from rdkit import Chem

Verdict = Literal["valid", "no atoms", "not finite", "several pieces", "impossible valence"]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What was read: an RDKit molecule with one conformer, and its canonical SMILES, or None and ``verdict`` why not.

    ``stable`` of ``atoms`` atoms have exactly the bonds of a neutral atom; None where hydrogens are not among them.
    """

    mol: "Chem.Mol | None"
    smiles: str | None
    verdict: Verdict
    atoms: int
    stable: int | None


def read(
    positions: Tensor, kinds: Tensor, elements: Sequence[str], mask: Tensor | None = None, *, hydrogens: bool = True
) -> Reading:
    """The molecule of atoms at ``positions`` ``(A, 3)`` in Å, of ``kinds`` ``(A,)``, those in the ``mask`` ``(A,)``.

    Bonds follow from distances (:mod:`~denoscope.data.molecules.bonds`). Rings of six with all bonds between double
    and single are aromatic. A molecule is valid when it is in one piece and RDKit sanitises it. As in EDM, an atom with
    too few bonds is valid: RDKit gives it hydrogens (that is what makes reading without ``hydrogens`` possible); with
    ``hydrogens`` among the atoms, ``stable`` counts strictly.

    Raises :class:`DataError` without RDKit, for elements that the table lacks or shapes that don't fit.

    >>> import torch
    >>> water = torch.tensor([[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]])
    >>> found = read(water, torch.tensor([1, 0, 0]), ("H", "O"))
    >>> found.smiles, found.stable
    ('O', 3)
    >>> read(3 * water, torch.tensor([1, 0, 0]), ("H", "O")).verdict
    'several pieces'
    """
    need_rdkit()
    if positions.dim() != 2 or positions.shape[1] != 3 or kinds.shape != positions.shape[:1]:
        raise DataError(
            f"positions (A, 3) and kinds (A,) are needed, not {tuple(positions.shape)}, {tuple(kinds.shape)}"
        )
    if mask is not None:
        positions, kinds = positions[mask.bool()], kinds[mask.bool()]
    where, what = positions.detach().cpu().double().numpy(), kinds.detach().cpu().numpy()
    atoms = len(what)
    if atoms == 0 or not np.isfinite(where).all():
        return Reading(None, None, "no atoms" if atoms == 0 else "not finite", atoms, 0 if hydrogens else None)
    orders = _with_aromatic_rings(where, [elements[kind] for kind in what], bond_orders(where, what, elements))
    wanted = np.array([VALENCES[elements[kind]] for kind in what])
    stable = int((orders.sum(1) == wanted).sum()) if hydrogens else None
    mol = _built(orders, [elements[kind] for kind in what], where)
    if mol is None:
        return Reading(None, None, "impossible valence", atoms, stable)
    from rdkit import Chem

    if len(Chem.GetMolFrags(mol)) > 1:
        return Reading(None, None, "several pieces", atoms, stable)
    return Reading(mol, Chem.MolToSmiles(Chem.RemoveHs(mol), isomericSmiles=False), "valid", atoms, stable)


def read_all(
    positions: Tensor, kinds: Tensor, mask: Tensor, elements: Sequence[str], *, hydrogens: bool = True
) -> tuple[Reading, ...]:
    """:func:`read` for each of N molecules: ``(N, A, 3)``, ``(N, A)``, ``(N, A)``."""
    return tuple(
        read(where, what, elements, there, hydrogens=hydrogens)
        for where, what, there in zip(positions, kinds, mask, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """What is told of ``n`` molecules; each a fraction.

    ``valid`` of all, in one piece and sanitised by RDKit, with its 95 % Wilson interval; ``unique``: different
    molecules among the valid ones; ``novel``: those of the different ones that were not learnt from. Of all atoms
    ``stable_atoms``, of all molecules ``stable`` have exactly the right bonds (EDM, section 5); None without hydrogens.
    A fraction of nothing is nan.
    """

    n: int
    valid: float
    interval: tuple[float, float]
    unique: float
    novel: float
    stable_atoms: float | None
    stable: float | None


def figures(readings: Sequence[Reading], known: Collection[str] = ()) -> Figures:
    """Validity, uniqueness, novelty against the ``known`` canonical SMILES, stability.

    Raises :class:`DataError` for no readings at all.
    """
    from scipy.stats import binomtest

    if not readings:
        raise DataError("there are no molecules to count")
    n = len(readings)
    valid = [reading.smiles for reading in readings if reading.smiles is not None]
    different = set(valid)
    interval = binomtest(len(valid), n).proportion_ci(method="wilson")
    counts = [(reading.stable, reading.atoms) for reading in readings if reading.stable is not None]
    explicit = len(counts) == n
    return Figures(
        n,
        len(valid) / n,
        (float(interval.low), float(interval.high)),
        len(different) / len(valid) if valid else float("nan"),
        len(different - set(known)) / len(different) if different else float("nan"),
        sum(stable for stable, _ in counts) / max(1, sum(atoms for _, atoms in counts)) if explicit else None,
        sum(atoms > 0 and stable == atoms for stable, atoms in counts) / n if explicit else None,
    )


def _with_aromatic_rings(
    where: NDArray[np.float64], symbols: Sequence[str], orders: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Orders with every ring of six whose bonds are of aromatic length alternating, if RDKit finds how."""
    from rdkit import Chem, rdBase

    ranges = AROMATIC | {"-".join(reversed(pair.split("-"))): limits for pair, limits in AROMATIC.items()}
    mol = _joined(np.minimum(orders, 1), symbols)
    rings = []
    for ring in Chem.GetSymmSSSR(mol):
        sides = list(zip(ring, np.roll(ring, -1).tolist(), strict=True))
        limits = [ranges.get(f"{symbols[i]}-{symbols[j]}", (0.0, 0.0)) for i, j in sides]
        lengths = [float(np.linalg.norm(where[i] - where[j])) for i, j in sides]
        if len(ring) == 6 and all(low < length < high for length, (low, high) in zip(lengths, limits, strict=True)):
            rings.append(sides)
    if not rings:
        return orders
    mol = _joined(orders, symbols)
    for i, j in {side for sides in rings for side in sides}:
        bond = mol.GetBondBetweenAtoms(i, j)
        bond.SetBondType(Chem.BondType.AROMATIC)
        bond.SetIsAromatic(True)
        for end in (i, j):
            mol.GetAtomWithIdx(end).SetIsAromatic(True)
    silence = rdBase.BlockLogs()
    try:
        Chem.GetSymmSSSR(mol)
        mol.UpdatePropertyCache(strict=False)
        Chem.Kekulize(mol, clearAromaticFlags=True)
    except Chem.MolSanitizeException:
        return orders
    finally:
        del silence
    found = orders.copy()
    for bond in mol.GetBonds():
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        found[i, j] = found[j, i] = round(bond.GetBondTypeAsDouble())
    return found


def _joined(orders: NDArray[np.int64], symbols: Sequence[str]) -> "Chem.RWMol":
    from rdkit import Chem

    types = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
    mol = Chem.RWMol()
    for symbol in symbols:
        mol.AddAtom(Chem.Atom(symbol))
    for i, j in zip(*np.triu(orders).nonzero(), strict=True):
        mol.AddBond(int(i), int(j), types[int(orders[i, j])])
    return mol


def _built(orders: NDArray[np.int64], symbols: Sequence[str], where: NDArray[np.float64]) -> "Chem.Mol | None":
    from rdkit import Chem, rdBase

    mol = _joined(orders, symbols)
    conformer = Chem.Conformer(len(symbols))
    conformer.SetPositions(where)
    mol.AddConformer(conformer)
    silence = rdBase.BlockLogs()
    fault = Chem.SanitizeMol(mol, catchErrors=True)
    del silence
    return mol.GetMol() if fault == Chem.SanitizeFlags.SANITIZE_NONE else None
