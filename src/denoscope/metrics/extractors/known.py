"""Extractors by name, ready for a pass over pictures."""

import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, cast

import numpy as np
import torch
from torch import Tensor, nn

from denoscope.metrics.extraction import Extractor
from denoscope.metrics.extractors.fashion import FashionExtractor
from denoscope.metrics.extractors.inception import load_inception
from denoscope.metrics.extractors.shapes import load_shapes_net
from denoscope.metrics.frechet import FeatureError
from denoscope.metrics.image_sets import Pixels
from denoscope.metrics.protocols import Protocol, bilinear_antialiased, preparation

NAMES: Final = ("inception", "dinov2", "clip", "shapes", "fashion")


def extractor(name: str, *, protocol: Protocol = "tf1", weights: Path | None = None, device: str = "cpu") -> Extractor:
    """An extractor by its name, or a function ``python:module:fn`` of the user's own.

    ``protocol`` is for ``inception`` alone. ``weights`` is a file for ``inception``, ``shapes`` and ``fashion``, and a
    folder saved by transformers for ``clip`` and ``dinov2``. A function takes a list of pictures ``(H, W, 3)`` uint8
    and gives features ``(n, d)``; its module is looked for in the working folder, too.

    Raises :class:`~denoscope.metrics.FeatureError` for an unknown name, weights that aren't there or fit nothing.

    >>> extractor("shapes").identity["resize"]
    'antialiased bilinear to 64 × 64'
    """
    if name.startswith("python:"):
        return _own(name)
    if name not in NAMES:
        raise FeatureError(f"there are no features {name!r}; known are {', '.join(NAMES)} and python:module:function")
    if name == "inception":
        net, digest = load_inception(weights)
        prepared = preparation(protocol)
        identity = {"weights": digest, "resize": prepared.told, "protocol": protocol, "dtype": "float32"}
        return Extractor(name, identity, lambda pixels: prepared(channels_first(pixels)), net.to(device))
    if name in ("clip", "dinov2"):
        # transformers takes seconds to import, and the other extractors do without.
        from denoscope.metrics.extractors.language import load_clip, load_dinov2

        return (load_clip if name == "clip" else load_dinov2)(weights, device)
    if name == "shapes":
        shapes = load_shapes_net(weights)
        identity = {"weights": state_digest(shapes), "resize": "antialiased bilinear to 64 × 64", "dtype": "float32"}
        return Extractor(name, identity, partial(_small, side=64), shapes.to(device), batch=128)
    fashion = FashionExtractor.load(weights).net.to(device)
    identity = {"weights": state_digest(fashion), "resize": "grey, antialiased bilinear to 28 × 28", "dtype": "float32"}

    def forward(x: Tensor) -> dict[str, Tensor]:
        pool = fashion.maps(x)[-1].mean((2, 3))
        return {"pool": pool, "logits": fashion.head(pool)}

    return Extractor(name, identity, lambda pixels: _small(pixels, 28).mean(0, keepdim=True), forward, batch=256)


def channels_first(pixels: Pixels) -> Tensor:
    """``(H, W, 3)`` to ``(3, H, W)``."""
    return torch.from_numpy(np.array(pixels, copy=True)).permute(2, 0, 1)


def state_digest(net: nn.Module) -> str:
    """A hash of a network's weights, by name."""
    told = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        told.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return told.hexdigest()


def _small(pixels: Pixels, side: int) -> Tensor:
    levels = channels_first(pixels).float()
    if levels.shape[1:] != (side, side):
        levels = bilinear_antialiased(levels, side, side)
    return levels / 127.5 - 1


def _own(name: str) -> Extractor:
    module, _, function = name.removeprefix("python:").partition(":")
    if not module or not function:
        raise FeatureError(f"{name!r} names no function: write python:module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise FeatureError(f"{name!r} can't be loaded ({error})") from error
    source = Path(str(getattr(sys.modules[module], "__file__", "")))
    digest = hashlib.sha256(source.read_bytes()).hexdigest() if source.is_file() else "unknown"
    own = cast("Callable[[list[Pixels]], object]", found)

    def forward(x: Tensor) -> Mapping[str, Tensor]:
        held = torch.as_tensor(np.asarray(own([picture.numpy() for picture in x])), dtype=torch.float32)
        if held.ndim != 2 or len(held) != len(x):
            raise FeatureError(f"{name} gave {tuple(held.shape)} for {len(x)} pictures, and (n, d) is needed")
        return {"pool": held}

    def whole(pixels: Pixels) -> Tensor:
        return torch.from_numpy(np.array(pixels, copy=True))

    # One picture at a time: theirs may differ in size.
    return Extractor(name.replace(":", "."), {"source": digest}, whole, forward, batch=1)
