"""The exact truth about a noisy picture (or latent) of the shapes world.

The world is a finite mixture: z = α·m + σ·ε with m one of finitely many templates and ε ~ N(0, I). So the posterior
over templates is a softmax of −‖z − α·m‖²/2σ² + log prior, and the optimal denoiser is its mean. Two-object scenes are
products: given layout and background the halves are independent, so their templates are never enumerated as pairs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from denoscope.data.worlds.shapes.captions import Meaning, place_holds
from denoscope.data.worlds.shapes.rendering import render
from denoscope.data.worlds.shapes.scenes import (
    ATTRIBUTES,
    BACKGROUNDS,
    LAYOUT_PRIOR,
    LAYOUTS,
    POSITIONS,
    VALUES,
    Attribute,
    Layout,
    Region,
    Scene,
    table,
    things,
)

Encoder = Callable[[NDArray[np.uint8]], Tensor]
_LAYOUT_OF: dict[Region, Layout] = {region: layout for layout, regions in LAYOUTS.items() for region in regions}


def pixels(pictures: NDArray[np.uint8]) -> Tensor:
    """The encoder of the picture space: ``(n, 64, 64, 3)`` uint8 to ``(n, 3, 64, 64)`` in [−1, 1]."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).double() / 127.5 - 1


def crop(region: Region, height: int, width: int) -> tuple[slice, slice]:
    """The rows and columns of a map that belong to a region."""
    rows = {"top": slice(0, height // 2), "bottom": slice(height // 2, height)}.get(region, slice(0, height))
    columns = {"left": slice(0, width // 2), "right": slice(width // 2, width)}.get(region, slice(0, width))
    return rows, columns


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a batch of captions allows, as log probabilities.

    ``layout`` is ``(B, 3)``, normalised. ``objects[region]`` is ``(B, K)``, the normalised log prior of each row of
    ``table(region)`` (−inf where the caption forbids it).
    """

    layout: Tensor
    objects: dict[Region, Tensor]


@dataclass(frozen=True, slots=True)
class Posterior:
    """p(scene | noisy map, caption) for a batch of B maps, as log probabilities.

    ``branches`` is ``(B, 3, 2)`` over layout × background. ``objects[region]`` is ``(B, 2, K)``: given the region's
    layout and the background, over the rows of ``table(region)``.
    """

    branches: Tensor
    objects: dict[Region, Tensor]

    def layout(self) -> Tensor:
        """p(layout): ``(B, 3)`` in the order of ``LAYOUTS``."""
        return self.branches.logsumexp(2).exp()

    def background(self) -> Tensor:
        """p(background): ``(B, 2)`` in the order of ``BACKGROUNDS``."""
        return self.branches.logsumexp(1).exp()

    def rows(self, region: Region) -> Tensor:
        """p(object | layout) over the rows of ``table(region)``, averaged over backgrounds: ``(B, K)``.

        Zero where the caption excludes the region's layout.
        """
        given = self.branches[:, list(LAYOUTS).index(_LAYOUT_OF[region])]
        total = given.logsumexp(1, keepdim=True)
        weights = (given - total).masked_fill(total.isneginf(), -torch.inf).exp()
        return (weights[:, :, None] * self.objects[region].exp()).sum(1)

    def attribute(self, name: Attribute, region: Region) -> Tensor:
        """p(attribute | layout) of the object in a region: ``(B, number of values)``."""
        index = torch.from_numpy(table(region)[:, ATTRIBUTES.index(name)])
        rows = self.rows(region)
        return torch.zeros(len(rows), len(VALUES[name]), dtype=rows.dtype).index_add_(1, index, rows)

    def position(self, region: Region) -> Tensor:
        """p(position | layout) of the object in a region: ``(B, number of positions)``."""
        rows = self.rows(region)
        return rows.reshape(len(rows), -1, len(POSITIONS[region])).sum(1)


def conditions(meanings: Sequence[Meaning], dtype: torch.dtype = torch.float32) -> Conditions:
    """The log prior over scenes that each caption leaves.

    >>> from denoscope.data.worlds.shapes.captions import parse
    >>> given = conditions([parse("a red circle"), parse("")])
    >>> given.layout.exp().tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]
    >>> int(given.objects["whole"][0].isfinite().sum())  # 2 sizes × 2 textures × 36 positions
    144
    """
    prior = [LAYOUT_PRIOR[name] for name in LAYOUTS]
    layout = torch.tensor(
        [
            prior if meaning.layout is None else [float(name == meaning.layout) for name in LAYOUTS]
            for meaning in meanings
        ],
        dtype=dtype,
    ).log()
    objects: dict[Region, Tensor] = {}
    for name, regions in LAYOUTS.items():
        for slot, region in enumerate(regions):
            rows = torch.from_numpy(table(region))
            named = torch.tensor([_named(meaning, name, slot) for meaning in meanings])
            # One attribute after the other keeps the memory at B·K rather than B·K·4 values.
            allowed = torch.ones(len(meanings), len(rows), dtype=torch.bool)
            for column in range(len(ATTRIBUTES)):
                wanted = named[:, column, None]
                allowed &= (wanted < 0) | (wanted == rows[:, column])
            for i, meaning in enumerate(meanings):
                if meaning.layout == name and meaning.place is not None:
                    holds = [place_holds(meaning.place, x, y) for x, y in POSITIONS[region]]
                    allowed[i] &= torch.tensor(holds)[rows[:, 4]]
            count = allowed.sum(1, keepdim=True).to(dtype)
            objects[region] = torch.where(allowed, -count.log(), torch.tensor(-torch.inf, dtype=dtype))
    return Conditions(layout, objects)


def _named(meaning: Meaning, layout: Layout, slot: int) -> list[int]:
    """The attribute values that a caption names for one object of a layout; −1 where it leaves them open."""
    if meaning.layout != layout:
        return [-1] * len(ATTRIBUTES)
    said = ((name, meaning.mentions[slot].value(name)) for name in ATTRIBUTES)
    return [-1 if value is None else VALUES[name].index(value) for name, value in said]


class ExactShapes:
    """The templates of the world in some space, and the closed forms on them.

    ``templates[region]`` is ``(2, K, d)``: background × object × the region's flattened map; ``shape`` is the whole
    map's ``(c, h, w)``. The map of a two-object scene is put together from its objects' maps, each object alone on the
    background: exact in picture space, a definition in latent space.

    Memory: 9,216 whole and 4 × 1,024 half templates, which is 0.6 GB in float32 in picture space (12,288 numbers each)
    and 11 MB for 8×8×4 latents.
    """

    def __init__(self, templates: dict[Region, Tensor], shape: tuple[int, int, int]) -> None:
        self.templates = templates
        self.shape = shape
        self.dtype = next(iter(templates.values())).dtype

    @classmethod
    def encoded(cls, encode: Encoder, dtype: torch.dtype = torch.float32, batch: int = 256) -> Self:
        """Every object of the world, encoded.

        ``encode`` maps pictures ``(n, 64, 64, 3)`` uint8 to maps ``(n, c, h, w)``; :func:`pixels` is the picture space
        itself, an autoencoder's mean gives its latent space.

        >>> coarse = lambda p: torch.from_numpy(p[:, ::16, ::16]).permute(0, 3, 1, 2) / 127.5 - 1
        >>> ExactShapes.encoded(coarse).shape
        (3, 4, 4)
        """
        templates: dict[Region, Tensor] = {}
        shape = (0, 0, 0)
        for region in (region for regions in LAYOUTS.values() for region in regions):
            per_background = []
            for background in BACKGROUNDS:
                pictures = [render(Scene("one", (item,), background)) for item in things(region)]
                maps = []
                for start in range(0, len(pictures), batch):
                    encoded = encode(np.stack(pictures[start : start + batch]))
                    shape = (int(encoded.shape[1]), int(encoded.shape[2]), int(encoded.shape[3]))
                    rows, columns = crop(region, *shape[1:])
                    maps.append(encoded[:, :, rows, columns].to(dtype).flatten(1))
                per_background.append(torch.cat(maps))
            templates[region] = torch.stack(per_background)
        return cls(templates, shape)

    @cached_property
    def _half_squares(self) -> dict[Region, Tensor]:
        return {region: templates.square().sum(-1) / 2 for region, templates in self.templates.items()}

    def scene_map(self, scene: Scene) -> Tensor:
        """The clean map of one scene: ``(c, h, w)``."""
        result = torch.empty(self.shape, dtype=self.dtype)
        for region, item in zip(LAYOUTS[scene.layout], scene.things, strict=True):
            values = [VALUES[name].index(item.value(name)) for name in ATTRIBUTES]
            values.append(POSITIONS[region].index((item.x, item.y)))
            counts = [len(VALUES[name]) for name in ATTRIBUTES] + [len(POSITIONS[region])]
            row = int(np.ravel_multi_index(values, counts))
            rows, columns = crop(region, *self.shape[1:])
            template = self.templates[region][BACKGROUNDS.index(scene.background), row]
            result[:, rows, columns] = template.reshape(result[:, rows, columns].shape)
        return result

    def posterior(self, z: Tensor, logsnr: Tensor | float, given: Conditions) -> Posterior:
        """p(scene | z, caption) for variance-preserving noise.

        ``z`` is ``(B, c, h, w)``, equal to √sigmoid(logsnr)·m + √sigmoid(−logsnr)·ε; ``logsnr`` is a number or
        ``(B,)``.
        """
        # Beyond 60 the posterior is certain; the ratios below would overflow at the noiseless end of a schedule.
        logsnr = torch.as_tensor(logsnr, dtype=self.dtype).clamp(max=60).expand(len(z))
        alpha, variance = torch.sigmoid(logsnr).sqrt(), torch.sigmoid(-logsnr)
        objects: dict[Region, Tensor] = {}
        evidence: dict[Region, Tensor] = {}
        for region, templates in self.templates.items():
            rows, columns = crop(region, *self.shape[1:])
            part = z[:, :, rows, columns].to(self.dtype).flatten(1)
            products = torch.einsum("bd,gkd->bgk", part, templates)
            # ‖z‖² is the same for every template of every layout (the regions of a layout tile the map): left out.
            loglik = (alpha / variance)[:, None, None] * products
            loglik = loglik - (alpha**2 / variance)[:, None, None] * self._half_squares[region]
            joint = loglik + given.objects[region].to(self.dtype)[:, None]
            evidence[region] = joint.logsumexp(-1)
            # Not joint − evidence: far from zero that difference would lose single precision.
            objects[region] = joint.log_softmax(-1)
        branches = torch.stack(
            [torch.stack([evidence[r] for r in regions]).sum(0) for regions in LAYOUTS.values()], dim=1
        )
        branches = branches + given.layout.to(self.dtype)[:, :, None] - math.log(len(BACKGROUNDS))
        return Posterior(branches - branches.logsumexp((1, 2), keepdim=True), objects)

    def denoise(self, z: Tensor, logsnr: Tensor | float, given: Conditions) -> Tensor:
        """The optimal denoiser E[m | z, caption]: ``(B, c, h, w)``; arguments as in :meth:`posterior`."""
        posterior = self.posterior(z, logsnr, given)
        weights = posterior.branches.exp()
        mean = torch.zeros(len(z), *self.shape, dtype=self.dtype)
        for index, regions in enumerate(LAYOUTS.values()):
            for region in regions:
                rows, columns = crop(region, *self.shape[1:])
                target = mean[:, :, rows, columns]
                scaled = weights[:, index, :, None] * posterior.objects[region].exp()
                target += torch.einsum("bgk,gkd->bd", scaled, self.templates[region]).reshape(target.shape)
        return mean
