"""A small training that tests run in processes of their own; it prints its losses as JSON."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from denoscope.training.draws import Draws
from denoscope.training.trainer import TrainerConfig, train


def network() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Dropout(0.1), nn.Linear(32, 1))


def loss(net: nn.Module, draws: Draws) -> Tensor:
    x = draws.noise(torch.zeros(len(draws.rows), 6))
    predicted: Tensor = net(x)[:, 0]
    return (predicted - x.sum(1)).square()


def run(path: Path, steps: int) -> None:
    """Train on, from whatever checkpoint is there, one checkpoint a step."""
    torch.set_num_threads(1)
    config = TrainerConfig(steps=steps, warmup=3, batch_size=8, checkpoint_every=1, sigma_rels=(0.1,))
    train(network(), loss, config, path)


def losses(steps: int) -> None:
    """Print the losses of a run without dropout (its stream is a process's own), in any number of processes."""
    torch.set_num_threads(1)
    net = network().eval()
    net.train = lambda mode=True: net  # type: ignore[method-assign]
    accelerator = Accelerator(cpu=True)
    seen: list[float] = []
    config = TrainerConfig(steps=steps, warmup=3, batch_size=10, micro_batch=3)
    train(net, loss, config, report=lambda done: seen.append(done.loss), accelerator=accelerator)
    if accelerator.is_main_process:
        print(json.dumps({"processes": accelerator.num_processes, "losses": seen}))


if __name__ == "__main__":
    losses(int(sys.argv[1]))
