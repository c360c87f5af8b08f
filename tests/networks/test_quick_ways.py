"""The quick ways of the U-Net's bricks against the plain ones, in float64: values and gradients."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from denoscope.networks import UNet2D, UNet2DConfig
from denoscope.networks.blocks import Pointwise, Upsample


@pytest.mark.parametrize("size", [(6, 10), (5, 10), (6, 9), (3, 5)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_upsampling_is_nearest_neighbour_then_a_convolution(size: tuple[int, int], layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    layer = Upsample(4).double()
    x = torch.randn(2, 4, 3, 5, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    quick = layer(x, size)
    plain = layer.conv(functional.interpolate(x, size=size, mode="nearest"))
    torch.testing.assert_close(quick, plain, atol=1e-12, rtol=1e-12)
    told = torch.randn_like(plain)
    inputs = [x, *layer.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(quick, inputs, told), torch.autograd.grad(plain, inputs, told), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def test_the_quick_way_is_taken_for_twice_the_size_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, ...]] = []
    plain = functional.conv_transpose2d

    def listen(x: torch.Tensor, *rest: torch.Tensor | None, **how: int) -> torch.Tensor:
        taken.append(tuple(x.shape[2:]))
        return plain(x, *rest, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(functional, "conv_transpose2d", listen)
    layer = Upsample(4)
    for size in ((6, 10), (5, 10), (12, 20)):
        layer(torch.randn(1, 4, 3, 5), size)
    assert taken == [(3, 5)]
    assert Upsample(4, dims=1)(torch.randn(1, 4, 3), (6,)).shape == (1, 4, 6)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_pointwise_convolution_is_a_convolution(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    layer = Pointwise(4, 6, 1).double()
    x = torch.randn(2, 4, 3, 5, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    quick, plain = layer(x), functional.conv2d(x, layer.weight, layer.bias)
    torch.testing.assert_close(quick, plain, atol=1e-12, rtol=1e-12)
    assert quick.is_contiguous(memory_format=layout)
    told = torch.randn_like(plain)
    inputs = [x, *layer.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(quick, inputs, told), torch.autograd.grad(plain, inputs, told), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_map_has_its_channels_innermost(channels: int) -> None:
    """Grey pictures too, whose layout can't be told from their strides: 1 in 34 convolutions saw it once."""
    net = UNet2D(
        UNet2DConfig(
            in_channels=channels,
            out_channels=channels,
            block_out_channels=(8, 16, 16),
            down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=4,
        )
    )
    others: list[str] = []

    def listen(name: str) -> Callable[[torch.nn.Module, tuple[torch.Tensor, ...], torch.Tensor], None]:
        def hook(_: torch.nn.Module, __: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
            if not out.is_contiguous(memory_format=torch.channels_last):
                others.append(name)

        return hook

    for name, module in net.named_modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.GroupNorm) and name != "conv_in":
            module.register_forward_hook(listen(name))
    out = net(torch.randn(2, channels, 12, 12), torch.tensor([3, 700]))
    assert others == []
    assert out.is_contiguous()
