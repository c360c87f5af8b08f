"""How good a model of Fashion-MNIST is, by solver and number of steps.

``python -m benchmarks.fashion_quality MODEL [-n 1000] [--out DIR]`` samples a model with classes that ``denoscope train
fashion-mnist`` made, and compares the pictures with the test set in the features of the extractor ``fashion``. Sampled
sets are kept in DIR, so a stopped call goes on.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from denoscope.data.pictures import fashion_mnist, from_model_range
from denoscope.data.pictures.known import FASHION_FOLDER
from denoscope.metrics import Interval, difference_interval, frechet_distance, subsampled_interval
from denoscope.metrics.diversity import rms_pairwise_distance
from denoscope.metrics.extractors.fashion import FashionExtractor
from denoscope.training.allocator import keep_freed_memory
from denoscope.training.recipes import Trained, load_trained

Array = NDArray[np.float64]
BLOCK = 50


@dataclass(frozen=True, slots=True)
class Quality:
    """What is measured of a set of pictures; ``cpu_seconds`` is None for pictures that weren't sampled."""

    frechet: Interval
    feature_distance: float
    perceptual_distance: float
    class_accuracy: float
    cpu_seconds: float | None


def distance(sets: Sequence[Array]) -> float:
    return frechet_distance(sets[0], sets[1])


def sampled(trained: Trained, solver: str, steps: int, n: int, path: Path, first_seed: int) -> tuple[Tensor, float]:
    """``n`` pictures uint8, classes in turn, and the seconds that they took; block by block, each kept at once."""
    parts: list[Tensor] = []
    seconds = 0.0
    path.mkdir(parents=True, exist_ok=True)
    for start in range(0, n, BLOCK):
        file = path / f"{start:05d}.safetensors"
        if not file.is_file():
            clock = time.process_time()
            seeds = range(first_seed + start, first_seed + min(start + BLOCK, n))
            labels = torch.tensor([(start + index) % 10 for index in range(len(seeds))])
            drawn, _ = trained.sample(seeds, labels, solver=solver, steps=steps, batch_size=BLOCK)
            taken = {"seconds": str(time.process_time() - clock)}
            save_file({"pictures": from_model_range(drawn)}, file, metadata=taken)
        with safe_open(file, framework="pt") as opened:
            parts.append(opened.get_tensor("pictures"))
            seconds += float(opened.metadata()["seconds"])
    return torch.cat(parts), seconds


def within_class(extractor: FashionExtractor, pictures: Tensor, labels: Tensor) -> float:
    """Mean perceptual distance between neighbours of one class, in the order in which they come."""
    gaps = []
    for label in range(10):
        of_class = pictures[labels == label]
        gaps.append(extractor.perceptual_distance(of_class[:-1], of_class[1:]))
    return float(np.concatenate(gaps).mean())


def balanced(labels: Tensor, n: int, seed: int) -> Tensor:
    """``n`` rows, each class as often as the next, drawn without replacement."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    rows = [order[labels[order] == label][: -(-n // 10)] for label in range(10)]
    return torch.stack(rows, 1).flatten()[:n]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--sets", default="ddpm-1000,ddim-50,dpmpp_2m-15")
    parser.add_argument("--out", type=Path, default=Path("fashion-quality"))
    parser.add_argument("--folder", type=Path, default=FASHION_FOLDER)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    n = options.n
    extractor, trained = FashionExtractor.load(), load_trained(options.model)
    training, test = fashion_mnist("train", options.folder), fashion_mnist("test", options.folder)
    assert training.labels is not None
    assert test.labels is not None
    reference = extractor.features(test.pictures)
    rows = balanced(training.labels, n, seed=1)
    sets: dict[str, tuple[Tensor, Tensor, float | None]] = {
        "training pictures": (training.pictures[rows], training.labels[rows], None)
    }
    for index, name in enumerate(options.sets.split(",")):
        solver, _, steps = name.rpartition("-")
        pictures, seconds = sampled(trained, solver, int(steps), n, options.out / name, 10**6 * (index + 1))
        sets[name] = pictures, torch.arange(n) % 10, seconds
    features = {name: extractor.features(pictures) for name, (pictures, _, _) in sets.items()}
    results = {
        name: Quality(
            frechet=subsampled_interval([reference, features[name]], distance),
            feature_distance=rms_pairwise_distance(features[name]),
            perceptual_distance=within_class(extractor, pictures, labels),
            class_accuracy=float((extractor.labels(pictures) == labels).double().mean()),
            cpu_seconds=seconds,
        )
        for name, (pictures, labels, seconds) in sets.items()
    }
    checks = _checks(results, features, reference)
    if options.json:
        print(json.dumps({"n": n, "sets": {name: asdict(row) for name, row in results.items()}, "checks": checks}))
        return
    print(f"{'set':20}{'n':>6}{'Fréchet distance (90 %)':>32}{'pairs':>8}{'look':>8}{'class':>8}{'CPU s':>9}")
    for name, row in results.items():
        told = "{:.4f} ({:.4f} to {:.4f})".format(*row.frechet)
        taken = "" if row.cpu_seconds is None else f"{row.cpu_seconds:.1f}"
        print(
            f"{name:20}{n:>6}{told:>32}{row.feature_distance:>8.3f}{row.perceptual_distance:>8.3f}"
            f"{row.class_accuracy:>8.3f}{taken:>9}"
        )
    for name, told in checks.items():
        print(f"{name}: {told}")


def _checks(results: dict[str, Quality], features: dict[str, Array], reference: Array) -> dict[str, str]:
    """What is claimed of few steps, where these sets were asked for."""
    checks: dict[str, str] = {}
    slow, ddim, fast = (results.get(name) for name in ("ddpm-1000", "ddim-50", "dpmpp_2m-15"))
    if slow is not None and ddim is not None:
        inside = slow.frechet.low <= ddim.frechet.value <= slow.frechet.high
        checks["DDIM-50 inside DDPM-1000's interval"] = f"{inside}"
        if slow.cpu_seconds is not None and ddim.cpu_seconds is not None:
            checks["DDPM-1000's time over DDIM-50's"] = f"{slow.cpu_seconds / ddim.cpu_seconds:.1f}"
    if fast is not None and ddim is not None:
        gap = difference_interval([reference, features["dpmpp_2m-15"]], [reference, features["ddim-50"]], distance)
        checks["DPM++2M-15 minus DDIM-50"] = str(gap)
    return checks


if __name__ == "__main__":
    main()
