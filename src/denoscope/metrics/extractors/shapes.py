"""``shapes``: a small network that names what pictures of the shapes world show; its features measure them offline."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from denoscope.data.worlds.shapes.scenes import BACKGROUNDS, COLOURS, LAYOUTS, SHAPES, SIZES, TEXTURES, Scene

WIDTH: Final = 96
"""Number of features."""

KINDS: Final = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)
LABELS: Final = (*KINDS, *SIZES, *TEXTURES, *(f"background {level}" for level in BACKGROUNDS), *LAYOUTS)
"""What may be said of a picture: which coloured shapes there are, sizes, textures, background, layout."""

WEIGHTS: Final = "weights/shapes.safetensors"


class ShapesNet(nn.Module):
    """Six 3×3 convolutions with batch norm, the mean over places, a linear layer: 64×64 to a score for each label."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(3, 24, 2), (24, 32, 1), (32, 64, 2), (64, 64, 1), (64, WIDTH, 2), (WIDTH, WIDTH, 1)]
        self.convs = nn.ModuleList([nn.Conv2d(i, o, 3, stride, 1, bias=False) for i, o, stride in sizes])
        self.norms = nn.ModuleList([nn.BatchNorm2d(o) for _, o, _ in sizes])
        self.head = nn.Linear(WIDTH, len(LABELS))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """``(B, 3, 64, 64)`` in [−1, 1] to ``pool`` ``(B, 96)``, ``scores`` ``(B, 41)``, ``logits`` (kinds)."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = functional.relu(norm(conv(x)))
        pool = x.mean((2, 3))
        scores = self.head(pool)
        return {"pool": pool, "scores": scores, "logits": scores[:, : len(KINDS)]}


def labels_of(scene: Scene) -> list[bool]:
    """Which of :data:`LABELS` hold."""
    true = {f"{thing.colour} {thing.shape}" for thing in scene.things}
    true |= {thing.size for thing in scene.things} | {thing.texture for thing in scene.things}
    true |= {f"background {scene.background}", scene.layout}
    return [label in true for label in LABELS]


def load_shapes_net(path: Path | None = None) -> ShapesNet:
    """The network that is shipped, or that of another file of weights (safetensors), ready to ask.

    >>> import torch
    >>> net = load_shapes_net()
    >>> {name: tuple(found.shape) for name, found in net(torch.zeros(2, 3, 64, 64)).items()}
    {'pool': (2, 96), 'scores': (2, 41), 'logits': (2, 32)}
    """
    net = ShapesNet()
    with as_file(files("denoscope.metrics.extractors") / WEIGHTS) as shipped:
        weights = load_file(path or shipped)
    net.load_state_dict({name: v.float() if v.is_floating_point() else v for name, v in weights.items()})
    return net.eval().requires_grad_(False)
