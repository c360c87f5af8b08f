"""Inception-v3 as TensorFlow trained it in 2015 (Szegedy et al. 2016): 1008 classes, features for FID, IS and sFID.

Names of weights are those of ``pt_inception-2015-12-05-6726825d.pth``, which pytorch-fid and torch-fidelity share. It
differs from torchvision's network in three places: average pools don't count padding, the last block pools the maximum,
and batch norm has ε = 10⁻³.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from denoscope.metrics.frechet import FeatureError

FILE: Final = "pt_inception-2015-12-05-6726825d.pth"
SHA256_START: Final = "6726825d"
"""The file's name has the start of its SHA-256, as torch hub's files do."""
ADDRESS: Final = f"https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/{FILE}"
VARIABLE: Final = "DENOSCOPE_INCEPTION"
"""The environment variable that may hold the path of the weights."""
_SFID_CHANNELS: Final = 7


class ConvBN(nn.Module):
    """Convolution without bias, batch norm, ReLU."""

    def __init__(
        self, ins: int, outs: int, kernel: int | tuple[int, int], stride: int = 1, padding: bool = False
    ) -> None:
        super().__init__()
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = (sides[0] // 2, sides[1] // 2) if padding else (0, 0)
        self.conv = nn.Conv2d(ins, outs, sides, stride, pads, bias=False)
        self.bn = nn.BatchNorm2d(outs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, ins, h, w)`` to ``(B, outs, h', w')``."""
        return functional.relu(self.bn(self.conv(x)), inplace=True)


def average(x: Tensor) -> Tensor:
    """The mean over 3 × 3 places, of those that exist."""
    return functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def greatest(x: Tensor) -> Tensor:
    """The maximum over 3 × 3 places."""
    return functional.max_pool2d(x, 3, stride=1, padding=1)


