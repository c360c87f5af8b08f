"""Scores beside those of the programs that they are named after, on the same files and one random Inception.

PYTHONPATH=src PEERS/python -m benchmarks.parity [-n 24] [--json]

Runs in the peers' environment (torch-fidelity, torchmetrics, clean-fid, pytorch-fid, prdc). The weights are drawn at
random, as nobody's can be had without a network; all load one file. clean-fid's own network is a script that is
downloaded, so that its resizing and distance are held against ours with the network in common.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from denoscope.metrics import frechet_distance, inception_score_splits, kernel_subsets
from denoscope.metrics import prdc as our_prdc
from denoscope.metrics.extraction import Extracted, extract
from denoscope.metrics.extractors.inception import Inception
from denoscope.metrics.extractors.known import extractor
from denoscope.metrics.image_sets import open_images
from denoscope.metrics.protocols import Protocol

SIZES: Final = ((32, 32), (64, 64), (299, 299), (512, 512), (96, 200))
Row = tuple[str, str, str, float, float]
"""Size, peer, metric, theirs, ours."""


def random_weights(path: Path) -> Inception:
    """An Inception whose signal neither dies nor grows, so that features differ from picture to picture."""
    torch.manual_seed(0)
    net = Inception()
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    torch.save(net.state_dict(), path)
    return net


def write_pictures(folder: Path, n: int, size: tuple[int, int], seed: int) -> None:
    """Blots of colour with some grain, as PNG."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for index in range(n):
        coarse = Image.fromarray(rng.integers(0, 256, (6 + seed, 6, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize(size[::-1], Image.Resampling.BICUBIC), np.int64)
        grain = rng.normal(0, 8 + 4 * seed, smooth.shape)
        Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8)).save(folder / f"{index:04d}.png")


def seen(folder: Path, protocol: Protocol, weights: Path) -> dict[str, NDArray[np.float32]]:
    with open_images(folder) as images:
        found: Extracted = extract(
            images, {"inception": (extractor("inception", protocol=protocol, weights=weights), ["pool", "logits"])}
        )
    return found.features["inception"]


def of_torch_fidelity(a: Path, b: Path, size: str, weights: Path) -> list[Row]:
    import torch_fidelity

    told = torch_fidelity.calculate_metrics(
        input1=str(a),
        input2=str(b),
        cuda=False,
        fid=True,
        kid=True,
        isc=True,
        prc=True,
        feature_extractor="inception-v3-compat",
        feature_layer_prc="2048",
        kid_subset_size=16,
        isc_splits=4,
        feature_extractor_weights_path=str(weights),
        verbose=False,
        cache=False,
        samples_shuffle=True,
    )
    ours, theirs = (seen(folder, "tf1", weights) for folder in (a, b))
    kid = kernel_subsets(ours["pool"], theirs["pool"], size=16)
    isc = inception_score_splits(ours["logits"], splits=4)
    near = our_prdc(theirs["pool"], ours["pool"], 3)
    pairs = [
        ("fid", "frechet_inception_distance", frechet_distance(ours["pool"], theirs["pool"])),
        ("kid mean", "kernel_inception_distance_mean", float(kid.mean())),
        ("kid std", "kernel_inception_distance_std", float(kid.std())),
        ("is mean", "inception_score_mean", float(isc.mean())),
        ("is std", "inception_score_std", float(isc.std())),
        ("precision", "precision", near["precision"]),
        ("recall", "recall", near["recall"]),
    ]
    return [(size, "torch-fidelity", name, float(told[key]), value) for name, key, value in pairs]


def of_pytorch_fid(a: Path, b: Path, size: str, weights: Path) -> list[Row]:
    import pytorch_fid.fid_score
    import pytorch_fid.inception

    state = torch.load(weights, weights_only=True)
    pytorch_fid.inception.load_state_dict_from_url = lambda *_, **__: state
    value = pytorch_fid.fid_score.calculate_fid_given_paths([str(a), str(b)], 8, "cpu", 2048, num_workers=0)
    ours, theirs = (seen(folder, "torch", weights)["pool"] for folder in (a, b))
    return [(size, "pytorch-fid", "fid", float(value), frechet_distance(ours, theirs))]


def of_clean_fid(a: Path, b: Path, size: str, weights: Path, net: Inception) -> list[Row]:
    import cleanfid.fid

    def features(batch: Tensor) -> Tensor:
        found: Tensor = net((batch - 128) / 128)["pool"]
        return found

    value = cleanfid.fid.compute_fid(
        str(a),
        str(b),
        mode="clean",
        custom_feat_extractor=features,
        num_workers=0,
        batch_size=8,
        device=torch.device("cpu"),
        verbose=False,
        use_dataparallel=False,
    )
    ours, theirs = (seen(folder, "clean", weights)["pool"] for folder in (a, b))
    return [(size, "clean-fid", "fid", float(value), frechet_distance(ours, theirs))]


def of_torchmetrics(a: Path, b: Path, size: str, weights: Path) -> list[Row]:
    from torchmetrics.image.fid import FrechetInceptionDistance

    metric = FrechetInceptionDistance(2048, feature_extractor_weights_path=str(weights)).set_dtype(torch.float64)
    for folder, real in ((a, False), (b, True)):
        for path in sorted(folder.iterdir()):
            picture = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)[None]
            metric.update(picture, real=real)
    ours, theirs = (seen(folder, "torchmetrics", weights)["pool"] for folder in (a, b))
    return [(size, "torchmetrics", "fid", float(metric.compute()), frechet_distance(ours, theirs))]


def of_prdc() -> list[Row]:
    import prdc

    rng = np.random.default_rng(0)
    real, fake = rng.normal(size=(1500, 64)), rng.normal(size=(1200, 64)) * 0.9 + 0.1
    theirs, ours = prdc.compute_prdc(real, fake, nearest_k=5), our_prdc(real, fake, 5)
    return [("1500, 1200 × 64", "prdc", name, float(theirs[name]), ours[name]) for name in ours]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=24, help="pictures of each set")
    parser.add_argument("--sizes", type=int, default=len(SIZES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = of_prdc()
    with tempfile.TemporaryDirectory() as held:
        weights = Path(held, "inception.pth")
        net = random_weights(weights)
        for size in SIZES[: options.sizes]:
            a, b = (Path(held, f"{size[0]}x{size[1]}", name) for name in "ab")
            write_pictures(a, options.n, size, 0)
            write_pictures(b, options.n, size, 1)
            peers: list[Callable[[Path, Path, str, Path], list[Row]]] = [
                of_torch_fidelity,
                of_pytorch_fid,
                partial(of_clean_fid, net=net),
                of_torchmetrics,
            ]
            for peer in peers:
                rows += peer(a, b, f"{size[0]} × {size[1]}", weights)
    if options.json:
        keys = ("size", "peer", "metric", "theirs", "ours")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
        return
    table = Table("size", "peer", "metric", "theirs", "ours", "relative difference")
    for size_told, peer_name, metric, theirs, ours in rows:
        gap = abs(ours - theirs) / abs(theirs) if theirs else abs(ours)
        table.add_row(size_told, peer_name, metric, f"{theirs:.6g}", f"{ours:.6g}", f"{gap:.1e}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
