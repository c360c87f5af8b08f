"""When the shapes world decides what: the exact information that a noisy picture carries about each attribute.

I(Y; z) = H(Y) − E[H(Y | z)] for z = α·m + σ·ε, over scenes and noise. The posterior is exact, so each draw gives the
entropy H(Y | z) itself rather than the surprise −log p(y | z) of one outcome: the same mean with less variance.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from torch import Tensor

from denoscope.data.worlds.shapes.captions import Meaning, Mention
from denoscope.data.worlds.shapes.exact import Conditions, ExactShapes, Posterior, conditions, crop
from denoscope.data.worlds.shapes.scenes import (
    ATTRIBUTES,
    BACKGROUNDS,
    LAYOUT_PRIOR,
    LAYOUTS,
    POSITIONS,
    VALUES,
    Region,
    sample_scene,
)

ONE_OBJECT_ATTRIBUTES = (*ATTRIBUTES, "background", "position", "side")
"""What is asked of scenes with one object; ``side`` is left or right. ``layout`` is asked of all scenes."""
FRACTIONS = (0.1, 0.5, 0.9)
_BATCH = 32


@dataclass(frozen=True, slots=True)
class _Products:
    """Inner products of clean maps and of noise with every template.

    They are all that the posterior needs, at every noise level and with the noise's sign turned, so one pass over the
    templates serves the whole grid. In float64, whatever the templates are: the posterior then adds no rounding.
    """

    clean: dict[Region, Tensor]  # (B, 2, K): ⟨m, template⟩ − ‖template‖²/2
    noise: dict[Region, Tensor]  # (B, 2, K): ⟨ε, template⟩

    def posterior(self, logsnr: float, sign: int, given: Conditions) -> Posterior:
        """p(scene | α·m + sign·σ·ε) for the regions that were multiplied; other layouts are impossible."""
        snr = float(np.exp(logsnr))
        batch, objects = 0, {}
        evidence: dict[Region, Tensor] = {}
        for region, clean in self.clean.items():
            batch = len(clean)
            joint = snr * clean + sign * snr**0.5 * self.noise[region] + given.objects[region][:, None]
            evidence[region] = joint.logsumexp(-1)
            objects[region] = joint.log_softmax(-1)
        branches = torch.full((batch, len(LAYOUTS), len(BACKGROUNDS)), -torch.inf, dtype=torch.float64)
        for index, regions in enumerate(LAYOUTS.values()):
            if all(region in evidence for region in regions):
                evidences = torch.stack([evidence[region] for region in regions]).sum(0)
                branches[:, index] = evidences + given.layout[:, index, None]
        return Posterior(branches - branches.logsumexp((1, 2), keepdim=True), objects)


def _half_squares(world: ExactShapes, region: Region) -> Tensor:
    # In pieces: the squares of all the templates at once would double the memory.
    pieces = [piece.double().square().sum(-1) / 2 for half in world.templates[region] for piece in half.split(256)]
    return torch.cat(pieces).reshape(world.templates[region].shape[:2])


def _draws(
    world: ExactShapes, regions: tuple[Region, ...], n: int, rng: np.random.Generator, one_object: bool
) -> Iterator[_Products]:
    halves = {region: _half_squares(world, region) for region in regions}
    for start in range(0, n, _BATCH):
        size = min(_BATCH, n - start)
        scenes = [sample_scene(rng, "one" if one_object else None) for _ in range(size)]
        clean = torch.stack([world.scene_map(scene) for scene in scenes])
        noise = torch.from_numpy(rng.standard_normal(clean.shape)).to(clean.dtype)
        both = torch.cat([clean, noise])
        on_clean: dict[Region, Tensor] = {}
        on_noise: dict[Region, Tensor] = {}
        for region in regions:
            rows, columns = crop(region, *world.shape[1:])
            products = torch.einsum("bd,gkd->bgk", both[:, :, rows, columns].flatten(1), world.templates[region])
            on_clean[region], on_noise[region] = products[:size].double() - halves[region], products[size:].double()
        yield _Products(on_clean, on_noise)


def _entropy(p: Tensor) -> Tensor:
    """Entropy in nats over the last axis."""
    return torch.special.entr(p).sum(-1)


def _one_object_entropies(posterior: Posterior) -> Tensor:
    """H(Y | z) for each of ``ONE_OBJECT_ATTRIBUTES``: ``(attributes, B)``."""
    position = posterior.position("whole")
    left = torch.tensor([x < 32 for x, _ in POSITIONS["whole"]])
    side = torch.stack([position[:, left].sum(1), position[:, ~left].sum(1)], dim=1)
    marginals = [posterior.attribute(name, "whole") for name in ATTRIBUTES]
    return torch.stack([_entropy(p) for p in (*marginals, posterior.background(), position, side)])


def information_curves(world: ExactShapes, logsnr: ArrayLike, n: int = 512, seed: int = 0) -> xr.Dataset:
    """The information (nats) about each attribute in a picture noised to each level.

    ``logsnr`` are the levels, in any order; they are sorted. ``n`` scenes with one object give the curves of colour,
    shape, size, texture, background, position and side, given that there is one object; ``n`` scenes of all layouts
    give that of the layout. Every scene is noised once, with both signs of the noise, and followed over all levels.

    Returns ``information(attribute, logsnr)`` with its ``standard_error``, ``entropy(attribute)`` of the prior, and
    ``posterior_entropy(attribute, scene, logsnr)``, which :func:`half_times` resamples.

    Beside the world it holds 32 scenes' products with the templates and their posterior: less than 100 MB.

    Raises ``ValueError`` for fewer than 2 scenes or levels.

    >>> from denoscope.data.worlds.shapes.exact import pixels
    >>> coarse = lambda p: pixels(p).reshape(-1, 3, 8, 8, 8, 8).mean((3, 5))
    >>> curves = information_curves(ExactShapes.encoded(coarse), [-30, 30], n=32)
    >>> curves.information.sel(attribute="colour").values.round(3).tolist()  # all of log 8 = 2.079
    [0.0, 2.079]
    """
    levels = np.sort(np.asarray(logsnr, dtype=np.float64).ravel())
    if n < 2 or len(levels) < 2:
        raise ValueError(f"curves need at least 2 scenes and 2 levels, not {n} and {len(levels)}")
    rng = np.random.default_rng(seed)
    names = [*ONE_OBJECT_ATTRIBUTES, "layout"]
    entropies = np.zeros((len(names), n, len(levels)))

    done = 0
    given = conditions([Meaning("one", (Mention(),))], torch.float64)
    for products in _draws(world, ("whole",), n, rng, one_object=True):
        size = len(products.clean["whole"])
        for i, level in enumerate(levels):
            both = [_one_object_entropies(products.posterior(level, sign, given)) for sign in (1, -1)]
            entropies[:-1, done : done + size, i] = torch.stack(both).mean(0).numpy()
        done += size

    done = 0
    given = conditions([Meaning()], torch.float64)
    for products in _draws(world, tuple(world.templates), n, rng, one_object=False):
        size = len(products.clean["whole"])
        for i, level in enumerate(levels):
            both = [_entropy(products.posterior(level, sign, given).layout()) for sign in (1, -1)]
            entropies[-1, done : done + size, i] = torch.stack(both).mean(0).numpy()
        done += size

    prior = np.array([_prior_entropy(name) for name in names])
    return xr.Dataset(
        {
            "information": (("attribute", "logsnr"), prior[:, None] - entropies.mean(1), {"units": "nat"}),
            "standard_error": (("attribute", "logsnr"), entropies.std(1, ddof=1) / n**0.5, {"units": "nat"}),
            "entropy": ("attribute", prior, {"units": "nat"}),
            "posterior_entropy": (("attribute", "scene", "logsnr"), entropies, {"units": "nat"}),
        },
        coords={"attribute": names, "logsnr": levels},
        attrs={"n": n, "seed": seed},
    )


def _prior_entropy(name: str) -> float:
    if name == "layout":
        shares = np.array(list(LAYOUT_PRIOR.values()))
        return float(-(shares * np.log(shares)).sum())
    counts: dict[str, int] = {attribute: len(values) for attribute, values in VALUES.items()}
    counts |= {"background": len(BACKGROUNDS), "position": len(POSITIONS["whole"]), "side": 2}
    return float(np.log(counts[name]))


def half_times(curves: xr.Dataset, resamples: int = 1000, seed: int = 0) -> xr.Dataset:
    """Where each attribute's information passes 10, 50 and 90 % of its entropy, with 95 % bootstrap intervals.

    ``curves`` is what :func:`information_curves` returns. More noise never adds information, so each curve is first
    made non-decreasing in logsnr (isotonic regression), then interpolated linearly. The bootstrap resamples scenes.

    Returns ``time``, ``low`` and ``high`` over ``(attribute, fraction)``, in logsnr: the lower, the earlier.
    NaN where the grid does not reach a fraction; an interval is NaN if that happens in any resample.

    Raises ``ValueError`` for fewer than 2 resamples.
    """
    if resamples < 2:
        raise ValueError(f"an interval needs at least 2 resamples, not {resamples}")
    levels = curves["logsnr"].to_numpy().astype(np.float64)
    draws = curves["posterior_entropy"].transpose("attribute", "scene", "logsnr").to_numpy()
    prior = curves["entropy"].to_numpy()
    n = draws.shape[1]
    # Resampling n scenes with replacement is weighting them by multinomial counts.
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples) / n
    shape = (len(prior), len(FRACTIONS))
    time, low, high = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    for a, entropy in enumerate(prior):
        time[a] = _crossings(levels, 1 - draws[a].mean(0) / entropy)
        resampled = np.array([_crossings(levels, shares) for shares in 1 - weights @ draws[a] / entropy])
        low[a], high[a] = np.quantile(resampled, [0.025, 0.975], axis=0)
    axes = ("attribute", "fraction")
    return xr.Dataset(
        {"time": (axes, time), "low": (axes, low), "high": (axes, high)},
        coords={"attribute": curves["attribute"].to_numpy(), "fraction": list(FRACTIONS)},
        attrs={"n": n, "resamples": resamples, "seed": seed, "units": "logsnr"},
    )


def _crossings(levels: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where shares of the entropy, made non-decreasing over the levels, pass each of ``FRACTIONS``."""
    rising = isotonic_regression(shares).x
    found = np.full(len(FRACTIONS), np.nan)
    for i, fraction in enumerate(FRACTIONS):
        above = int(np.searchsorted(rising, fraction))
        if 0 < above < len(levels):
            below, step = rising[above - 1], rising[above] - rising[above - 1]
            found[i] = levels[above - 1] + (levels[above] - levels[above - 1]) * (fraction - below) / step
    return found
