"""Which metric sees which fault? Known distortions of growing strength, in sets of the shapes world or Fashion-MNIST.

python -m benchmarks.metric_distortions [--set shapes|fashion] [-n 1000] [--json]
"""

import argparse
import json
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from denoscope.data.pictures import fashion_mnist
from denoscope.data.worlds.shapes import render, sample_scene
from denoscope.metrics.evaluation import evaluate
from denoscope.metrics.extraction import Extracted, extract
from denoscope.metrics.extractors.known import extractor
from denoscope.metrics.image_sets import ImageSet

Pixels = NDArray[np.uint8]
METRICS: Final = ("fid", "kid", "is", "prdc", "memorization", "vendi")


def blurred(pictures: list[Pixels], _: NDArray[np.int64], __: list[Pixels], level: float) -> list[Pixels]:
    return [np.asarray(Image.fromarray(one).filter(ImageFilter.GaussianBlur(level))) for one in pictures]


def noisy(pictures: list[Pixels], _: NDArray[np.int64], __: list[Pixels], level: float) -> list[Pixels]:
    rng = np.random.default_rng(7)
    return [(one + rng.normal(0, level, one.shape)).clip(0, 255).round().astype(np.uint8) for one in pictures]


def without_classes(pictures: list[Pixels], kinds: NDArray[np.int64], _: list[Pixels], level: float) -> list[Pixels]:
    """Of the classes, so many at the end are left out; the set gets smaller."""
    left = int(kinds.max()) + 1 - int(level)
    return [one for one, kind in zip(pictures, kinds, strict=True) if kind < left]


def copies(pictures: list[Pixels], _: NDArray[np.int64], training: list[Pixels], level: float) -> list[Pixels]:
    """A share of the pictures are training pictures with a little noise."""
    count = round(level * len(pictures))
    near = noisy(training[:count], np.zeros(0, np.int64), [], 2.0)
    return [*near, *pictures[count:]]


def collapsed(pictures: list[Pixels], _: NDArray[np.int64], __: list[Pixels], level: float) -> list[Pixels]:
    """All pictures are among 2 ** (8 − level) ones, with a little noise."""
    modes = pictures[: 2 ** (8 - int(level))]
    return noisy([modes[index % len(modes)] for index in range(len(pictures))], np.zeros(0, np.int64), [], 2.0)


Distort = Callable[[list[Pixels], NDArray[np.int64], list[Pixels], float], list[Pixels]]
DISTORTIONS: Final[dict[str, tuple[Distort, tuple[float, ...]]]] = {
    "blur": (blurred, (0.5, 1, 1.5, 2)),
    "noise": (noisy, (4, 8, 16, 32)),
    "dropped classes": (without_classes, (1, 2, 3, 5)),
    "training copies": (copies, (0.25, 0.5, 0.75, 1)),
    "mode collapse": (collapsed, (0, 2, 4, 5)),
}


def drawn(name: str, n: int, seed: int) -> tuple[list[Pixels], NDArray[np.int64]]:
    """Pictures and the class of each: Fashion-MNIST's, or the colour of the first object."""
    if name == "fashion":
        whole = fashion_mnist("train" if seed == 0 else "test")
        assert whole.labels is not None
        rows = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))[:n]
        pixels = whole.pictures[rows].expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
        return list(pixels), whole.labels[rows].numpy()
    rng = np.random.default_rng(seed)
    scenes = [sample_scene(rng) for _ in range(n)]
    colours = sorted({scene.things[0].colour for scene in scenes})
    return [render(scene) for scene in scenes], np.array([colours.index(scene.things[0].colour) for scene in scenes])


def seen(pictures: list[Pixels], features: str) -> Extracted:
    images = ImageSet(features, tuple(map(str, range(len(pictures)))), lambda index: pictures[index])
    return extract(images, {features: (extractor(features), ["pool", "logits"])})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=("shapes", "fashion"), default="shapes")
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training, _ = drawn(options.set, options.n, 0)
    fresh, kinds = drawn(options.set, options.n, 1)
    reference = seen(training, options.set)

    def scores(pictures: list[Pixels]) -> dict[str, float]:
        found = evaluate(seen(pictures, options.set), reference, METRICS, options.set)
        return {score.name: score.value for score in found}

    plain = scores(fresh)
    rows = {"none": [plain]}
    for name, (distort, levels) in DISTORTIONS.items():
        rows[name] = [scores(distort(fresh, kinds, training, level)) for level in levels]
    if options.json:
        print(json.dumps({"settings": vars(options), "scores": rows}, indent=2))
        return
    table = Table("distortion", *plain, title=f"{options.set}, {options.n} pictures: least … most; rank correlation")
    for name, found in rows.items():
        cells = []
        for metric in plain:
            values = [plain[metric], *(one[metric] for one in found)] if name != "none" else [plain[metric]]
            if len(values) == 1:
                cells.append(f"{values[0]:.3g}")
                continue
            rank = float(spearmanr(range(len(values)), values).statistic)
            cells.append(f"{values[1]:.3g} … {values[-1]:.3g}; {rank:+.1f}")
        table.add_row(name, *cells)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
