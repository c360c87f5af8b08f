"""Sets of molecules: the shipped list, conformers, lists of one's own."""

import hashlib
import importlib.util
from importlib import resources
from pathlib import Path

import pytest
import torch
from rdkit import Chem

from benchmarks.make_smiles import content, enumerated
from denoscope.data.molecules import (
    DataError,
    MoleculeSet,
    from_joint,
    load_smiles,
    molecules,
    small_molecules,
    to_joint,
)
from denoscope.data.molecules.sets import canonical

DIGEST = "f9f7f2f700f6368a245b03aab71345b3c8ad67d5231d67d459e799b1bf105ffa"


def test_the_shipped_list_is_what_the_grammar_makes() -> None:
    shipped = resources.files("denoscope.data.molecules").joinpath("smiles.txt").read_text("utf-8")
    smaller = content(5)
    assert shipped.startswith(smaller.replace("up to 5", "up to 6"))
    assert smaller.splitlines()[-1] == small_molecules(5)[-1]
    assert small_molecules(4) == tuple(enumerated(4))
    # The whole of it, by the digest of what python -m benchmarks.make_smiles prints: it takes some seconds.
    assert hashlib.sha256(shipped.encode()).hexdigest() == DIGEST


def test_the_shipped_list_covers_what_chemists_know() -> None:
    found = small_molecules()
    assert 1000 < len(found) == len(set(found)) < 2000
    assert {"c1ccccc1", "CC(C)=O", "CC(=O)O", "CCOCC", "C1CCCCC1", "CC#N", "c1cc[nH]c1", "CNC(C)=O", "C#CC"} <= set(
        found
    )
    for smiles in found:
        mol = Chem.MolFromSmiles(smiles)
        assert Chem.MolToSmiles(mol) == smiles
        assert {atom.GetSymbol() for atom in mol.GetAtoms()} <= {"C", "N", "O"}
        assert mol.GetNumHeavyAtoms() <= 6
    with pytest.raises(DataError, match="1 to 6 heavy atoms, not 7"):
        small_molecules(7)


def test_conformers_are_where_rdkit_puts_atoms() -> None:
    found = molecules(["O", "CC", "C=C", "C#C", "CO"])
    assert found.positions.dtype == torch.float32
    assert found.kinds.dtype == torch.int64
    assert found.sizes.tolist() == [3, 8, 6, 4, 6]
    assert found.elements == ("H", "C", "O")
    for row, length in ((1, 1.51), (2, 1.34), (3, 1.20)):  # ethane, ethene, ethyne: MMFF's lengths (Halgren 1996)
        carbons = found.positions[row][found.mask[row] & (found.kinds[row] == 1)]
        assert float((carbons[0] - carbons[1]).norm()) == pytest.approx(length, abs=0.01)
    torch.testing.assert_close(found.positions.sum(1), torch.zeros(5, 3), atol=1e-5, rtol=0)
    assert not bool(found.positions[~found.mask].any())
    assert not bool(found.kinds[~found.mask].any())


def test_conformers_depend_on_seed_and_molecule_alone() -> None:
    both = molecules(["CCCO", "CCNC"], conformers=2, seed=3)
    assert both.names == ("CCCO", "CCCO", "CCNC", "CCNC")
    again = molecules(["CO", "CCNC"], conformers=2, seed=3)
    wanted = both.positions[2:][both.mask[2:]]
    assert torch.equal(again.positions[2:][again.mask[2:]], wanted)
    other = molecules(["CO", "CCNC"], conformers=2, seed=4)
    assert not torch.allclose(other.positions[2:][other.mask[2:]], wanted, atol=1e-2)
    assert not torch.allclose(both.positions[0], both.positions[1], atol=1e-2)


def test_without_hydrogens_heavy_atoms_stay_where_they_are() -> None:
    explicit, implicit = (molecules(["CCO", "CNC=O"], hydrogens=hydrogens) for hydrogens in (True, False))
    assert implicit.elements == ("C", "N", "O")
    assert implicit.sizes.tolist() == [3, 4]
    heavy = explicit.positions[1][explicit.mask[1] & (explicit.kinds[1] > 0)]
    torch.testing.assert_close(torch.cdist(heavy, heavy), torch.cdist(implicit.positions[1], implicit.positions[1]))
    assert float(implicit.positions[1].mean(0).abs().max()) < 1e-6


