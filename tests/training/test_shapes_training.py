"""The shapes recipe: its data, its targets, and a tiny run from nothing to a loadable pipeline."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import CLIPTextModel, CLIPTokenizer

import denoscope
from denoscope.data.worlds.shapes import parse, render, sample_scene
from denoscope.data.worlds.shapes.exact import ExactShapes
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES
from denoscope.data.worlds.shapes.tokens import new_tokenizer, tokenize
from denoscope.schedules import NoiseSchedule
from denoscope.training.shapes.autoencoder import (
    fix_latents,
    halves,
    join,
    new_autoencoder,
    standardise,
    to_tensor,
    twin,
)
from denoscope.training.shapes.denoiser import DenoiserTask, NoiseLevels, held_out, sample_captioned
from denoscope.training.shapes.recipe import ShapesRecipe, train_shapes
from denoscope.training.shapes.text import CaptionQuestions, caption_loss, new_text_encoder
from denoscope.training.trainer import TrainerConfig


@pytest.fixture(scope="session")
def coarse_world() -> ExactShapes:
    """The world seen through 8×8 average pooling: small and quick to build."""

    def pool(pictures: np.ndarray) -> Tensor:
        return functional.avg_pool2d(torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1, 8)

    return ExactShapes.encoded(pool)


@pytest.fixture(scope="session")
def words() -> tuple[CLIPTokenizer, CLIPTextModel]:
    torch.manual_seed(0)
    tokenizer = new_tokenizer()
    return tokenizer, new_text_encoder(tokenizer).eval()


def test_join_takes_each_half_from_its_own_map() -> None:
    first, second = torch.zeros(1, 2, 4, 4), torch.ones(1, 2, 4, 4)
    assert join(first, second, vertical=True)[0, 0].tolist() == [[0] * 4] * 2 + [[1] * 4] * 2
    assert join(first, second, vertical=False)[0, 0].tolist() == [[0, 0, 1, 1]] * 4


def test_joined_halves_of_the_picture_are_the_picture() -> None:
    rng = np.random.default_rng(0)
    for layout in ("vertical", "horizontal"):
        scene = sample_scene(rng, layout)
        first, second = (torch.from_numpy(render(part)).permute(2, 0, 1)[None] for part in halves(scene))
        joined = join(first, second, layout == "vertical")
        assert torch.equal(joined[0], torch.from_numpy(render(scene)).permute(2, 0, 1))


def test_a_twin_differs_in_one_attribute_of_each_object() -> None:
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(100):
        scene = sample_scene(rng)
        for one, other in zip(scene.things, twin(scene, rng).things, strict=True):
            differing = [name for name in ATTRIBUTES if one.value(name) != other.value(name)]
            assert len(differing) == 1
            assert (one.x, one.y) == (other.x, other.y)
            seen.add(differing[0])
    assert seen == set(ATTRIBUTES)


def test_fixed_latents_have_unit_variance_and_one_small_noise_level() -> None:
    torch.manual_seed(3)
    autoencoder = new_autoencoder().eval()
    pictures = to_tensor([render(sample_scene(np.random.default_rng(i), "one")) for i in range(8)])
    with torch.no_grad():
        before = autoencoder.encode(pictures).latent_dist.mean
        fix_latents(autoencoder, std=0.1)
        after = autoencoder.encode(pictures).latent_dist
    assert float(after.std.min()) == pytest.approx(0.1, abs=1e-6)
    assert float(after.std.max()) == pytest.approx(0.1, abs=1e-6)
    # Up to the constants found on the world's scenes, the means are the old ones.
    assert torch.allclose(standardise(after.mean), standardise(before), atol=1e-2)
    rng = np.random.default_rng(9)
    scenes = [sample_scene(rng, "one") for _ in range(64)]
    with torch.no_grad():
        latents = autoencoder.encode(to_tensor([render(scene) for scene in scenes])).latent_dist.mean
    assert float(latents.square().mean()) == pytest.approx(1, rel=0.25)


def test_a_tenth_of_the_captions_is_held_out_and_the_rest_is_trained_on() -> None:
    rng = np.random.default_rng(0)
    trained = [sample_captioned(rng)[2] for _ in range(300)]
    unseen = [sample_captioned(rng, unseen=True)[2] for _ in range(100)]
    assert not any(held_out(meaning) for meaning in trained)
    assert all(held_out(meaning) for meaning in unseen)
    assert not held_out(parse(""))
    # A caption and its mirror image have one meaning, so neither leaks the other.
    assert parse("a red circle above a blue square") == parse("a blue square below a red circle")


def test_noise_levels_are_drawn_as_weighted_and_cover_both_ends() -> None:
    levels = NoiseLevels(NoiseSchedule.cosine().logsnr.float())
    weights = levels.weights()
    assert float(weights.sum()) == pytest.approx(1, abs=1e-5)
    drawn = levels.draw(200_000, torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=1000) / 200_000
    assert float((share - weights).abs().max()) < 2e-4
    logsnr = levels.logsnr[drawn]
    assert float((logsnr < -6).float().mean()) > 0.1  # a cosine schedule alone has 3 % there
    assert float(logsnr.min()) < -12
    assert float(logsnr.max()) > 9


def test_both_targets_have_the_same_minimiser(coarse_world: ExactShapes, words: tuple[object, object]) -> None:
    """The exact denoiser has loss 0 against itself; against samples its loss is below any scaled copy's."""
    tokenizer, encoder = words
    levels = NoiseLevels(NoiseSchedule.cosine().logsnr.float())
    arguments = (coarse_world, tokenizer, encoder, levels)
    posterior = DenoiserTask(*arguments, target="posterior", batch_size=64, weighting=torch.ones_like)
    sample = replace(posterior, target="sample")
    seen: list[Tensor] = []

    class Probe(torch.nn.Module):
        """Keeps what the loss asks for, and answers with a stored prediction."""

        answer: Tensor | None = None

        def forward(self, z: Tensor, timesteps: Tensor, states: Tensor) -> Tensor:
            seen[:] = [z, timesteps]
            return torch.zeros_like(z) if self.answer is None else self.answer

    probe = Probe()
    at_zero = posterior.loss(probe, torch.Generator().manual_seed(5))
    assert float(at_zero) > 0
    assert seen[0].shape == (64, 3, 8, 8)

    def losses(scale: float) -> tuple[float, float]:
        """Losses of the exact v-prediction times ``scale``; the exact one is found from the loss's own gradient."""
        answer = torch.zeros_like(seen[0], requires_grad=True)
        probe.answer = answer
        posterior.loss(probe, torch.Generator().manual_seed(5)).backward()  # type: ignore[no-untyped-call]
        assert answer.grad is not None
        exact = -answer.grad * answer.numel() / 2
        probe.answer = exact * scale
        return (
            float(posterior.loss(probe, torch.Generator().manual_seed(5))),
            float(sample.loss(probe, torch.Generator().manual_seed(5))),
        )

    exact_loss, floor = losses(1.0)
    assert exact_loss == pytest.approx(0, abs=1e-9)
    assert floor > 0.01
    assert all(losses(scale)[1] > floor for scale in (0.8, 0.9, 1.1, 1.2))


