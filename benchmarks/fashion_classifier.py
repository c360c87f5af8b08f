"""Train the ``fashion`` feature extractor: ``python -m benchmarks.fashion_classifier --out DIR [--folder DATA]``."""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from denoscope.data.pictures import fashion_mnist, to_model_range
from denoscope.data.pictures.known import FASHION_FOLDER
from denoscope.metrics.extractors.fashion import FashionExtractor, FashionNet
from denoscope.training.allocator import keep_freed_memory
from denoscope.training.draws import Draws
from denoscope.training.trainer import StepResult, TrainerConfig, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=FASHION_FOLDER)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    training, test = fashion_mnist("train", options.folder), fashion_mnist("test", options.folder)
    assert training.labels is not None
    assert test.labels is not None
    labels = training.labels

    def loss(net: nn.Module, draws: Draws) -> Tensor:
        rows = draws.indices(len(training))
        x = to_model_range(training.pictures[rows])
        x = torch.where((draws.uniform() < 0.5)[:, None, None, None], x.flip(-1), x)
        return functional.cross_entropy(net(x), labels[rows], reduction="none", label_smoothing=0.05)

    def report(done: StepResult) -> None:
        if (done.step + 1) % 200 == 0:
            print(f"step {done.step + 1}: loss {done.loss:.4f}", flush=True)

    torch.manual_seed(0)
    net = FashionNet()
    config = TrainerConfig(
        steps=options.steps, learning_rate=4e-3, warmup=200, weight_decay=0.05, ema_decay=0.995, batch_size=128
    )
    train(net, loss, config, options.out / "checkpoint.safetensors", report).copy_to(net)
    weights = {name: value.half() if value.is_floating_point() else value for name, value in net.state_dict().items()}
    save_file(weights, options.out / "fashion.safetensors")
    extractor = FashionExtractor.load(options.out / "fashion.safetensors")
    right = int((extractor.labels(test.pictures) == test.labels).sum())
    print(json.dumps({"test_accuracy": right / len(test), "parameters": sum(p.numel() for p in net.parameters())}))


if __name__ == "__main__":
    main()