def test_the_joint_tensor() -> None:
    found = molecules(["C", "CO", "N"])
    z = to_joint(found, position_scale=0.5, kind_scale=0.25)
    assert tuple(z.shape) == (3, 6, 3 + 4)
    assert not bool(z[~found.mask].any())
    torch.testing.assert_close(z[..., 3:].sum(-1), 0.25 * found.mask)
    torch.testing.assert_close(z[..., :3], 0.5 * found.positions)
    noisy = z + 0.1 * torch.rand(z.shape, generator=torch.Generator().manual_seed(0))
    positions, kinds = from_joint(noisy, found.mask, position_scale=0.5)
    assert torch.equal(kinds, found.kinds)
    assert not bool(positions[~found.mask].any())
    assert float((positions - found.positions).abs().max()) <= 0.2 + 1e-6
    with pytest.raises(DataError, match="scales must be positive"):
        to_joint(found, kind_scale=0)


def test_a_list_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.smi"
    path.write_text(
        "\ufeff# mine\nOCC ethanol\n\nC1CC\nCC[O-]\nCCO\nC.C\n[Si]\nC[C@H](N)C(=O)O\nnonsense\nClC(Br)F\n[CH3]\n"
    )
    found = load_smiles(path)
    assert found.smiles == ("CCO", "CC(N)C(=O)O", "FC(Cl)Br")
    assert [line for line, _ in found.skipped] == [4, 5, 6, 7, 8, 10, 12]
    why = dict(found.skipped)
    assert "no molecule that RDKit reads" in why[4]
    assert "charge" in why[5]
    assert why[6] == "the same molecule as line 2"
    assert "several pieces" in why[7]
    assert "has Si; known are H, C" in why[8]
    assert "radical" in why[12]
    assert len(molecules(found).skipped) == 7
    with pytest.raises(DataError, match=r"own\.smi, line 4: 'C1CC' is no molecule"):
        load_smiles(path, bad_lines="fail")


def test_lists_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be read"):
        load_smiles(tmp_path / "none")
    (tmp_path / "one").write_text("CC\nXX\n")
    with pytest.raises(DataError, match=r"holds 1 molecules .* line 2 was skipped"):
        load_smiles(tmp_path / "one")
    with pytest.raises(DataError, match="at least one conformer"):
        molecules(["C", "CC"], conformers=0)
    with pytest.raises(DataError, match="no molecule that RDKit reads"):
        molecules(["C", ""])
    with pytest.raises(DataError, match="1 molecule can't be learnt from"):
        molecules(["C"])


def test_what_does_not_fit_together_is_refused() -> None:
    places, kinds, mask = torch.zeros(2, 3, 3), torch.zeros(2, 3).long(), torch.ones(2, 3).bool()
    MoleculeSet(places, kinds, mask, ("a", "b"), ("C",), True)
    with pytest.raises(DataError, match=r"positions must be \(N, A, 3\)"):
        MoleculeSet(places[..., :2], kinds, mask, ("a", "b"), ("C",), True)
    with pytest.raises(DataError, match=r"kinds must be \(2, 3\)"):
        MoleculeSet(places, kinds[:, :2], mask, ("a", "b"), ("C",), True)
    with pytest.raises(DataError, match="1 names for 2"):
        MoleculeSet(places, kinds, mask, ("a",), ("C",), True)
    with pytest.raises(DataError, match="number 1 elements"):
        MoleculeSet(places, kinds + 1, mask, ("a", "b"), ("C",), True)
    with pytest.raises(DataError, match="an atom in every molecule"):
        MoleculeSet(places, kinds, mask & torch.tensor([[True], [False]]), ("a", "b"), ("C",), True)


def test_without_rdkit_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install denoscope\[molecules\]"):
        canonical("C")
    with pytest.raises(DataError, match=r"pip install denoscope\[molecules\]"):
        molecules(["C", "CC"])
