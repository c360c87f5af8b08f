"""The U-Net without words against diffusers' own, both ways; presets; what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import diffusers
import pytest
import torch
from torch import Tensor, nn

from denoscope.networks import UNet2D, UNet2DConfig, load_unet2d, save_unet

CLASS_NAME = "UNet2DModel"
PLAIN = UNet2DConfig(
    sample_size=8,
    in_channels=1,
    out_channels=1,
    block_out_channels=(8, 16),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    layers_per_block=1,
    norm_num_groups=4,
    attention_head_dim=4,
)
CONFIGS = {
    "plain": PLAIN,
    "classes": replace(PLAIN, num_class_embeds=10),
    "a number": replace(PLAIN, class_embed_type="timestep"),
    "a vector": replace(PLAIN, class_embed_type="identity"),
    "no attention": replace(
        PLAIN,
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
        add_attention=False,
        layers_per_block=2,
    ),
    "one head": replace(PLAIN, attention_head_dim=None, norm_eps=1e-6),
    "three levels": replace(
        PLAIN,
        block_out_channels=(8, 8, 16),
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    ),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def labels(config: UNet2DConfig) -> Tensor | None:
    if config.class_embed_type == "timestep":
        return torch.tensor([3.0, 40.0])
    if config.class_embed_type == "identity":
        return torch.randn(2, 4 * config.block_out_channels[0], generator=torch.Generator().manual_seed(2))
    return torch.tensor([3, 7]) if config.num_class_embeds else None


def randomize(net: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
        parameter.data = torch.randn(parameter.shape, generator=generator) / fan_in**0.5 + (parameter.dim() == 1)


def random_net(config: UNet2DConfig) -> UNet2D:
    net = UNet2D(config).eval()
    randomize(net)
    return net


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert theirs.std() > 0.01
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@every_config
@torch.no_grad()
def test_diffusers_loads_what_we_save(config: UNet2DConfig, tmp_path: Path) -> None:
    ours = random_net(config)
    save_unet(ours, tmp_path)
    theirs, info = getattr(diffusers, CLASS_NAME).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    t, told = torch.tensor([3, 917]), labels(config)
    for size in ((8, 8), (16, 12)):
        z = torch.randn(2, 1, *size, generator=torch.Generator().manual_seed(1))
        assert_same(ours(z, t, told), theirs(z, t, told).sample)


@every_config
@torch.no_grad()
def test_we_load_what_diffusers_saves(config: UNet2DConfig, tmp_path: Path) -> None:
    theirs = getattr(diffusers, CLASS_NAME).from_config(config.to_diffusers()).eval()
    randomize(theirs)
    theirs.save_pretrained(tmp_path)
    ours = load_unet2d(tmp_path)
    assert ours.config == config
    z = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert_same(ours(z, 10, labels(config)), theirs(z, 10, labels(config)).sample)


def test_odd_sizes_where_theirs_fails() -> None:
    """28×28 at four levels: 28, 14, 7, 4. Theirs doubles 4 to 8 and can't join it to 7."""
    config = replace(
        PLAIN,
        block_out_channels=(8,) * 4,
        down_block_types=("DownBlock2D",) * 4,
        up_block_types=("UpBlock2D",) * 4,
    )
    z = torch.randn(2, 1, 28, 28)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        getattr(diffusers, CLASS_NAME).from_config(config.to_diffusers())(z, 0)
    assert UNet2D(config)(z, 0).shape == z.shape


def test_gradients_equal_those_of_diffusers() -> None:
    config = CONFIGS["classes"]
    ours = random_net(config).train()
    theirs = getattr(diffusers, CLASS_NAME).from_config(config.to_diffusers()).train()
    theirs.load_state_dict(ours.state_dict())
    z, told = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1)), labels(config)
    ours(z, 10, told).square().mean().backward()
    theirs(z, 10, told).sample.square().mean().backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, atol=1e-5, rtol=1e-3, msg=name)


def test_a_new_network_returns_zero() -> None:
    z = torch.randn(2, 1, 8, 8)
    assert float(UNet2D(PLAIN)(z, 0).abs().max()) == 0


@pytest.mark.parametrize(("size", "low", "high"), [(32, 30, 60), (64, 30, 60), (256, 100, 300)])
def test_presets_have_the_size_that_users_expect(size: int, low: int, high: int) -> None:
    with torch.device("meta"):
        net = UNet2D(UNet2DConfig.preset(size))
    assert low <= sum(parameter.numel() for parameter in net.parameters()) / 1e6 <= high


def test_labels_must_fit_the_network() -> None:
    z = torch.randn(2, 1, 8, 8)
    with pytest.raises(ValueError, match="class_labels"):
        UNet2D(PLAIN)(z, 0, torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="class_labels"):
        UNet2D(CONFIGS["classes"])(z, 0)
    with pytest.raises(ValueError, match="presets for 32, 64, 256 pixels, not for 48"):
        UNet2DConfig.preset(48)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("time_embedding_type", "fourier"),
        ("downsample_type", "resnet"),
        ("freq_shift", 1),
        ("down_block_types", ["SkipDownBlock2D", "DownBlock2D"]),
        ("block_out_channels", [6, 8]),
        ("attention_head_dim", 3),
        ("class_embed_type", "projection"),
        ("a_key_of_the_future", 5),
        ("_class_name", "UNet2DConditionModel"),
    ],
)
def test_refuses_what_it_does_not_have(tmp_path: Path, key: str, value: object) -> None:
    save_unet(UNet2D(PLAIN), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=key):
        load_unet2d(tmp_path)
