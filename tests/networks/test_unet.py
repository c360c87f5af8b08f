"""Our U-Net against diffusers' own, both ways, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import diffusers
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from denoscope.networks import UNet2DCondition, UNetConfig, load_unet, save_unet

CLASS_NAME = "UNet2DConditionModel"
TWO_LEVELS = UNetConfig(
    sample_size=8,
    in_channels=4,
    out_channels=4,
    block_out_channels=(8, 16),
    down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    layers_per_block=1,
    norm_num_groups=4,
    attention_head_dim=2,
    cross_attention_dim=12,
)
CONFIGS = {
    "two levels": TWO_LEVELS,
    "linear projection": replace(TWO_LEVELS, use_linear_projection=True, out_channels=8),
    "three levels": UNetConfig(
        block_out_channels=(8, 12, 24),
        in_channels=3,
        out_channels=3,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=2,
        norm_num_groups=4,
        attention_head_dim=(1, 2, 4),
        cross_attention_dim=10,
    ),
    "as stable diffusion": UNetConfig(
        block_out_channels=(8, 16, 16, 16), norm_num_groups=8, attention_head_dim=2, cross_attention_dim=6
    ),
    "one level, sides unlike": UNetConfig(
        sample_size=(5, 6),
        block_out_channels=(8,),
        down_block_types=("DownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        norm_num_groups=2,
        norm_eps=1e-3,
        dropout=0.1,
        attention_head_dim=4,
        cross_attention_dim=6,
    ),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def randomize(net: nn.Module, seed: int = 0) -> None:
    """Weights of ordinary size everywhere, so that no layer hides behind a zero."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
        noise = torch.randn(parameter.shape, generator=generator) / fan_in**0.5
        parameter.data = noise + (1 if parameter.dim() == 1 else 0)


def inputs(config: UNetConfig, size: tuple[int, int], seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(2, config.in_channels, *size, generator=generator),
        torch.tensor([3, 917]),
        torch.randn(2, 5, config.cross_attention_dim, generator=generator),
    )


def random_net(config: UNetConfig) -> UNet2DCondition:
    net = UNet2DCondition(config).eval()
    randomize(net)
    return net


class Theirs(nn.Module):
    """What we use of diffusers' network, typed."""

    def save_pretrained(self, folder: Path) -> None: ...


def diffusers_net(config: UNetConfig) -> Theirs:
    net: Theirs = getattr(diffusers, CLASS_NAME).from_config(config.to_diffusers())
    return net.eval()


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert theirs.std() > 0.01  # or the comparison would mean nothing
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@every_config
@torch.no_grad()
def test_diffusers_loads_what_we_save(config: UNetConfig, tmp_path: Path) -> None:
    ours = random_net(config)
    save_unet(ours, tmp_path)
    theirs, info = getattr(diffusers, CLASS_NAME).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    for size in ((8, 8), (7, 9), (16, 24)):
        z, t, words = inputs(config, size)
        assert_same(ours(z, t, words), theirs(z, t, words).sample)


@every_config
@torch.no_grad()
def test_we_load_what_diffusers_saves(config: UNetConfig, tmp_path: Path) -> None:
    theirs = diffusers_net(config)
    randomize(theirs)
    theirs.save_pretrained(tmp_path)
    ours = load_unet(tmp_path)
    assert ours.config == config
    assert not ours.training
    z, t, words = inputs(config, (7, 9))
    assert_same(ours(z, t, words), theirs(z, t, words).sample)


def test_the_config_we_write_names_every_key_of_diffusers(tmp_path: Path) -> None:
    theirs = diffusers_net(TWO_LEVELS)
    theirs.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written.keys() - TWO_LEVELS.to_diffusers().keys() <= {
        "_diffusers_version",
        "addition_embed_type_num_heads",
    }


@pytest.mark.parametrize("timestep", [7, 7.5, torch.tensor(7), torch.tensor([7]), torch.tensor([7.0, 33.25])])
@torch.no_grad()
def test_timesteps_of_every_kind(timestep: Tensor | float) -> None:
    ours = random_net(TWO_LEVELS)
    theirs = diffusers_net(TWO_LEVELS)
    theirs.load_state_dict(ours.state_dict())
    z, _, words = inputs(TWO_LEVELS, (8, 8))
    assert_same(ours(z, timestep, words), theirs(z, timestep, words).sample)


