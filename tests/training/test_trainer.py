"""The training loop: resume bit for bit, moving average by hand, stop on NaN."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from denoscope.training.checkpoints import CheckpointError
from denoscope.training.draws import Draws, step_seed
from denoscope.training.ema import Ema
from denoscope.training.trainer import TrainerConfig, TrainingError, learning_rate, train


def small_net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))


def regression(net: nn.Module, draws: Draws) -> Tensor:
    x = draws.noise(torch.zeros(len(draws.rows), 4))
    predicted: Tensor = net(x)[:, 0]
    return (predicted - x.sum(1)).square()


class Killed(Exception):
    """Stands for a kill signal between two steps."""


@pytest.mark.parametrize("killed_at", [0, 4, 5, 13, 19])
def test_a_killed_and_resumed_run_equals_the_unbroken_one(tmp_path: Path, killed_at: int) -> None:
    config = TrainerConfig(steps=20, warmup=4, checkpoint_every=5, ema_decay=0.9, batch_size=16)
    whole = small_net()
    whole_ema = train(whole, regression, config)

    def dying(net: nn.Module, draws: Draws) -> Tensor:
        if draws.step == killed_at:
            raise Killed
        return regression(net, draws)

    path = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        train(small_net(), dying, config, path)
    resumed = small_net()  # a new process starts from fresh weights
    seen: list[int] = []
    ema = train(resumed, regression, config, path, lambda done: seen.append(done.step))
    assert seen[0] == killed_at // 5 * 5
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
        assert torch.equal(whole_ema.average[name], ema.average[name]), name
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]  # no temporary file stays


def test_accumulated_parts_learn_what_the_whole_batch_does() -> None:
    """In float64, on a network without batch statistics: any split, the same losses and weights."""

    def linear() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1)).double()

    def loss(net: nn.Module, draws: Draws) -> Tensor:
        x = draws.noise(torch.zeros(len(draws.rows), 4, dtype=torch.float64)) * (1 + draws.stratified()[:, None])
        predicted: Tensor = net(x)[:, 0]
        return (predicted - x.sum(1)).square()

    losses: dict[int | None, list[float]] = {}
    weights: dict[int | None, Tensor] = {}
    for micro_batch in (None, 10, 4, 3, 1):
        config = TrainerConfig(steps=6, warmup=1, batch_size=10, micro_batch=micro_batch)
        losses[micro_batch] = []
        net = linear()
        train(net, loss, config, report=lambda done, seen=losses[micro_batch]: seen.append(done.loss))  # type: ignore[misc]
        weights[micro_batch] = nn.utils.parameters_to_vector(net.parameters())
    for micro_batch in (10, 4, 3, 1):
        assert losses[micro_batch] == pytest.approx(losses[None], rel=1e-6)  # the sum is told in float32
        torch.testing.assert_close(weights[micro_batch], weights[None], rtol=0, atol=1e-10)


def test_training_leaves_the_global_random_stream_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    net = small_net()
    torch.manual_seed(11)
    train(net, regression, TrainerConfig(steps=2, batch_size=4))
    assert torch.equal(torch.rand(3), expected)


def test_a_finished_run_is_not_trained_further(tmp_path: Path) -> None:
    config = TrainerConfig(steps=5, warmup=1, batch_size=4)
    net = small_net()
    train(net, regression, config, tmp_path / "s")
    before = {name: value.clone() for name, value in net.state_dict().items()}
    train(net, regression, config, tmp_path / "s")
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
    config = TrainerConfig(steps=20, warmup=1, checkpoint_every=5, batch_size=4)
    net, path = small_net(), tmp_path / "state.safetensors"
    with pytest.raises(TrainingError, match=r"not finite at step 7; the checkpoint .* is kept"):
        train(net, lambda net, draws: regression(net, draws) * (math.nan if draws.step == 7 else 1), config, path)
    other = small_net()
    steps: list[int] = []
    train(other, regression, config, path, lambda done: steps.append(done.step))
    assert steps[0] == 5
    assert all(bool(torch.isfinite(value).all()) for value in other.state_dict().values())


def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    net, path = small_net(), tmp_path / "state.safetensors"
    config = TrainerConfig(steps=2, warmup=1, batch_size=4)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match="no readable checkpoint"):
        train(net, regression, config, path)
    path.unlink()
    train(net, regression, config, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="no readable checkpoint"):
        train(net, regression, config, path)
    path.unlink()
    other = nn.Linear(3, 1)
    train(other, lambda net, draws: net(torch.randn(2, 3)).square().mean(), config, path)
    with pytest.raises(CheckpointError, match="another network"):
        train(net, regression, config, path)


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
