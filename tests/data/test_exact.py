"""The closed forms against brute force: every scene rendered, its whole picture compared with the noisy one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from denoscope.data.worlds.shapes.captions import parse
from denoscope.data.worlds.shapes.exact import Conditions, ExactShapes, conditions, crop, pixels
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
    Thing,
    sample_scene,
    things,
)

CERTAIN: dict[Layout, float] = dict.fromkeys(LAYOUTS, 1.0)  # for lists of scenes of one layout
LEVELS = (-12.0, -6.0, -4.0, -2.0, 0.0, 2.0, 8.0)


def pooled(pictures: NDArray[np.uint8]) -> Tensor:
    """Means of blocks of 8 by 8 pixels: a map (3, 8, 8) to which each half of a picture contributes by itself."""
    return pixels(pictures).reshape(-1, 3, 8, 8, 8, 8).mean((3, 5))


def noise_scales(logsnr: float) -> tuple[float, float]:
    snr = np.exp(logsnr)
    return float(np.sqrt(snr / (1 + snr))), float(np.sqrt(1 / (1 + snr)))


@dataclass
class BruteForce:
    """A list of scenes with their prior. Knows nothing of regions, products or halves."""

    scenes: list[Scene]
    prior: NDArray[np.float64]
    maps: NDArray[np.float64]

    @classmethod
    def of(cls, scenes: Iterable[Scene], prior: dict[Layout, float]) -> "BruteForce":
        listed = list(scenes)
        counts = {layout: sum(scene.layout == layout for scene in listed) for layout in LAYOUTS}
        weights = np.array([prior[scene.layout] / counts[scene.layout] for scene in listed])
        maps = [pooled(np.stack([render(s) for s in listed[i : i + 512]])) for i in range(0, len(listed), 512)]
        return cls(listed, weights, torch.cat(maps).flatten(1).numpy())

    def posterior(self, z: NDArray[np.float64], logsnr: float) -> NDArray[np.float64]:
        """p(scene | z), from the squared distance of the whole map."""
        alpha, sigma = noise_scales(logsnr)
        logp = np.log(self.prior) - np.square(z - alpha * self.maps).sum(1) / (2 * sigma**2)
        weights = np.exp(logp - logp.max())
        result: NDArray[np.float64] = weights / weights.sum()
        return result

    def marginal(self, posterior: NDArray[np.float64], key: Callable[[Scene], int], size: int) -> NDArray[np.float64]:
        """p(key(scene) = 0 … size − 1 | z); scenes of key −1 are left out."""
        keys = np.array([key(scene) for scene in self.scenes])
        result: NDArray[np.float64] = np.bincount(keys[keys >= 0], posterior[keys >= 0], size).astype(np.float64)
        return result


def one_object() -> list[Scene]:
    return [Scene("one", (item,), background) for background in BACKGROUNDS for item in things("whole")]


def pairs(layout: Layout, first: Callable[[Thing], bool], second: Callable[[Thing], bool]) -> list[Scene]:
    regions = LAYOUTS[layout]
    firsts = [item for item in things(regions[0]) if first(item)]
    seconds = [item for item in things(regions[1]) if second(item)]
    return [Scene(layout, both, background) for both in product(firsts, seconds) for background in BACKGROUNDS]


def plain_circle(item: Thing) -> bool:
    return item.shape == "circle" and item.texture == "plain"


@pytest.fixture(scope="module")
def world() -> ExactShapes:
    return ExactShapes.encoded(pooled, dtype=torch.float64)


@pytest.fixture(scope="module")
def mixed() -> BruteForce:
    """All 9,216 one-object scenes and the 16,384 pairs of plain circles."""
    scenes = one_object()
    for layout in ("vertical", "horizontal"):
        scenes += pairs(layout, plain_circle, plain_circle)
    return BruteForce.of(scenes, LAYOUT_PRIOR)


def mixed_conditions(batch: int, dtype: torch.dtype = torch.float64) -> Conditions:
    """What the scenes of ``mixed`` are, put together from captions that do allow them."""
    anything, above, beside = (
        conditions([parse(text)] * batch, dtype)
        for text in ("", "a plain circle above a plain circle", "a plain circle to the left of a plain circle")
    )
    objects = dict(anything.objects)
    objects |= {region: above.objects[region] for region in LAYOUTS["vertical"]}
    objects |= {region: beside.objects[region] for region in LAYOUTS["horizontal"]}
    return Conditions(anything.layout, objects)


def noisy(reference: BruteForce, logsnr: float, count: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    alpha, sigma = noise_scales(logsnr)
    chosen = reference.maps[rng.choice(len(reference.scenes), size=count, p=reference.prior)]
    return alpha * chosen + sigma * rng.standard_normal(chosen.shape)


def assert_agrees(
    world: ExactShapes, reference: BruteForce, given: Conditions, z: NDArray[np.float64], logsnr: float, atol: float
) -> None:
    """Everything that a posterior and the denoiser tell, against sums over scenes."""
    maps = torch.from_numpy(z).reshape(len(z), *world.shape).to(world.dtype)
    posterior = world.posterior(maps, logsnr, given)
    denoised = world.denoise(maps, logsnr, given).flatten(1).numpy()
    layouts = list(LAYOUTS)
    for i in range(len(z)):
        weights = reference.posterior(z[i], logsnr)
        np.testing.assert_allclose(denoised[i], weights @ reference.maps, atol=atol, rtol=0)

        def check(got: Tensor, key: Callable[[Scene], int], weights: NDArray[np.float64] = weights, i: int = i) -> None:
            truth = reference.marginal(weights, key, got.shape[-1])
            np.testing.assert_allclose(got[i].numpy(), truth, atol=atol, rtol=0)

        check(posterior.layout(), lambda scene: layouts.index(scene.layout))
        check(posterior.background(), lambda scene: BACKGROUNDS.index(scene.background))
        for layout, regions in LAYOUTS.items():
            share = posterior.layout()[:, [layouts.index(layout)]]
            for slot, region in enumerate(regions):
                for name in ATTRIBUTES:

                    def value(scene: Scene, layout: Layout = layout, slot: int = slot, name: Attribute = name) -> int:
                        return VALUES[name].index(scene.things[slot].value(name)) if scene.layout == layout else -1

                    # The posterior is given the layout: times p(layout), so that impossible layouts weigh nothing.
                    check(share * posterior.attribute(name, region), value)

                def place(scene: Scene, layout: Layout = layout, slot: int = slot, region: Region = region) -> int:
                    item = scene.things[slot] if scene.layout == layout else None
                    return -1 if item is None else POSITIONS[region].index((item.x, item.y))

                check(share * posterior.position(region), place)


@pytest.mark.parametrize("logsnr", LEVELS)
def test_unconditional_posterior_and_denoiser_are_those_of_brute_force(
    world: ExactShapes, mixed: BruteForce, logsnr: float
) -> None:
    z = noisy(mixed, logsnr, count=6, seed=1)
    assert_agrees(world, mixed, mixed_conditions(6), z, logsnr, atol=1e-10)


@pytest.mark.parametrize("logsnr", LEVELS)
def test_float32_is_good_to_four_digits(world: ExactShapes, mixed: BruteForce, logsnr: float) -> None:
    single = ExactShapes({region: part.float() for region, part in world.templates.items()}, world.shape)
    z = noisy(mixed, logsnr, count=3, seed=2)
    assert_agrees(single, mixed, mixed_conditions(3, torch.float32), z, logsnr, atol=1e-4)


def _red_left(item: Thing) -> bool:
    return item.colour == "red" and item.size == "large" and item.x < 32


def _low_striped_cross(item: Thing) -> bool:
    return item.texture == "striped" and item.shape == "cross" and item.y > 32


CAPTIONED: dict[str, Callable[[], list[Scene]]] = {
    "a big crimson shape on the left": lambda: [s for s in one_object() if _red_left(s.things[0])],
    "a striped cross at the bottom": lambda: [
        s
        for s in one_object()
        if (s.things[0].texture, s.things[0].shape) == ("striped", "cross") and s.things[0].y > 32
    ],
    "a small red circle above a large striped square": lambda: pairs(
        "vertical",
        lambda item: (item.size, item.colour, item.shape) == ("small", "red", "circle"),
        lambda item: (item.size, item.texture, item.shape) == ("large", "striped", "square"),
    ),
    "a blue triangle to the right of a plain pink shape": lambda: pairs(
        "horizontal",
        lambda item: (item.texture, item.colour) == ("plain", "pink"),
        lambda item: (item.colour, item.shape) == ("blue", "triangle"),
    ),
}


@pytest.mark.parametrize("caption", CAPTIONED)
@pytest.mark.parametrize("logsnr", [-5.0, -1.0, 8.0])
def test_captioned_posterior_and_denoiser_are_those_of_brute_force(
    world: ExactShapes, caption: str, logsnr: float
) -> None:
    scenes = CAPTIONED[caption]()
    reference = BruteForce.of(scenes, CERTAIN)
    z = noisy(reference, logsnr, count=4, seed=3)
    assert_agrees(world, reference, conditions([parse(caption)] * 4, torch.float64), z, logsnr, atol=1e-10)


def test_a_caption_that_does_not_fit_the_picture_still_rules(world: ExactShapes) -> None:
    reference = BruteForce.of(CAPTIONED["a striped cross at the bottom"](), CERTAIN)
    alpha, sigma = noise_scales(0.0)
    wrong = pooled(render(Scene("one", (Thing("cyan", "circle", "large", "plain", 20, 20),), 92))[None])
    z = alpha * wrong.flatten(1).numpy() + sigma * np.random.default_rng(0).standard_normal((1, 192))
    given = conditions([parse("a striped cross at the bottom")], torch.float64)
    assert_agrees(world, reference, given, z, 0.0, atol=1e-10)


def test_one_batch_may_mix_levels_and_captions(world: ExactShapes) -> None:
    texts, levels = ["", "a red circle", "a shape above a blue shape"], torch.tensor([-3.0, 0.0, 3.0])
    z = torch.randn(3, *world.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = world.denoise(z, levels, conditions([parse(text) for text in texts], torch.float64))
    for i, text in enumerate(texts):
        alone = world.denoise(z[[i]], float(levels[i]), conditions([parse(text)], torch.float64))
        torch.testing.assert_close(together[[i]], alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("caption", CAPTIONED)
def test_limits_are_the_prior_mean_and_the_true_scene(world: ExactShapes, caption: str) -> None:
    scenes = CAPTIONED[caption]()
    given = conditions([parse(caption)], torch.float64)
    mean = BruteForce.of(scenes, CERTAIN).maps.mean(0)
    noise = torch.randn(1, *world.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for logsnr, atol in ((-60.0, 1e-10), (-torch.inf, 1e-12)):
        blind = world.denoise(noise, logsnr, given).flatten().numpy()
        np.testing.assert_allclose(blind, mean, atol=atol, rtol=0)
    scene = scenes[len(scenes) // 3]
    for logsnr in (14.0, 40.0, 200.0, torch.inf):
        level = torch.tensor(logsnr, dtype=torch.float64)
        z = level.sigmoid().sqrt() * world.scene_map(scene) + (-level).sigmoid().sqrt() * noise
        torch.testing.assert_close(world.denoise(z, logsnr, given)[0], world.scene_map(scene), atol=1e-10, rtol=0)


@pytest.mark.parametrize("logsnr", [-torch.inf, -200.0, -30.0, 14.0, 40.0, 80.0, 200.0, torch.inf])
def test_float32_at_extreme_levels(world: ExactShapes, logsnr: float) -> None:
    single = ExactShapes({region: part.float() for region, part in world.templates.items()}, world.shape)
    rng = np.random.default_rng(4)
    clean = torch.stack([world.scene_map(sample_scene(rng)) for _ in range(8)])
    level = torch.tensor(logsnr, dtype=torch.float64)
    noise = torch.from_numpy(rng.standard_normal(clean.shape))
    z = level.sigmoid().sqrt() * clean + (-level).sigmoid().sqrt() * noise
    double = world.denoise(z, logsnr, conditions([parse("")] * 8, torch.float64))
    torch.testing.assert_close(
        single.denoise(z.float(), logsnr, conditions([parse("")] * 8)).double(), double, atol=1e-5, rtol=0
    )
    if logsnr > 0:
        torch.testing.assert_close(double, clean, atol=1e-10, rtol=0)


@pytest.mark.parametrize("logsnr", [-3.0, -1.0])
def test_the_denoiser_is_the_minimiser_and_the_posterior_is_calibrated(world: ExactShapes, logsnr: float) -> None:
    rng = np.random.default_rng(5)
    alpha, sigma = noise_scales(logsnr)
    along, errors, larger, smaller, surprise = [], [], [], [], []
    given = conditions([parse("")] * 250, torch.float64)
    for _ in range(8):
        scenes = [sample_scene(rng) for _ in range(250)]
        clean = torch.stack([world.scene_map(scene) for scene in scenes])
        z = alpha * clean + sigma * torch.from_numpy(rng.standard_normal(clean.shape))
        best, posterior = world.denoise(z, logsnr, given), world.posterior(z, logsnr, given)
        along.append(((clean - best) * best).sum((1, 2, 3)))
        errors.append(clean - best)
        larger.append((clean - 1.2 * best).square().sum((1, 2, 3)) - (clean - best).square().sum((1, 2, 3)))
        smaller.append((clean - 0.8 * best).square().sum((1, 2, 3)) - (clean - best).square().sum((1, 2, 3)))
        layouts = torch.tensor([list(LAYOUTS).index(scene.layout) for scene in scenes])
        surprise.append(torch.nn.functional.one_hot(layouts, 3) - posterior.layout())
    orthogonal, error = torch.cat(along), torch.cat(errors)
    assert abs(orthogonal.mean()) < 4 * orthogonal.std() / len(orthogonal) ** 0.5
    assert torch.cat(larger).mean() > 0
    assert torch.cat(smaller).mean() > 0
    # Both have mean zero: 192 z-scores, and 3, none of which is far out.
    assert (error.mean(0) / (error.std(0) / len(error) ** 0.5)).abs().max() < 4.5
    calibration = torch.cat(surprise)
    assert (calibration.mean(0) / (calibration.std(0) / len(calibration) ** 0.5)).abs().max() < 4


def test_scene_map_is_the_encoded_picture(world: ExactShapes) -> None:
    rng = np.random.default_rng(6)
    for _ in range(60):
        scene = sample_scene(rng)
        torch.testing.assert_close(world.scene_map(scene), pooled(render(scene)[None])[0], atol=1e-12, rtol=0)


def test_regions_of_a_layout_tile_the_map() -> None:
    for regions in LAYOUTS.values():
        seen = np.zeros((64, 64), dtype=int)
        for region in regions:
            seen[crop(region, 64, 64)] += 1
        assert (seen == 1).all()


def test_pixels_are_scaled_to_one() -> None:
    picture = np.zeros((1, 64, 64, 3), dtype=np.uint8)
    picture[0, 5, 7] = (255, 0, 51)
    encoded = pixels(picture)
    assert encoded.shape == (1, 3, 64, 64)
    assert encoded[0, :, 5, 7].tolist() == [1.0, -1.0, pytest.approx(-0.6)]


def test_conditions_are_normalised_and_follow_the_caption() -> None:
    texts = [
        "",
        "a shape",
        "a tiny striped red circle at the top",
        "a box above a shape",
        "a shape to the right of a box",
    ]
    given = conditions([parse(text) for text in texts], torch.float64)
    for prior in given.objects.values():
        torch.testing.assert_close(prior.exp().sum(1), torch.ones(5, dtype=torch.float64))
    assert given.layout.exp().tolist() == [[0.5, 0.25, 0.25], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    allowed = {region: prior.isfinite().sum(1).tolist() for region, prior in given.objects.items()}
    assert allowed["whole"] == [4608, 4608, 18, 4608, 4608]
    assert allowed["top"] == [512, 512, 512, 128, 512]
    assert allowed["bottom"] == [512] * 5
    assert allowed["left"] == [512, 512, 512, 512, 128]
    assert allowed["right"] == [512] * 5


def test_a_layout_that_the_caption_excludes_has_no_objects(world: ExactShapes) -> None:
    z = torch.zeros(1, *world.shape, dtype=torch.float64)
    posterior = world.posterior(z, 0.0, conditions([parse("a red circle")], torch.float64))
    np.testing.assert_allclose(posterior.layout(), [[1, 0, 0]], atol=1e-12)
    assert posterior.rows("top").sum() == 0
    np.testing.assert_allclose(posterior.attribute("colour", "whole"), [[1, 0, 0, 0, 0, 0, 0, 0]], atol=1e-12)
