"""Equivariance, masks, and that the network can learn."""

import pytest
import scipy.spatial.transform
import torch
from torch import Tensor

from denoscope.networks.egnn import EGNN, EGNNConfig, centred


def network() -> EGNN:
    torch.manual_seed(0)
    net = EGNN(EGNNConfig(features=4, hidden=16, layers=3)).double()
    for layer in net.layers:  # of ordinary size, or coordinates would hardly move
        torch.nn.init.normal_(layer.pull[-1].weight, std=1.0)  # type: ignore[index, union-attr]
    return net


def cloud(n: int = 6) -> Tensor:
    return torch.randn(2, n, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def turned(sample: Tensor, turn: Tensor, shift: Tensor) -> Tensor:
    return torch.cat([sample[..., :3] @ turn.T + shift, sample[..., 3:]], dim=2)


@pytest.mark.parametrize("mirror", [False, True])
@torch.no_grad()
def test_turning_mirroring_and_shifting(mirror: bool) -> None:
    turn = torch.tensor(scipy.spatial.transform.Rotation.random(random_state=0).as_matrix())
    turn = turn * torch.tensor([-1.0, 1.0, 1.0]) if mirror else turn
    shift = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64)
    net, t = network(), torch.tensor([10.0, 900.0])
    wanted = turned(net(cloud(), t), turn, torch.zeros(3).double())
    found = net(turned(cloud(), turn, shift), t)
    assert float(wanted[..., :3].std()) > 0.1  # or there would be nothing to compare
    torch.testing.assert_close(found, wanted, atol=1e-10, rtol=0)
    single = net.float()(turned(cloud(), turn, shift).float(), t)
    torch.testing.assert_close(single, wanted.float(), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_renumbering_the_points() -> None:
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    net = network()
    torch.testing.assert_close(net(cloud()[:, order], 100.0), net(cloud(), 100.0)[:, order])


@torch.no_grad()
def test_points_that_are_not_there_change_nothing() -> None:
    net, mask = network(), torch.ones(2, 8)
    mask[:, 6:] = 0
    padded = torch.cat([cloud(), 100 * torch.ones(2, 2, 7)], dim=1)
    found = net(padded, 100.0, mask)
    torch.testing.assert_close(found[:, :6], net(cloud(), 100.0))
    assert not bool(found[:, 6:].any())


@torch.no_grad()
def test_predicted_coordinates_have_no_mean() -> None:
    torch.testing.assert_close(network()(cloud(), 5.0)[..., :3].mean(1), torch.zeros(2, 3).double(), atol=1e-12, rtol=0)
    alone = network()(cloud(1), 5.0)
    assert not bool(alone[..., :3].any())
    assert alone.isfinite().all()


def test_every_weight_learns() -> None:
    net = EGNN(EGNNConfig(features=4, hidden=16, layers=2, cond_channels=2))
    found = net(cloud().float(), 5.0, cond=torch.randn(2, 2))
    found.square().mean().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(B, N, 7\)"):
        network()(torch.zeros(2, 5, 6), 0.0)
    with pytest.raises(ValueError, match="takes 0 numbers"):
        network()(cloud(), 0.0, cond=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="hidden"):
        EGNNConfig(features=4, hidden=0)
    torch.testing.assert_close(centred(cloud()[..., :3]).mean(1), torch.zeros(2, 3).double(), atol=1e-12, rtol=0)
