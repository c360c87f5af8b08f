"""Molecules as a modality: positions and kinds of atoms as one tensor, read back by their distances."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from denoscope.data.molecules import (
    Reading,
    draw,
    figures,
    from_joint,
    load_smiles,
    molecules,
    read_all,
    small_molecules,
    to_joint,
    write_sdf,
    write_xyz,
)
from denoscope.networks import zero_centre
from denoscope.training.recipes.config import MoleculeData, RecipeError
from denoscope.training.recipes.modality import Conditions, Details, Examples, Modality


def open_molecules(data: MoleculeData) -> tuple[Examples, Modality, list[str]]:
    """Conformers of a recipe's molecules, ``(N, atoms, 3 + elements)``; and what was skipped.

    Raises :class:`DataError` without RDKit and for a list that can't be read.
    """
    smiles = small_molecules(data.heavy) if data.smiles is None else load_smiles(data.smiles)
    found = molecules(smiles, conformers=data.conformers, seed=data.seed, hydrogens=data.hydrogens)
    joint = to_joint(found)
    details: Details = {
        "elements": list(found.elements),
        "hydrogens": [int(found.hydrogens)],
        "sizes": found.sizes.bincount(minlength=joint.shape[1] + 1).tolist(),
        "known": sorted(set(found.names)),
    }
    skipped = [f"{name}: {reason}" for name, reason in found.skipped]
    return Examples(joint, {"mask": found.mask}), molecule_modality(tuple(joint.shape[1:]), details), skipped


def molecule_modality(shape: tuple[int, ...], details: Details) -> Modality:
    """How molecules are drawn, read back, written and judged.

    ``details`` holds the elements, whether hydrogens are atoms, how many training molecules have each number of atoms,
    and the SMILES that were trained on.

    Raises :class:`RecipeError` when some of it is missing.
    """
    try:
        elements, known = [str(name) for name in details["elements"]], {str(name) for name in details["known"]}
        hydrogens, sizes = bool(details["hydrogens"][0]), torch.tensor([int(n) for n in details["sizes"]]).double()
    except (KeyError, IndexError) as error:
        raise RecipeError(f"the model's folder doesn't say its {error}") from error

    def conditions(seeds: Sequence[int], labels: Tensor | None) -> Conditions:
        # As many atoms as training molecules have, drawn by the sample's own seed.
        counts = [
            int(torch.multinomial(sizes, 1, generator=torch.Generator().manual_seed(seed ^ 0x5EED))) for seed in seeds
        ]
        return {"mask": torch.arange(shape[0])[None] < torch.tensor(counts)[:, None]}

    def readings(samples: Tensor, told: Conditions) -> tuple[Reading, ...]:
        z = zero_centre(samples, told["mask"])
        positions, kinds = from_joint(z, told["mask"])
        return read_all(positions, kinds, told["mask"], elements, hydrogens=hydrogens)

    def picture(samples: Tensor, told: Conditions, columns: int | None) -> Image.Image:
        return draw(readings(samples, told), columns=columns or 8)

    def write(samples: Tensor, told: Conditions, folder: Path) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        positions, kinds = from_joint(zero_centre(samples, told["mask"]), told["mask"])
        write_sdf(folder / "valid.sdf", readings(samples, told))
        write_xyz(folder / "all.xyz", positions, kinds, told["mask"], elements)
        return [folder / "valid.sdf", folder / "all.xyz"]

    def judge(samples: Tensor, told: Conditions) -> dict[str, float]:
        found = figures(readings(samples, told), known)
        named = {"validity": found.valid, "uniqueness": found.unique, "novelty": found.novel}
        if found.stable is not None and found.stable_atoms is not None:
            named |= {"stable_molecules": found.stable, "stable_atoms": found.stable_atoms}
        return named

    return Modality(
        shape=shape,
        classes=(),
        conditions=conditions,
        picture=picture,
        write=write,
        judge=judge,
        noise=lambda noise, told: zero_centre(noise, told["mask"]),
        weight=lambda told: told["mask"].shape[1] / told["mask"].sum(1),
        aligned=False,
        solver="ddpm",
        steps=250,
        details=details,
    )