def test_caption_questions_learn(words: tuple[CLIPTokenizer, CLIPTextModel]) -> None:
    torch.manual_seed(0)
    tokenizer = words[0]
    model = CaptionQuestions(new_text_encoder(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    losses = []
    for step in range(30):
        loss, _ = caption_loss(model, tokenizer, torch.Generator().manual_seed(step), batch_size=32)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5])


def test_padding_beyond_the_longest_caption_changes_nothing(words: tuple[CLIPTokenizer, CLIPTextModel]) -> None:
    tokenizer, encoder = words
    ids = tokenize(tokenizer, ["a red circle", "a large blue square at the top"])
    with torch.no_grad():
        long, short = encoder(ids).last_hidden_state, encoder(ids[:, :12]).last_hidden_state
    assert torch.allclose(long[:, :12], short, atol=1e-5)


def test_a_tiny_recipe_makes_a_pipeline_that_loads_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from denoscope.training.shapes import recipe as module

    def small_latents(autoencoder: object, cache: Path | None = None) -> ExactShapes:
        # Encoding the whole world takes a minute; its shape is what matters here.
        counts = {"whole": (4608, 256)} | dict.fromkeys(("top", "bottom", "left", "right"), (512, 128))
        return ExactShapes({region: torch.randn(2, *size) for region, size in counts.items()}, (4, 8, 8))  # type: ignore[misc]

    monkeypatch.setattr(module, "latent_world", small_latents)
    short = TrainerConfig(steps=2, warmup=1, checkpoint_every=1)
    recipe = ShapesRecipe(short, short, short, short, channels=(32, 32), batch_size=4)
    names = ("autoencoder", "text encoder", "denoiser", "refinement")
    stages: list[tuple[str, int]] = []
    folder = train_shapes(tmp_path, recipe, lambda stage, step, total, loss: stages.append((stage, step)))
    assert stages == [(name, step) for name in names for step in (0, 1)]
    pipe = denoscope.load(folder, "cpu")
    pipe.set_progress_bar_config(disable=True)
    picture = pipe("a red circle", num_inference_steps=2, output_type="np").images[0]
    assert picture.shape == (64, 64, 3)
    assert np.isfinite(picture).all()
    train_shapes(tmp_path, recipe, lambda stage, step, total, loss: stages.append((stage, step)))
    assert len(stages) == 8  # everything was found done
