"""Molecules read back from points in space, counted, drawn and written."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rdkit import Chem

from denoscope.data.molecules import (
    DataError,
    MoleculeSet,
    Reading,
    draw,
    draw_clouds,
    figures,
    molecules,
    read,
    read_all,
    small_molecules,
    write_sdf,
    write_xyz,
)
from denoscope.data.molecules.bonds import bond_orders
from denoscope.data.molecules.sets import canonical


@pytest.fixture(scope="module")
def some() -> MoleculeSet:
    return molecules(small_molecules()[::12], seed=1)


def without_hydrogens(found: MoleculeSet) -> MoleculeSet:
    mask = found.mask & (found.kinds != found.elements.index("H"))
    return MoleculeSet(found.positions, found.kinds, mask, found.names, found.elements, False)


@pytest.mark.parametrize("hydrogens", [True, False])
def test_conformers_are_read_back_as_the_same_molecules(some: MoleculeSet, hydrogens: bool) -> None:
    found = some if hydrogens else without_hydrogens(some)
    readings = read_all(found.positions, found.kinds, found.mask, found.elements, hydrogens=hydrogens)
    right = sum(reading.smiles == name for reading, name in zip(readings, found.names, strict=True)) / len(found)
    print(f"read back, hydrogens {hydrogens}: {right:.4f} of {len(found)}")
    assert right >= 0.97


def test_aromatic_rings_of_six() -> None:
    names = (
        "c1ccccc1",
        "c1ccncc1",
        "c1ccc2ccccc2c1",
        "c1ncncn1",
        "Cc1cccnc1",
        "O=C(O)c1ccccc1",
        "C1=CCCC=C1",
        "C1CCCCC1",
    )
    found = molecules(names)
    for hydrogens, cloud in ((True, found), (False, without_hydrogens(found))):
        readings = read_all(cloud.positions, cloud.kinds, cloud.mask, cloud.elements, hydrogens=hydrogens)
        assert [reading.smiles for reading in readings] == [canonical(name) for name in names]
        if hydrogens:
            assert all(reading.stable == reading.atoms for reading in readings)


def test_bonds_agree_with_the_published_thresholds() -> None:
    pairs = np.array([[0, 0, 0], [1, 0, 0]], float)

    def order(first: str, second: str, length: float) -> int:
        return int(bond_orders(pairs * length, np.array([0, 1]), (first, second))[0, 1])

    # Hoogeboom et al. 2022: C-C 154 + 10, C=C 134 + 5, C#C 120 + 3 pm; O-H 96 + 10; C=O 120 + 5; no N#O.
    for length, wanted in ((1.65, 0), (1.63, 1), (1.40, 1), (1.38, 2), (1.24, 2), (1.22, 3)):
        assert order("C", "C", length) == wanted
    assert (order("O", "H", 1.05), order("H", "O", 1.07)) == (1, 0)
    assert (order("C", "O", 1.24), order("O", "C", 1.26), order("N", "O", 1.0)) == (2, 1, 2)
    with pytest.raises(DataError, match="bonds of Xe are not known"):
        bond_orders(pairs, np.array([0, 0]), ("Xe",))


def test_exploded_and_squeezed_clouds_are_invalid(some: MoleculeSet) -> None:
    large = torch.arange(len(some))[some.sizes > 4]
    kinds, mask = some.kinds[large], some.mask[large]
    exploded = read_all(3 * some.positions[large], kinds, mask, some.elements)
    assert {reading.verdict for reading in exploded} == {"several pieces"}
    assert all(reading.mol is None and reading.smiles is None for reading in exploded)
    assert figures(exploded).valid == 0
    assert math.isnan(figures(exploded).unique)
    squeezed = read_all(0.4 * some.positions[large], kinds, mask, some.elements)
    assert {reading.verdict for reading in squeezed} == {"impossible valence"}
    noise = torch.randn(some.positions.shape, generator=torch.Generator().manual_seed(0))
    shaken = read_all(some.positions + noise, some.kinds, some.mask, some.elements)
    assert figures(shaken).valid < 0.05


def test_two_molecules_far_apart_are_no_molecule(some: MoleculeSet) -> None:
    methane = molecules(["C", "CC"])
    places = torch.cat([methane.positions[0, :5], methane.positions[0, :5] + 6])
    kinds = methane.kinds[0, :5].repeat(2)
    found = read(places, kinds, methane.elements)
    assert (found.verdict, found.stable, found.atoms) == ("several pieces", 10, 10)
    assert read(places[:5], kinds[:5], methane.elements).smiles == "C"


def test_a_missing_hydrogen_is_valid_but_not_stable() -> None:
    ethane = molecules(["CC", "C"])
    mask = ethane.mask[0].clone()
    mask[7] = False
    found = read(ethane.positions[0], ethane.kinds[0], ethane.elements, mask)
    assert (found.smiles, found.stable, found.atoms) == ("CC", 6, 7)


def test_no_atoms_and_numbers_that_are_not_finite() -> None:
    assert read(torch.zeros(0, 3), torch.zeros(0).long(), ("C",)).verdict == "no atoms"
    assert read(torch.full((2, 3), torch.nan), torch.zeros(2).long(), ("C",)).verdict == "not finite"
    with pytest.raises(DataError, match=r"positions \(A, 3\)"):
        read(torch.zeros(2, 2), torch.zeros(2).long(), ("C",))


def test_figures() -> None:
    def said(smiles: str | None, stable: int | None) -> Reading:
        return Reading(None, smiles, "valid" if smiles else "several pieces", 5, stable)

    readings = [said("C", 5), said("C", 5), said("CO", 4), said(None, 0)]
    found = figures(readings, {"C"})
    assert (found.n, found.valid, found.unique, found.novel) == (4, 0.75, 2 / 3, 0.5)
    assert (found.stable_atoms, found.stable) == (14 / 20, 0.5)
    z, p, n = 1.959963984540054, 0.75, 4  # Wilson 1927
    middle, half = (p + z**2 / 8) / (1 + z**2 / n), z * math.sqrt(p * (1 - p) / n + z**2 / 64) / (1 + z**2 / n)
    assert found.interval == pytest.approx((middle - half, middle + half))
    implicit = figures([said("C", None)])
    assert (implicit.stable_atoms, implicit.stable) == (None, None)
    with pytest.raises(DataError, match="no molecules"):
        figures([])


def test_pictures(some: MoleculeSet) -> None:
    readings = read_all(some.positions[:3], some.kinds[:3], some.mask[:3], some.elements)
    sheet = draw([*readings, None], columns=2, size=100)
    assert (sheet.mode, sheet.size) == ("RGB", (200, 200))
    cells = [np.asarray(sheet.crop((x, y, x + 100, y + 100))) for y in (0, 100) for x in (0, 100)]
    assert all((cell < 200).any() for cell in cells)
    assert not np.array_equal(cells[1], cells[2])
    clouds = draw_clouds(some.positions[:3], some.kinds[:3], some.mask[:3], some.elements, columns=3, size=80)
    assert clouds.size == (240, 80)
    alone = Image.new("RGB", (80, 80), (255, 255, 255))
    assert clouds.crop((0, 0, 80, 80)).tobytes() != alone.tobytes()
    with pytest.raises(DataError, match="no molecules to draw"):
        draw([])
    with pytest.raises(DataError, match="columns and size"):
        draw([None], columns=0)
    with pytest.raises(DataError, match="not finite"):
        draw_clouds(torch.full((1, 1, 3), torch.inf), torch.zeros(1, 1).long(), torch.ones(1, 1).bool(), ("C",))


def test_files_that_other_programs_read(some: MoleculeSet, tmp_path: Path) -> None:
    places = some.positions.clone()
    places[1] *= 3
    readings = read_all(places, some.kinds, some.mask, some.elements)
    valid = [number for number, reading in enumerate(readings) if reading.mol is not None]
    assert write_sdf(tmp_path / "a.sdf", readings) == len(valid) < len(some)
    mols = list(Chem.SDMolSupplier(str(tmp_path / "a.sdf"), removeHs=False))
    assert [Chem.MolToSmiles(Chem.RemoveHs(mol), isomericSmiles=False) for mol in mols] == [
        some.names[number] for number in valid
    ]
    assert mols[5].GetProp("_Name") == some.names[valid[5]]
    place = some.positions[valid[5]][some.mask[valid[5]]].numpy()
    np.testing.assert_allclose(mols[5].GetConformer().GetPositions(), place, atol=1e-4)
    write_xyz(tmp_path / "a.xyz", some.positions, some.kinds, some.mask, some.elements)
    first = "\n".join((tmp_path / "a.xyz").read_text().splitlines()[: int(some.sizes[0]) + 2])
    mol = Chem.MolFromXYZBlock(first + "\n")
    np.testing.assert_allclose(mol.GetConformer().GetPositions(), some.positions[0][some.mask[0]].numpy(), atol=1e-5)
