"""The diffusion transformer against diffusers' own, both ways; presets; what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import diffusers
import pytest
import torch
from torch import Tensor, nn

from denoscope.networks import DiT, DiTConfig, load_dit, save_network

PLAIN = DiTConfig(
    num_attention_heads=2,
    attention_head_dim=8,
    in_channels=3,
    num_layers=2,
    sample_size=8,
    num_embeds_ada_norm=10,
)
CONFIGS = {
    "plain": PLAIN,
    "learned variance": replace(PLAIN, out_channels=6),
    "patches of four": replace(PLAIN, patch_size=4, in_channels=1),
    "no biases": replace(PLAIN, attention_bias=False, norm_eps=1e-2),
    "one class": replace(PLAIN, num_embeds_ada_norm=1, patch_size=1, sample_size=4),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
T = torch.tensor([3, 917])


def labels(config: DiTConfig) -> Tensor:
    """A class, and the null class."""
    return torch.tensor([config.num_embeds_ada_norm // 2, config.null_class])


def noisy(config: DiTConfig, size: int | tuple[int, int]) -> Tensor:
    shape = (size, size) if isinstance(size, int) else size
    return torch.randn(2, config.in_channels, *shape, generator=torch.Generator().manual_seed(1))


def randomize(net: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
        parameter.data = torch.randn(parameter.shape, generator=generator) / fan_in**0.5


def random_net(config: DiTConfig) -> DiT:
    net = DiT(config).eval()
    randomize(net)
    return net


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert theirs.std() > 0.1
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@every_config
@torch.no_grad()
def test_diffusers_loads_what_we_save(config: DiTConfig, tmp_path: Path) -> None:
    ours = random_net(config)
    save_network(ours, tmp_path)
    theirs, info = diffusers.DiTTransformer2DModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for size in (config.sample_size, 2 * config.sample_size):
        z = noisy(config, size)
        assert_same(ours(z, T, labels(config)), theirs(z, T, labels(config)).sample)


@every_config
@torch.no_grad()
def test_we_load_what_diffusers_saves(config: DiTConfig, tmp_path: Path) -> None:
    theirs = diffusers.DiTTransformer2DModel.from_config(config.to_diffusers()).eval()
    randomize(theirs)
    theirs.save_pretrained(tmp_path)
    ours = load_dit(tmp_path)
    assert ours.config == config
    z = noisy(config, config.sample_size)
    assert_same(ours(z, 10, labels(config)), theirs(z, torch.tensor([10, 10]), labels(config)).sample)


@torch.no_grad()
def test_we_load_the_layout_of_the_published_models(tmp_path: Path) -> None:
    """They say ``Transformer2DModel``, whose saved config has many more keys."""
    theirs = diffusers.Transformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=3,
        out_channels=6,
        num_layers=2,
        attention_bias=True,
        sample_size=8,
        patch_size=2,
        activation_fn="gelu-approximate",
        num_embeds_ada_norm=10,
        norm_type="ada_norm_zero",
        norm_elementwise_affine=False,
    ).eval()
    randomize(theirs)
    theirs.save_pretrained(tmp_path)
    z = noisy(PLAIN, 8)
    expected = theirs(z, timestep=T, class_labels=labels(PLAIN)).sample
    assert_same(load_dit(tmp_path)(z, T, labels(PLAIN)), expected)


@torch.no_grad()
def test_oblong_samples_where_theirs_fails() -> None:
    """Their patches come with places for any grid, but are put together as if it were square."""
    ours = random_net(PLAIN)
    theirs = diffusers.DiTTransformer2DModel.from_config(PLAIN.to_diffusers()).eval()
    theirs.load_state_dict(ours.state_dict())
    z = noisy(PLAIN, (4, 16))  # 2 × 8 patches, which theirs takes for 4 × 4
    rows = theirs(z, T, labels(PLAIN)).sample.unflatten(2, (4, 2)).unflatten(4, (4, 2)).transpose(3, 4).flatten(2, 3)
    expected = rows.unflatten(2, (2, 8)).permute(0, 1, 2, 4, 3, 5).reshape(z.shape)
    assert_same(ours(z, T, labels(PLAIN)), expected)


def test_gradients_equal_those_of_diffusers() -> None:
    ours = random_net(PLAIN)
    theirs = diffusers.DiTTransformer2DModel.from_config(PLAIN.to_diffusers()).eval()
    theirs.load_state_dict(ours.state_dict())
    z = noisy(PLAIN, 8)
    ours(z, T, labels(PLAIN)).square().mean().backward()
    theirs(z, T, labels(PLAIN)).sample.square().mean().backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, atol=1e-5, rtol=1e-3, msg=name)


@torch.no_grad()
def test_nothing_is_drawn_while_it_trains() -> None:
    net, z = random_net(PLAIN).train(), noisy(PLAIN, 8).repeat(50, 1, 1, 1)
    told = labels(PLAIN)[:1].expand(100)
    before = torch.get_rng_state()
    found = net(z, 10, told)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found, net.eval()(z, 10, told))


@torch.no_grad()
def test_no_labels_mean_the_null_class() -> None:
    net, z = random_net(PLAIN), noisy(PLAIN, 8)
    null = torch.full((2,), 10)
    assert torch.equal(net(z, 10), net(z, 10, null))
    assert float((net(z, 10) - net(z, 10, null - 1)).abs().max()) > 0.1


def test_a_new_network_returns_zero_and_learns_everywhere() -> None:
    """Its blocks are the identity: at once only the end learns, then, step by step, everything behind a gate."""
    torch.manual_seed(0)
    net, z = DiT(PLAIN), noisy(PLAIN, 8)
    assert float(net(z, T, labels(PLAIN)).detach().abs().max()) == 0
    rows = torch.randn(2, 5, PLAIN.width)
    for block in net.transformer_blocks:
        assert torch.equal(block(rows, torch.randn(2, 256), labels(PLAIN)), rows)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        optimizer.zero_grad()
        (net(z, T, labels(PLAIN)) - z).square().mean().backward()
        optimizer.step()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


@torch.no_grad()
def test_a_new_network_is_told_nothing_yet() -> None:
    net, z = DiT(PLAIN), noisy(PLAIN, 8)
    nn.init.normal_(net.proj_out_2.weight)
    assert float(net(z, T, labels(PLAIN)).abs().max()) > 0.1
    assert torch.equal(net(z, T, labels(PLAIN)), net(z, 0))


@pytest.mark.parametrize(("name", "paper"), [("tiny", None), ("S/2", 32.96e6), ("B/2", 130.51e6)])
def test_presets_have_the_size_of_the_paper(name: str, paper: float | None) -> None:
    config = DiTConfig.preset(name, out_channels=8, num_embeds_ada_norm=1000 if paper else 10)
    with torch.device("meta"):
        net = DiT(config)
    count = sum(parameter.numel() for parameter in net.parameters())
    if paper is None:
        assert 1e6 <= count <= 2e6
        return
    # All blocks but one repeat what the paper has once.
    emb = "transformer_blocks.0.norm1.emb."
    repeated = sum(value.numel() for key, value in net.state_dict().items() if key.startswith(emb))
    # The paper's count has the fixed positions too.
    assert count - (config.num_layers - 1) * repeated + 256 * config.width == pytest.approx(paper, rel=2e-3)


@torch.no_grad()
def test_half_precision(tmp_path: Path) -> None:
    net, z = random_net(PLAIN), noisy(PLAIN, 8)
    save_network(net, tmp_path)
    half = load_dit(tmp_path, torch.bfloat16)(z.bfloat16(), T, labels(PLAIN))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), net(z, T, labels(PLAIN)), atol=0.1, rtol=0.1)


def test_samples_and_labels_must_fit() -> None:
    net = DiT(PLAIN)
    with pytest.raises(ValueError, match="patch_size 2 does not divide a sample of 8×7"):
        net(noisy(PLAIN, (8, 7)), 0)
    for wrong in (torch.tensor([1]), torch.tensor([1.0, 2.0]), torch.zeros(2, 1, dtype=torch.long)):
        with pytest.raises(ValueError, match="class_labels must be 2 whole numbers"):
            net(noisy(PLAIN, 8), 0, wrong)
    with pytest.raises(ValueError, match="presets tiny, S/2, B/2, but no 'H/14'"):
        DiTConfig.preset("H/14")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("norm_type", "ada_norm_single"),
        ("activation_fn", "geglu"),
        ("dropout", 0.1),
        ("norm_elementwise_affine", True),
        ("num_embeds_ada_norm", None),
        ("patch_size", 3),
        ("num_layers", 0),
        ("attention_head_dim", 3),
        ("attention_bias", "yes"),
        ("norm_eps", 0.0),
        ("a_key_of_the_future", 5),
        ("_class_name", "PixArtTransformer2DModel"),
    ],
)
def test_refuses_what_it_does_not_have(tmp_path: Path, key: str, value: object) -> None:
    save_network(DiT(PLAIN), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=key) as refusal:
        load_dit(tmp_path)
    assert "\n" not in str(refusal.value)


def test_an_old_class_name_brings_its_own_defaults() -> None:
    with pytest.raises(ValueError, match="activation_fn='geglu'"):
        DiTConfig.from_diffusers({"_class_name": "Transformer2DModel", "patch_size": 2})
