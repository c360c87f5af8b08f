"""Train the ``shapes`` feature extractor: ``python -m benchmarks.shapes_extractor --out DIR``."""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from denoscope.data.pictures import to_model_range
from denoscope.data.worlds.shapes import render, sample_scene
from denoscope.metrics.extractors.shapes import KINDS, ShapesNet, labels_of, load_shapes_net
from denoscope.training.allocator import keep_freed_memory
from denoscope.training.draws import Draws
from denoscope.training.trainer import StepResult, TrainerConfig, train


def drawn(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """``n`` pictures ``(n, 3, 64, 64)`` uint8 and their labels ``(n, 41)``."""
    rng = np.random.default_rng(seed)
    scenes = [sample_scene(rng) for _ in range(n)]
    pictures = torch.from_numpy(np.stack([render(scene) for scene in scenes])).permute(0, 3, 1, 2).contiguous()
    return pictures, torch.tensor([labels_of(scene) for scene in scenes], dtype=torch.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    pictures, labels = drawn(options.pictures, 0)

    def loss(net: nn.Module, draws: Draws) -> Tensor:
        rows = draws.indices(len(pictures))
        x = to_model_range(pictures[rows])
        found: Tensor = functional.binary_cross_entropy_with_logits(net(x)["scores"], labels[rows], reduction="none")
        return found.sum(1)

    def report(done: StepResult) -> None:
        if (done.step + 1) % 200 == 0:
            print(f"step {done.step + 1}: loss {done.loss:.4f}", flush=True)

    torch.manual_seed(0)
    net = ShapesNet()
    config = TrainerConfig(
        steps=options.steps, learning_rate=4e-3, warmup=200, weight_decay=0.02, ema_decay=0.995, batch_size=64
    )
    train(net, loss, config, options.out / "checkpoint.safetensors", report).copy_to(net)
    weights = {name: value.half() if value.is_floating_point() else value for name, value in net.state_dict().items()}
    save_file(weights, options.out / "shapes.safetensors")
    net = load_shapes_net(options.out / "shapes.safetensors")
    fresh, truth = drawn(4000, 1)
    with torch.inference_mode():
        scores = torch.cat([net(to_model_range(part))["scores"] for part in torch.split(fresh, 256)])
    right = (scores > 0) == (truth > 0)
    whole = float(right.all(1).float().mean())
    kinds = float(right[:, : len(KINDS)].all(1).float().mean())
    print(json.dumps({"all_labels": whole, "kinds": kinds, "parameters": sum(p.numel() for p in net.parameters())}))


if __name__ == "__main__":
    main()
