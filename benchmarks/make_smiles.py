"""The shipped list of small molecules, made from nothing: every molecule that a small grammar allows.

    python -m benchmarks.make_smiles > src/denoscope/data/molecules/smiles.txt

Molecules grow by single steps from C, N and O: hang a new atom on a free valence by a single, double or triple bond,
or close a ring with a single bond. A step is undone when what comes out holds one of :data:`FORBIDDEN`, and from what
has grown, what would fall apart in water is left out (:data:`UNSTABLE`). RDKit sanitises every molecule.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import typer
from rdkit import Chem, rdBase

ELEMENTS: Final = ("C", "N", "O")
ORDERS: Final = (Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE)
FORBIDDEN: Final[Mapping[str, str]] = {
    "N or O bonded to N or O": "[#7,#8]~[#7,#8]",
    "two double bonds at one atom": "*=*=*",
    "a triple bond in a ring": "*#;@*",
    "a double bond in or at a ring of three": "[r3]=*",
    "a double bond in a ring of four": "[r4]=;@[r4]",
    "an atom in two rings": "[R2]",
    "neighbouring triple bonds": "*#*-*#*",
}
UNSTABLE: Final[Mapping[str, str]] = {
    "OH at a C=C or C=N": "[OX2H]C=[C,N]",
    "NH at a C=C": "[NX3;!H0]C=C",
    "OH or NH at an aromatic ring of five": "[OX2H,NX3;!H0;!R]~[r5]:[*]",
    "OH at a C#C, N at a C#C or C#N": "[OX2H,#7]-C#*",
    "two of N and O at one sp3 carbon": "[CX4]([#7,#8])[#7,#8]",
    "N that is bonded to C=C twice over": "C=CNC=C",
    "a carbamic or carbonic acid": "[OX2H]C(=O)[N,O]",
    "HN=C": "[NX2;H]=C",
}
HEAD: Final = """\
# Small organic molecules of C, N and O, up to {heavy} heavy atoms: one canonical SMILES of RDKit a line.
# Made by python -m benchmarks.make_smiles, which grows every molecule by single steps: a new atom on a free valence
# (single, double, triple bond), or a ring closed. No database was used. Not allowed on the way:
{forbidden}
# Left out at the end:
{unstable}
"""


def patterns(named: Mapping[str, str]) -> list[Chem.Mol]:
    """The SMARTS, compiled."""
    return [Chem.MolFromSmarts(smarts) for smarts in named.values()]


def grown(smiles: str, new_atom: bool, forbidden: list[Chem.Mol]) -> Iterator[str]:
    """Every allowed molecule with one atom more, or with one ring closed."""
    mol = Chem.MolFromSmiles(smiles)
    Chem.Kekulize(mol, clearAromaticFlags=True)
    free = [atom.GetTotalNumHs() for atom in mol.GetAtoms()]
    steps: list[Chem.RWMol] = []
    for at, hydrogens in enumerate(free):
        if new_atom:
            for element, order in itertools.product(ELEMENTS, ORDERS[:hydrogens]):
                steps.append(Chem.RWMol(mol))
                steps[-1].AddBond(at, steps[-1].AddAtom(Chem.Atom(element)), order)
        else:
            for other in range(at):
                if hydrogens and free[other] and mol.GetBondBetweenAtoms(at, other) is None:
                    steps.append(Chem.RWMol(mol))
                    steps[-1].AddBond(at, other, Chem.BondType.SINGLE)
    for step in steps:
        for atom in step.GetAtoms():
            atom.SetNumExplicitHs(0)
            atom.SetNoImplicit(False)
        if Chem.SanitizeMol(step, catchErrors=True) == Chem.SanitizeFlags.SANITIZE_NONE and not _holds(step, forbidden):
            yield Chem.MolToSmiles(step)


def enumerated(heavy: int) -> list[str]:
    """All molecules up to ``heavy`` heavy atoms: the smaller first, then by the alphabet.

    >>> enumerated(2)
    ['C', 'N', 'O', 'C#C', 'C#N', 'C=C', 'C=O', 'CC', 'CN', 'CO']
    """
    forbidden, unstable = patterns(FORBIDDEN), patterns(UNSTABLE)
    found: list[str] = []
    layer = set(ELEMENTS)
    silence = rdBase.BlockLogs()  # steps that RDKit refuses are no news
    for size in range(1, heavy + 1):
        if size > 1:
            layer = {larger for smiles in layer for larger in grown(smiles, True, forbidden)}
            fresh = layer
            while fresh:  # a ring at a time, until no more can be closed
                fresh = {closed for smiles in fresh for closed in grown(smiles, False, forbidden)} - layer
                layer = layer | fresh
        found += sorted(smiles for smiles in layer if not _holds(Chem.MolFromSmiles(smiles), unstable))
    del silence
    return found


def _holds(mol: Chem.Mol, wanted: list[Chem.Mol]) -> bool:
    return any(mol.HasSubstructMatch(pattern) for pattern in wanted)


def content(heavy: int) -> str:
    """The whole file."""
    forbidden, unstable = (
        "\n".join(f"#   {name}: {smarts}" for name, smarts in named.items()) for named in (FORBIDDEN, UNSTABLE)
    )
    head = HEAD.format(heavy=heavy, forbidden=forbidden, unstable=unstable)
    return head + "\n".join(enumerated(heavy)) + "\n"


def main(heavy: Annotated[int, typer.Option(help="Heavy atoms at most.")] = 6) -> None:
    """Print the list."""
    print(content(heavy), end="")


if __name__ == "__main__":
    typer.run(main)