class Wide(nn.Module):
    """35 × 35 (figure 5): 1 × 1, 5 × 5, twice 3 × 3, pool."""

    def __init__(self, ins: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = ConvBN(ins, 64, 1)
        self.branch5x5_1, self.branch5x5_2 = ConvBN(ins, 48, 1), ConvBN(48, 64, 5, padding=True)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = ConvBN(ins, 64, 1), ConvBN(64, 96, 3, padding=True)
        self.branch3x3dbl_3 = ConvBN(96, 96, 3, padding=True)
        self.branch_pool = ConvBN(ins, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, ins, 35, 35)`` to ``(B, 224 + pooled, 35, 35)``."""
        doubled = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat(
            [self.branch1x1(x), self.branch5x5_2(self.branch5x5_1(x)), doubled, self.branch_pool(average(x))], 1
        )


class ToMiddle(nn.Module):
    """35 × 35 to 17 × 17 (figure 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.branch3x3 = ConvBN(288, 384, 3, stride=2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = ConvBN(288, 64, 1), ConvBN(64, 96, 3, padding=True)
        self.branch3x3dbl_3 = ConvBN(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, 288, 35, 35)`` to ``(B, 768, 17, 17)``."""
        doubled = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), doubled, functional.max_pool2d(x, 3, 2)], 1)


class Middle(nn.Module):
    """17 × 17 (figure 6): 1 × 1, and 7 × 7 as rows and columns, once and twice; pool."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.branch1x1 = ConvBN(768, 192, 1)
        self.branch7x7_1, self.branch7x7_2 = ConvBN(768, inner, 1), ConvBN(inner, inner, (1, 7), padding=True)
        self.branch7x7_3 = ConvBN(inner, 192, (7, 1), padding=True)
        self.branch7x7dbl_1, self.branch7x7dbl_2 = ConvBN(768, inner, 1), ConvBN(inner, inner, (7, 1), padding=True)
        self.branch7x7dbl_3 = ConvBN(inner, inner, (1, 7), padding=True)
        self.branch7x7dbl_4 = ConvBN(inner, inner, (7, 1), padding=True)
        self.branch7x7dbl_5 = ConvBN(inner, 192, (1, 7), padding=True)
        self.branch_pool = ConvBN(768, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, 768, 17, 17)`` to the same."""
        once = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        twice = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        twice = self.branch7x7dbl_5(self.branch7x7dbl_4(twice))
        return torch.cat([self.branch1x1(x), once, twice, self.branch_pool(average(x))], 1)


class ToNarrow(nn.Module):
    """17 × 17 to 8 × 8."""

    def __init__(self) -> None:
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = ConvBN(768, 192, 1), ConvBN(192, 320, 3, stride=2)
        self.branch7x7x3_1, self.branch7x7x3_2 = ConvBN(768, 192, 1), ConvBN(192, 192, (1, 7), padding=True)
        self.branch7x7x3_3, self.branch7x7x3_4 = ConvBN(192, 192, (7, 1), padding=True), ConvBN(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, 768, 17, 17)`` to ``(B, 1280, 8, 8)``."""
        long = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([self.branch3x3_2(self.branch3x3_1(x)), long, functional.max_pool2d(x, 3, 2)], 1)


class Narrow(nn.Module):
    """8 × 8 (figure 7): branches that end in a row and a column side by side; ``pools`` the mean or the maximum."""

    def __init__(self, ins: int, pools: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.pools = pools
        self.branch1x1, self.branch3x3_1 = ConvBN(ins, 320, 1), ConvBN(ins, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = _row_and_column()
        self.branch3x3dbl_1, self.branch3x3dbl_2 = ConvBN(ins, 448, 1), ConvBN(448, 384, 3, padding=True)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = _row_and_column()
        self.branch_pool = ConvBN(ins, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, ins, 8, 8)`` to ``(B, 2048, 8, 8)``."""
        once, twice = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        parts = [self.branch1x1(x), self.branch3x3_2a(once), self.branch3x3_2b(once)]
        parts += [self.branch3x3dbl_3a(twice), self.branch3x3dbl_3b(twice), self.branch_pool(self.pools(x))]
        return torch.cat(parts, 1)


def _row_and_column() -> tuple[ConvBN, ConvBN]:
    return ConvBN(384, 384, (1, 3), padding=True), ConvBN(384, 384, (3, 1), padding=True)


class Inception(nn.Module):
    """The whole network, in evaluation mode and without gradients; output doesn't depend on the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = ConvBN(3, 32, 3, stride=2), ConvBN(32, 32, 3)
        self.Conv2d_2b_3x3 = ConvBN(32, 64, 3, padding=True)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = ConvBN(64, 80, 1), ConvBN(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = Wide(192, 32), Wide(256, 64), Wide(288, 64)
        self.Mixed_6a = ToMiddle()
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = Middle(128), Middle(160), Middle(160), Middle(192)
        self.Mixed_7a = ToNarrow()
        self.Mixed_7b, self.Mixed_7c = Narrow(1280, average), Narrow(2048, greatest)
        self.fc = nn.Linear(2048, 1008)
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """``(B, 3, 299, 299)``, about −1 to 1, to its features.

        ``pool`` ``(B, 2048)`` for FID, KID, PRDC; ``logits`` ``(B, 1008)`` without bias for IS; ``spatial``
        ``(B, 2023)``, seven channels of ``Mixed_6d.branch1x1``, places first, for sFID (Nash et al. 2021).
        """
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(functional.max_pool2d(x, 3, 2)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(functional.max_pool2d(x, 3, 2))))
        x = self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))
        spatial = self.Mixed_6d.branch1x1(x)[:, :_SFID_CHANNELS].permute(0, 2, 3, 1).flatten(1)
        x = self.Mixed_7a(self.Mixed_6e(self.Mixed_6d(x)))
        pool = self.Mixed_7c(self.Mixed_7b(x)).mean((2, 3))
        return {"pool": pool, "logits": pool @ self.fc.weight.T, "spatial": spatial}


def load_inception(path: Path | None = None) -> tuple[Inception, str]:
    """The network with the weights of a file, and the file's SHA-256.

    ``path``, or that in the environment variable ``DENOSCOPE_INCEPTION``, or :data:`FILE` in torch hub's folder of
    checkpoints; ``.pth`` (read without unpickling) or ``.safetensors``. Raises :class:`FeatureError` that says which
    file to put where, when there is none, and for a file of another network.
    """
    given = path or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    found = given or Path(torch.hub.get_dir()) / "checkpoints" / FILE
    if not found.is_file():
        raise FeatureError(
            f"there are no weights of Inception at {found}: put {ADDRESS} there, or give its path by --weights or the "
            f"environment variable {VARIABLE}; or measure with --features shapes or fashion, which are shipped"
        )
    net = Inception()
    try:
        weights = load_file(found) if found.suffix == ".safetensors" else torch.load(found, weights_only=True)
        net.load_state_dict({name: value for name, value in weights.items() if not name.startswith("AuxLogits.")})
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FeatureError(f"{found} holds no weights of this Inception ({reason})") from error
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    if given is None and not digest.startswith(SHA256_START):
        raise FeatureError(f"{found} is not the file of that name: its SHA-256 begins with {digest[:8]}")
    return net.eval(), digest
