"""The U-Net of sequences against the one of pictures on pictures of one row; folders; what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from denoscope.networks import UNet1D, UNet1DConfig, UNet2D, UNet2DConfig, load_unet1d, save_network

PLAIN = UNet1DConfig(
    in_channels=2,
    out_channels=3,
    block_out_channels=(8, 16),
    layers_per_block=1,
    attention_levels=(1,),
    attention_head_dim=4,
    norm_num_groups=4,
)
CONFIGS = {
    "plain": PLAIN,
    "classes": replace(PLAIN, num_class_embeds=10),
    "no attention": replace(PLAIN, attention_levels=(), add_attention=False, layers_per_block=2),
    "attention at the finest": replace(PLAIN, attention_levels=(0,), attention_head_dim=None, norm_eps=1e-6),
    "three levels": replace(PLAIN, block_out_channels=(8, 8, 16), attention_levels=(0, 2), add_attention=False),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
T = torch.tensor([3, 917])


def labels(config: UNet1DConfig) -> Tensor | None:
    return torch.tensor([3, 7]) if config.num_class_embeds else None


def noisy(length: int) -> Tensor:
    return torch.randn(2, 2, length, generator=torch.Generator().manual_seed(1))


def randomize(net: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
        parameter.data = torch.randn(parameter.shape, generator=generator) / fan_in**0.5 + (parameter.dim() == 1)


def of_pictures(config: UNet1DConfig) -> UNet2D:
    """The network of pictures with the same levels; it is tested against diffusers."""
    attends = [level in config.attention_levels for level in range(len(config.block_out_channels))]
    return UNet2D(
        UNet2DConfig(
            in_channels=config.in_channels,
            out_channels=config.out_channels,
            block_out_channels=config.block_out_channels,
            down_block_types=tuple("AttnDownBlock2D" if at else "DownBlock2D" for at in attends),
            up_block_types=tuple("AttnUpBlock2D" if at else "UpBlock2D" for at in reversed(attends)),
            layers_per_block=config.layers_per_block,
            add_attention=config.add_attention,
            attention_head_dim=config.attention_head_dim,
            norm_num_groups=config.norm_num_groups,
            norm_eps=config.norm_eps,
            num_class_embeds=config.num_class_embeds,
        )
    )


@every_config
@torch.no_grad()
def test_a_picture_of_one_row_is_a_sequence(config: UNet1DConfig) -> None:
    """Around a single row there are only zeros, so that no more than the middle row of a kernel counts."""
    pictures = of_pictures(config).eval()
    randomize(pictures)
    sequences = UNet1D(config).eval()
    weights = pictures.state_dict()
    # Strict: both have the same keys.
    sequences.load_state_dict({k: w[:, :, w.shape[2] // 2] if w.dim() == 4 else w for k, w in weights.items()})
    for length in (16, 13, 7, 3, 1):
        z = noisy(length)
        expected = pictures(z[:, :, None], T, labels(config))[:, :, 0]
        assert expected.std() > 0.01
        torch.testing.assert_close(sequences(z, T, labels(config)), expected, atol=1e-5, rtol=1e-5)


@every_config
@torch.no_grad()
def test_what_is_saved_is_loaded(config: UNet1DConfig, tmp_path: Path) -> None:
    net = UNet1D(config).eval()
    randomize(net)
    save_network(net, tmp_path)
    loaded = load_unet1d(tmp_path)
    assert loaded.config == config
    assert torch.equal(loaded(noisy(9), T, labels(config)), net(noisy(9), T, labels(config)))
    assert load_unet1d(tmp_path, torch.bfloat16)(noisy(9).bfloat16(), T, labels(config)).dtype == torch.bfloat16


def test_a_new_network_returns_zero_and_learns() -> None:
    """Noise is told from three sine waves: the loss falls far below the variance of the noise."""
    torch.manual_seed(0)
    net = UNet1D(replace(PLAIN, in_channels=1, out_channels=1, num_class_embeds=3))
    told = torch.arange(3).repeat(8)
    waves = torch.sin((told[:, None] + 1) * torch.linspace(0, 6, 33))[:, None]
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    losses = []
    for _ in range(60):
        noise = torch.randn_like(waves)
        loss = (net(0.6 * waves + 0.8 * noise, 500, told) - noise).square().mean()
        losses.append(float(loss.detach()) / float(noise.square().mean()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0] == 1
    assert sum(losses[-5:]) / 5 < 0.4


def test_labels_must_fit_the_network() -> None:
    with pytest.raises(ValueError, match="class_labels"):
        UNet1D(PLAIN)(noisy(8), 0, torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="class_labels"):
        UNet1D(CONFIGS["classes"])(noisy(8), 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_out_channels", [6, 8]),
        ("block_out_channels", []),
        ("attention_levels", [2]),
        ("attention_levels", 1),
        ("attention_head_dim", 3),
        ("num_class_embeds", 0),
        ("in_channels", "one"),
        ("dropout", 1.0),
        ("norm_eps", None),
        ("a_key_of_the_future", None),
        ("_class_name", "UNet1DModel"),
    ],
)
def test_refuses_what_it_does_not_have(tmp_path: Path, key: str, value: object) -> None:
    save_network(UNet1D(PLAIN), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=key) as refusal:
        load_unet1d(tmp_path)
    assert "\n" not in str(refusal.value)
