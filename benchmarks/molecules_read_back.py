"""How many conformers of the shipped molecules are read back from their positions as the same molecule.

python -m benchmarks.molecules_read_back
python -m benchmarks.molecules_read_back --conformers 3 --json
"""

import json
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from denoscope.data.molecules import figures, molecules, read_all, small_molecules


def measure(heavy: int, conformers: int, seed: int) -> list[dict[str, object]]:
    """With and without hydrogens: the share that is read back, what is valid and stable, and what is read wrongly."""
    rows: list[dict[str, object]] = []
    for hydrogens in (True, False):
        found = molecules(small_molecules(heavy), conformers=conformers, seed=seed, hydrogens=hydrogens)
        readings = read_all(found.positions, found.kinds, found.mask, found.elements, hydrogens=hydrogens)
        wrong = [name for name, said in zip(found.names, readings, strict=True) if said.smiles != name]
        told = figures(readings, found.names)
        rows.append(
            {
                "hydrogens": hydrogens,
                "n": len(found),
                "same": 1 - len(wrong) / len(found),
                "valid": told.valid,
                "stable": told.stable,
                "spread": float(found.positions[found.mask].std()),
                "wrong": " ".join(sorted(set(wrong))),
            }
        )
    return rows


def main(
    heavy: Annotated[int, typer.Option(help="Heavy atoms at most.")] = 6,
    conformers: int = 1,
    seed: int = 0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Read every conformer back."""
    torch.set_num_threads(1)
    rows = measure(heavy, conformers, seed)
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("hydrogens", "n", "same molecule", "valid", "stable", "spread in Å")
    for row in rows:
        table.add_row(
            *(
                f"{row[key]:.4f}" if isinstance(row[key], float) else str(row[key])
                for key in ("hydrogens", "n", "same", "valid", "stable", "spread")
            )
        )
    Console().print(table, escape(f"read wrongly: {rows[0]['wrong']}"))


if __name__ == "__main__":
    typer.run(main)
