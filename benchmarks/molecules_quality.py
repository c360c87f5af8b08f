"""Validity, uniqueness, novelty and stability of generated molecules.

``python -m benchmarks.molecules_quality MODEL [-n 500] [--steps 250] [--json]``; MODEL was made by ``denoscope train
molecules``.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from denoscope.data.molecules import figures, from_joint, read_all
from denoscope.networks import zero_centre
from denoscope.training.recipes import load_trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("-n", type=int, default=500)
    parser.add_argument("--solver", default="ddpm")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    trained = load_trained(options.model)
    details = trained.modality.details
    seeds = range(10**7, 10**7 + options.n)
    drawn, told = trained.sample(seeds, solver=options.solver, steps=options.steps, batch_size=250)
    positions, kinds = from_joint(zero_centre(drawn, told["mask"]), told["mask"])
    elements = [str(element) for element in details["elements"]]
    hydrogens = bool(details["hydrogens"][0])
    readings = read_all(positions, kinds, told["mask"], elements, hydrogens=hydrogens)
    found = figures(readings, {str(name) for name in details["known"]})
    verdicts = Counter(reading.verdict for reading in readings)
    if options.json:
        told_json = {name: getattr(found, name) for name in found.__slots__}
        print(json.dumps(told_json | {"hydrogens": hydrogens, "verdicts": verdicts}))
        return
    atoms = "explicit" if hydrogens else "implicit"
    print(f"{options.n} molecules, {options.solver} with {options.steps} steps, hydrogens {atoms}")
    print(f"validity      {found.valid:.3f} ({found.interval[0]:.3f} to {found.interval[1]:.3f})")
    print(f"uniqueness    {found.unique:.3f} of the valid ones")
    print(f"novelty       {found.novel:.3f} of the different ones")
    if found.stable is not None and found.stable_atoms is not None:
        print(f"stable atoms  {found.stable_atoms:.3f}, stable molecules {found.stable:.3f}")
    print(", ".join(f"{verdict}: {count}" for verdict, count in verdicts.most_common()))


if __name__ == "__main__":
    main()
