"""``fashion``: a small classifier of Fashion-MNIST whose features measure grey pictures of 28×28, offline.

A stand-in for Inception and LPIPS where those say nothing: distances in its features compare models of Fashion-MNIST
with each other, and with nothing else.
"""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from denoscope.data.pictures import to_model_range
from denoscope.metrics.frechet import FeatureError

WIDTH: Final = 64
"""Number of features."""

_WEIGHTS: Final = "weights/fashion.safetensors"


class FashionNet(nn.Module):
    """Five 3×3 convolutions with batch norm, the mean over places, a linear layer: 28×28 to ten classes."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(1, 16, 1), (16, 32, 2), (32, WIDTH, 1), (WIDTH, WIDTH, 2), (WIDTH, WIDTH, 1)]
        self.convs = nn.ModuleList([nn.Conv2d(i, o, 3, stride, 1, bias=False) for i, o, stride in sizes])
        self.norms = nn.ModuleList([nn.BatchNorm2d(o) for _, o, _ in sizes])
        self.head = nn.Linear(WIDTH, 10)

    def maps(self, x: Tensor) -> list[Tensor]:
        """The map after each convolution, finest first: five of ``(B, C, H, W)``."""
        found = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = functional.relu(norm(conv(x)))
            found.append(x)
        return found

    def forward(self, x: Tensor) -> Tensor:
        """``(B, 1, 28, 28)`` in [−1, 1] to scores ``(B, 10)``."""
        scores: Tensor = self.head(self.maps(x)[-1].mean((2, 3)))
        return scores


class FashionExtractor:
    """The trained network, asked in batches so that memory stays small; features don't depend on the batch size.

    >>> pictures = torch.zeros(3, 1, 28, 28, dtype=torch.uint8)
    >>> FashionExtractor.load().features(pictures).shape
    (3, 64)
    """

    def __init__(self, net: FashionNet) -> None:
        self.net = net.eval().requires_grad_(False)

    @classmethod
    def load(cls, path: Path | None = None) -> "FashionExtractor":
        """The network that is shipped, or that of another file of weights (safetensors)."""
        net = FashionNet()
        with as_file(files("denoscope.metrics.extractors") / _WEIGHTS) as shipped:
            weights = load_file(path or shipped)
        net.load_state_dict({name: v.float() if v.is_floating_point() else v for name, v in weights.items()})
        return cls(net)

    def features(self, pictures: Tensor) -> NDArray[np.float64]:
        """``(N, 64)`` of pictures ``(N, 1, 28, 28)`` uint8.

        Raises :class:`~denoscope.metrics.frechet.FeatureError` for pictures of another kind.
        """
        parts = [self.net.maps(batch)[-1].mean((2, 3)) for batch in _batches(pictures)]
        return torch.cat(parts).double().numpy()

    def labels(self, pictures: Tensor) -> Tensor:
        """The most likely class of each picture, ``(N,)`` int64."""
        return torch.cat([self.net(batch).argmax(1) for batch in _batches(pictures)])

    def perceptual_distance(self, a: Tensor, b: Tensor) -> NDArray[np.float64]:
        """How different pictures look, pair by pair: ``(N,)``; LPIPS' form (Zhang et al. 2018, eq. 1), unweighted.

        At each place of each map, the squared distance between the two unit vectors of channels; its mean over places,
        summed over the five maps. Not LPIPS, and on another scale.
        """
        parts = []
        for one, other in zip(_batches(a), _batches(b), strict=True):
            total = torch.zeros(len(one))
            for x, y in zip(self.net.maps(one), self.net.maps(other), strict=True):
                gap = functional.normalize(x, dim=1) - functional.normalize(y, dim=1)
                total += gap.square().sum(1).mean((1, 2))
            parts.append(total)
        return torch.cat(parts).double().numpy()


def _batches(pictures: Tensor, size: int = 256) -> list[Tensor]:
    if pictures.dtype != torch.uint8 or pictures.shape[1:] != (1, 28, 28):
        raise FeatureError(
            f"the fashion extractor takes uint8 pictures (N, 1, 28, 28), not {pictures.dtype} {tuple(pictures.shape)}"
        )
    return [to_model_range(pictures[start : start + size]) for start in range(0, len(pictures), size)]
