"""Time and memory of the distances, beside those that they replace, in turn on the same features.

PYTHONPATH=src PEERS/python -m benchmarks.metric_speed [--part frechet|prdc|whole|large] [--json]

``frechet``: scipy's root of the product of two covariances, 2,048 dimensions. ``prdc``: the package prdc. ``whole``:
torch-fidelity's FID, KID, IS and precision/recall of pictures of 256 × 256, by one random Inception, reading included.
``large``: ours alone, 50,000 × 2,048.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.parity import random_weights, write_pictures
from denoscope.metrics import Moments, frechet_from_moments
from denoscope.metrics import prdc as our_prdc
from denoscope.metrics.evaluation import evaluate
from denoscope.metrics.extraction import extract
from denoscope.metrics.extractors.known import extractor
from denoscope.metrics.image_sets import open_images

Timed = Callable[[], object]


def taking_turns(ours: Timed, theirs: Timed, rounds: int) -> dict[str, float]:
    """Median seconds of each, one after the other."""
    seconds: dict[str, list[float]] = {"ours_s": [], "theirs_s": []}
    for _ in range(rounds):
        for name, call in (("ours_s", ours), ("theirs_s", theirs)):
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    found = {name: median(values) for name, values in seconds.items()}
    return found | {"ratio": found["theirs_s"] / found["ours_s"]}


def features(n: int, width: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, width)) * np.linspace(0.2, 2, width) + 0.1 * seed


def frechet(rounds: int) -> dict[str, float]:
    from scipy.linalg import sqrtm

    a, b = (Moments.of(features(5000, 2048, seed)) for seed in (0, 1))

    def theirs() -> float:
        root = np.real(sqrtm(a.covariance @ b.covariance))
        gap = a.mean - b.mean
        return float(gap @ gap + np.trace(a.covariance + b.covariance - 2 * root))

    return taking_turns(lambda: frechet_from_moments(a, b), theirs, rounds)


def peak(code: str) -> float:
    """MiB that a piece of code takes at most above a Python that has imported what it needs."""
    script = (
        "import resource, numpy as np\nfrom benchmarks.metric_speed import features\n"
        "from denoscope.metrics import prdc as ours\n"
        f"{code}\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(ended.stdout.split()[-1])


def neighbours(n: int, rounds: int) -> dict[str, float]:
    import prdc

    a, b = features(n, 2048, 0), features(n, 2048, 1)
    found = taking_turns(lambda: our_prdc(a, b, 5), lambda: prdc.compute_prdc(a, b, 5), rounds)
    made = f"a, b = features({n}, 2048, 0), features({n}, 2048, 1)\n"
    before = "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
    found["ours_mib"] = peak(f"{made}{before}ours(a, b, 5)")
    found["theirs_mib"] = peak(f"import prdc\n{made}{before}prdc.compute_prdc(a, b, 5)")
    return found


def whole(n: int, rounds: int) -> dict[str, float]:
    import torch_fidelity

    with tempfile.TemporaryDirectory() as held:
        weights, a, b = Path(held, "inception.pth"), Path(held, "a"), Path(held, "b")
        random_weights(weights)
        for seed, folder in enumerate((a, b)):
            write_pictures(folder, n, (256, 256), seed)

        def ours() -> None:
            wanted = {"inception": (extractor("inception", weights=weights), ["pool", "logits"])}
            seen = []
            for folder in (a, b):
                with open_images(folder) as images:
                    seen.append(extract(images, wanted))
            evaluate(seen[0], seen[1], ["fid", "kid", "is", "prdc"])

        def theirs() -> None:
            torch_fidelity.calculate_metrics(
                input1=str(a),
                input2=str(b),
                cuda=False,
                fid=True,
                kid=True,
                isc=True,
                prc=True,
                feature_extractor="inception-v3-compat",
                feature_layer_prc="2048",
                kid_subset_size=min(1000, n),
                feature_extractor_weights_path=str(weights),
                verbose=False,
                cache=False,
            )

        return taking_turns(ours, theirs, rounds)


def large() -> dict[str, float]:
    a, b = features(50_000, 2048, 0).astype(np.float32), features(50_000, 2048, 1).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    our_prdc(a, b, 5)
    seconds = time.perf_counter() - start
    return {"ours_s": seconds, "ours_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("frechet", "prdc", "whole", "large"), default="frechet")
    parser.add_argument("-n", type=int, help="features or pictures of each set")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.part == "frechet":
        found = frechet(options.rounds)
    elif options.part == "prdc":
        found = neighbours(options.n or 10_000, options.rounds)
    elif options.part == "whole":
        found = whole(options.n or 2000, options.rounds)
    else:
        found = large()
    print(json.dumps({"settings": vars(options), **found}, indent=2) if options.json else found)


if __name__ == "__main__":
    main()
