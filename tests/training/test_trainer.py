"""The training loop: resume bit for bit, moving average by hand, stop on NaN."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from denoscope.training.checkpoints import CheckpointError
from denoscope.training.ema import Ema
from denoscope.training.trainer import TrainerConfig, TrainingError, learning_rate, step_seed, train


def small_net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.BatchNorm1d(8), nn.Linear(8, 1))


def regression(net: nn.Module, generator: torch.Generator) -> Tensor:
    x = torch.randn(16, 4, generator=generator)
    predicted: Tensor = net(x)[:, 0]
    return (predicted - x.sum(1)).square().mean()


class Killed(Exception):
    """Stands for a kill signal between two steps."""


@pytest.mark.parametrize("killed_at", [0, 4, 5, 13, 19])
def test_a_killed_and_resumed_run_equals_the_unbroken_one(tmp_path: Path, killed_at: int) -> None:
    config = TrainerConfig(steps=20, warmup=4, checkpoint_every=5, ema_decay=0.9)
    whole = small_net()
    whole_ema = train(whole, lambda step, g: regression(whole, g), config)

    broken = small_net()

    def dying(step: int, generator: torch.Generator) -> Tensor:
        if step == killed_at:
            raise Killed
        return regression(broken, generator)

    path = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        train(broken, dying, config, path)
    resumed = small_net()  # a new process starts from fresh weights
    seen: list[int] = []
    ema = train(resumed, lambda step, g: regression(resumed, g), config, path, lambda step, loss: seen.append(step))
    assert seen[0] == killed_at // 5 * 5
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
        assert torch.equal(whole_ema.average[name], ema.average[name]), name
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]  # no temporary file stays


def test_a_finished_run_is_not_trained_further(tmp_path: Path) -> None:
    config = TrainerConfig(steps=5, warmup=1)
    net = small_net()
    train(net, lambda step, g: regression(net, g), config, tmp_path / "s")
    before = {name: value.clone() for name, value in net.state_dict().items()}
    train(net, lambda step, g: regression(net, g), config, tmp_path / "s")
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())


def test_ema_by_hand() -> None:
    layer = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(0.0)
    ema = Ema(layer, decay=0.5)
    expected = 0.0
    for update, value in enumerate([1.0, -2.0, 3.0, 5.0]):
        with torch.no_grad():
            layer.weight.fill_(value)
        ema.update()
        decay = min(0.5, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * value
    assert math.isclose(float(ema.average["weight"]), expected, rel_tol=1e-6)
    with ema.applied():
        assert math.isclose(float(layer.weight), expected, rel_tol=1e-6)
    assert float(layer.weight) == 5.0


def test_nan_stops_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    config = TrainerConfig(steps=20, warmup=1, checkpoint_every=5)
    net, path = small_net(), tmp_path / "state.safetensors"
    with pytest.raises(TrainingError, match=r"not finite at step 7; the checkpoint .* is kept"):
        train(net, lambda step, g: regression(net, g) * (math.nan if step == 7 else 1), config, path)
    other = small_net()
    steps: list[int] = []
    train(other, lambda step, g: regression(other, g), config, path, lambda step, loss: steps.append(step))
    assert steps[0] == 5
    assert all(bool(torch.isfinite(value).all()) for value in other.state_dict().values())


def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    net, path = small_net(), tmp_path / "state.safetensors"
    config = TrainerConfig(steps=2, warmup=1)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match="no readable checkpoint"):
        train(net, lambda step, g: regression(net, g), config, path)
    path.unlink()
    train(net, lambda step, g: regression(net, g), config, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="no readable checkpoint"):
        train(net, lambda step, g: regression(net, g), config, path)
    path.unlink()
    other = nn.Linear(3, 1)
    train(other, lambda step, g: other(torch.randn(2, 3, generator=g)).square().mean(), config, path)
    with pytest.raises(CheckpointError, match="another network"):
        train(net, lambda step, g: regression(net, g), config, path)


def test_learning_rate_rises_to_its_peak_and_falls_to_its_floor() -> None:
    config = TrainerConfig(steps=1000, learning_rate=2.0, warmup=100, final_lr_fraction=0.1)
    rates = [learning_rate(config, step) for step in range(1001)]
    assert max(rates) == rates[100] == pytest.approx(2.0)
    assert rates[-1] == pytest.approx(0.2)
    assert all(a < b for a, b in pairwise(rates[:100]))
    assert all(a > b for a, b in pairwise(rates[100:]))


def test_seeds_of_neighbouring_steps_differ_and_are_stable() -> None:
    seeds = {step_seed(0, step) for step in range(1000)} | {step_seed(1, step) for step in range(1000)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert step_seed(0, 0) == step_seed(0, 0)
