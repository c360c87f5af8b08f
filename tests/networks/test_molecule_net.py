"""The denoiser of molecules: symmetries, masks, the subspace of mean zero."""

import pytest
import scipy.spatial.transform
import scipy.stats
import torch
from torch import Tensor

from denoscope.networks.egnn import EGNN, EGNNConfig
from denoscope.networks.molecule_net import MoleculeNet, MoleculeNetConfig, zero_centre

TIME = torch.tensor([10.0, 900.0])
MASK = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])


def network(cond_channels: int = 0) -> MoleculeNet:
    torch.manual_seed(0)
    net = MoleculeNet(MoleculeNetConfig(kinds=4, hidden=16, layers=3, cond_channels=cond_channels)).double()
    for name, parameter in net.named_parameters():  # of ordinary size, or nothing would move
        if "pull.4" in name or "read.weight" in name:
            torch.nn.init.normal_(parameter, std=1.0)
    return net


def cloud() -> Tensor:
    return torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def turned(z: Tensor, turn: Tensor, shift: Tensor) -> Tensor:
    return torch.cat([z[..., :3] @ turn.T + shift, z[..., 3:]], dim=2)


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
@torch.no_grad()
def test_turning_mirroring_and_shifting(seed: int, mirror: bool) -> None:
    turn = torch.tensor(scipy.spatial.transform.Rotation.random(random_state=seed).as_matrix())
    turn = turn * torch.tensor([-1.0, 1.0, 1.0]) if mirror else turn
    shift = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64)
    net = network()
    wanted = turned(net(cloud(), TIME, mask=MASK), turn, torch.zeros(3).double())
    found = net(turned(cloud(), turn, shift), TIME, mask=MASK)
    assert float(wanted[..., :3].std()) > 0.1
    assert float(wanted[..., 3:].std()) > 0.1
    error = float((found - wanted).abs().max())
    single = net.float()
    before = turned(single(cloud().float(), TIME, mask=MASK), turn.float(), torch.zeros(3))
    after = single(turned(cloud().float(), turn.float(), shift.float()), TIME, mask=MASK)
    error_single = float((after - before).abs().max())
    print(f"error {error:.1e} in float64, {error_single:.1e} in float32")
    assert error <= 1e-12
    assert error_single <= 1e-5


@torch.no_grad()
def test_padding_and_renumbering_change_nothing() -> None:
    net = network()
    found = net(cloud(), TIME, mask=MASK)
    filled = torch.where(MASK[..., None], cloud(), 100.0)
    torch.testing.assert_close(net(filled, TIME, mask=MASK), found)
    assert not bool(found[~MASK].any())
    torch.testing.assert_close(net(cloud()[1:, :4], TIME[1:]), found[1:, :4])
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(net(cloud()[:, order], TIME, mask=MASK[:, order]), found[:, order])


@torch.no_grad()
def test_predicted_positions_have_no_mean() -> None:
    found = network()(cloud(), TIME, mask=MASK)
    torch.testing.assert_close(found[..., :3].sum(1), torch.zeros(2, 3).double(), atol=1e-12, rtol=0)
    alone = network()(cloud()[:, :1], TIME)
    assert not bool(alone[..., :3].any())
    assert bool(alone.isfinite().all())


@torch.no_grad()
def test_zero_at_first_and_time_is_told() -> None:
    fresh = MoleculeNet(MoleculeNetConfig(kinds=4, hidden=16, layers=2))
    assert not bool(fresh(cloud().float(), TIME, mask=MASK).any())
    net = network()
    assert not torch.allclose(net(cloud(), 10.0), net(cloud(), 900.0), atol=1e-3)
    torch.testing.assert_close(net(cloud(), 10.0), net(cloud(), torch.tensor([10, 10])))


def test_every_weight_learns_and_cond_is_told() -> None:
    net = network(cond_channels=2)
    cond = torch.randn(2, 2)
    net(cloud(), TIME, mask=MASK, cond=cond).square().mean().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name
    assert not torch.allclose(net(cloud(), TIME, cond=cond), net(cloud(), TIME, cond=-cond), atol=1e-3)


def test_projected_noise_has_the_degrees_of_freedom_of_its_subspace() -> None:
    draws, mask = 4000, torch.tensor([True] * 5 + [False] * 3)
    noise = torch.randn(draws, 8, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = zero_centre(noise, mask.expand(draws, 8))
    assert not bool(found[:, ~mask].any())
    torch.testing.assert_close(found[..., :3].sum(1), torch.zeros(draws, 3).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(found[:, mask, 3:], noise[:, mask, 3:])
    # The squared length is χ² of (5 − 1)·3 = 12 degrees of freedom: not of 15, nor of 12 scaled.
    lengths = found[..., :3].square().sum((1, 2)).numpy()
    assert scipy.stats.kstest(lengths, scipy.stats.chi2(12).cdf).pvalue > 0.01
    assert scipy.stats.kstest(lengths, scipy.stats.chi2(15).cdf).pvalue < 1e-6
    torch.testing.assert_close(zero_centre(found, mask.expand(draws, 8)), found)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(B, N, 7\)"):
        network()(torch.zeros(2, 5, 6), 0.0)
    with pytest.raises(ValueError, match=r"mask of shape \(2, 6\)"):
        network()(cloud(), 0.0, mask=MASK[:, :4])
    with pytest.raises(ValueError, match="takes 0 numbers"):
        network()(cloud(), 0.0, cond=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="kinds"):
        MoleculeNetConfig(kinds=0)
    with pytest.raises(ValueError, match="hidden"):
        MoleculeNetConfig(kinds=4, hidden=0)


@torch.no_grad()
def test_the_inner_network_gives_what_a_direct_computation_gives() -> None:
    torch.manual_seed(3)
    net = EGNN(EGNNConfig(features=4, hidden=8, layers=1, waves=2)).double()
    layer = net.layers[0]
    z = cloud()[:1]
    time = torch.tensor([[0.5]], dtype=torch.float64)
    h = net.embed(torch.cat([z[..., 3:], time[:, None].expand(1, 6, 1)], dim=2))[0]
    places = z[0, :, :3]
    moved, features = places.clone(), []
    for i in range(6):
        heard = torch.zeros(8).double()
        for j in range(6):
            if i != j:
                between = (places[i] - places[j]).square().sum()
                waves = [2 * torch.pi / 15 * 4**k * between.sqrt() for k in range(2)]
                told = torch.stack([between, *(w.sin() for w in waves), *(w.cos() for w in waves)])
                edge = torch.cat([h[i], h[j], told, told])
                message = layer.message(edge)  # type: ignore[operator]
                heard += message * layer.gate(message) / 5  # type: ignore[operator]
                pull = torch.tanh(layer.pull(edge)) * 15 / 5  # type: ignore[operator]
                moved[i] += (places[i] - places[j]) / (between.sqrt() + 1) * pull
        features.append(net.read(h[i] + layer.update(torch.cat([h[i], heard]))))  # type: ignore[operator]
    shift = moved - places
    wanted = torch.cat([shift - shift.mean(0), torch.stack(features)], dim=1)
    torch.testing.assert_close(net(z, 500.0)[0], wanted, atol=1e-7, rtol=1e-6)