def test_gradients_equal_those_of_diffusers() -> None:
    config = CONFIGS["three levels"]
    ours = random_net(config).train()
    theirs = diffusers_net(config).train()
    theirs.load_state_dict(ours.state_dict())
    z, t, words = inputs(config, (7, 9))
    ours(z, t, words).square().mean().backward()
    theirs(z, t, words).sample.square().mean().backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
        torch.testing.assert_close(parameter.grad, expected[name].grad, atol=1e-5, rtol=1e-3, msg=name)


def test_a_new_network_returns_zero_and_learns_through_it() -> None:
    net = UNet2DCondition(TWO_LEVELS)
    z, t, words = inputs(TWO_LEVELS, (8, 8))
    out = net(z, t, words)
    assert out.abs().max() == 0
    (out - z).square().mean().backward()
    assert net.conv_out.weight.grad is not None
    assert net.conv_out.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("class_embed_type", "timestep"),
        ("addition_embed_type", "text_time"),
        ("dual_cross_attention", True),
        ("only_cross_attention", [True, False]),
        ("transformer_layers_per_block", 2),
        ("flip_sin_to_cos", False),
        ("act_fn", "gelu"),
        ("mid_block_type", None),
        ("cross_attention_dim", [12, 12]),
        ("layers_per_block", [1, 2]),
        ("down_block_types", ["AttnDownBlock2D", "CrossAttnDownBlock2D"]),
        ("norm_num_groups", None),
        ("attention_head_dim", 3),
        ("a_key_of_the_future", 5),
        ("_class_name", "UNet2DModel"),
    ],
)
def test_refuses_in_one_sentence_what_it_does_not_have(tmp_path: Path, key: str, value: object) -> None:
    save_unet(UNet2DCondition(TWO_LEVELS), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=key) as refusal:
        load_unet(tmp_path)
    shown = value[0] if key == "down_block_types" and isinstance(value, list) else value
    assert repr(shown) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_old_and_future_configs_that_change_nothing_are_taken() -> None:
    config = UNetConfig.from_diffusers({"act_fn": "swish", "mid_block_scale_factor": 1.0, "new_key": None})
    assert config == UNetConfig()


@torch.no_grad()
def test_half_precision_files_load(tmp_path: Path) -> None:
    net = random_net(TWO_LEVELS)
    save_unet(net.half(), tmp_path)
    stored = load_file(tmp_path / "diffusion_pytorch_model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.float16}
    loaded = load_unet(tmp_path)
    z, t, words = inputs(TWO_LEVELS, (8, 8))
    assert loaded(z, t, words).dtype == torch.float32
    torch.testing.assert_close(loaded(z, t, words), net.float()(z, t, words))
    half = load_unet(tmp_path, dtype=torch.bfloat16)
    assert half(z.bfloat16(), t, words.bfloat16()).dtype == torch.bfloat16


def test_loaded_weights_can_be_trained(tmp_path: Path) -> None:
    save_unet(random_net(TWO_LEVELS), tmp_path)
    net = load_unet(tmp_path).train()
    z, t, words = inputs(TWO_LEVELS, (8, 8))
    net(z, t, words).square().mean().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_wrong_or_missing_files_are_named(tmp_path: Path) -> None:
    save_unet(UNet2DCondition(TWO_LEVELS), tmp_path)
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    weights = load_file(path)
    save_file({key: value for key, value in weights.items() if key != "conv_in.bias"}, path)
    with pytest.raises(ValueError, match=r"lacks weight 'conv_in.bias'"):
        load_unet(tmp_path)
    save_file(weights | {"extra": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="unknown weight 'extra'"):
        load_unet(tmp_path)
    save_file(weights | {"conv_in.bias": torch.ones(3)}, path)
    with pytest.raises(ValueError, match=r"conv_in.bias.*\(3,\)"):
        load_unet(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="damaged"):
        load_unet(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="missing"):
        load_unet(tmp_path)


def test_saving_replaces_whole_files_and_leaves_nothing_else(tmp_path: Path) -> None:
    save_unet(UNet2DCondition(TWO_LEVELS), tmp_path)
    save_unet(random_net(TWO_LEVELS), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json",
        "diffusion_pytorch_model.safetensors",
    }
    assert load_unet(tmp_path).conv_out.weight.abs().sum() > 0


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = random_net(TWO_LEVELS)
    save_unet(net, tmp_path)

    def fail(weights: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr("denoscope.networks.folders.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        save_unet(UNet2DCondition(TWO_LEVELS), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert torch.equal(load_unet(tmp_path).conv_out.weight, net.conv_out.weight)
