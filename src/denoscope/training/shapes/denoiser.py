"""Training data and loss of the shapes model's denoiser.

The world's exact denoiser E[x₀ | z, caption] is the minimiser of the usual regression on x₀. Regressing on it directly
leaves the minimiser where it is and takes away the variance of the target (Xu et al. 2023, "Stable target field",
with the whole data set as reference batch). Both targets are here; ``target="sample"`` is the plain one.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import CLIPTextModel, CLIPTokenizer

from denoscope.data.worlds.shapes import Meaning, Scene, describe, sample_scene
from denoscope.data.worlds.shapes.exact import ExactShapes, conditions
from denoscope.data.worlds.shapes.tokens import tokenize
from denoscope.schedules import sigmoid_weight

Target = Literal["posterior", "sample"]


def held_out(meaning: Meaning) -> bool:
    """Whether captions of this meaning (one in ten, by hash) are kept out of the denoiser's training."""
    digest = hashlib.blake2b(repr(meaning).encode(), digest_size=2).digest()
    return meaning.layout is not None and int.from_bytes(digest, "little") % 10 == 0


def sample_captioned(rng: np.random.Generator, unseen: bool = False) -> tuple[Scene, str, Meaning]:
    """Draw a scene and its caption from the training set, or from the captions held out of it."""
    while True:
        scene = sample_scene(rng)
        text, meaning = describe(scene, rng)
        if held_out(meaning) == unseen:
            return scene, text, meaning


@dataclass(frozen=True, slots=True)
class NoiseLevels:
    """The training timesteps' noise levels and how often each is drawn.

    Half of the draws are uniform over timesteps, half uniform over logsnr in ``focus``, where the exact posterior says
    that attributes are decided and where a cosine schedule alone has few timesteps.
    """

    logsnr: Tensor
    focus: tuple[float, float] = (-10.0, 3.0)

    def weights(self) -> Tensor:
        """Probability of each timestep: ``(T,)``."""
        spacing = -torch.gradient(self.logsnr)[0]
        inside = (self.logsnr >= self.focus[0]) & (self.logsnr <= self.focus[1])
        focused = spacing * inside
        return 0.5 / len(self.logsnr) + 0.5 * focused / focused.sum()

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``n`` timesteps, stratified over the distribution so that a batch covers all levels."""
        edges = self.weights().double().cumsum(0)
        place = (torch.arange(n) + torch.rand(n, generator=generator)) / n
        order = torch.randperm(n, generator=generator)
        return torch.searchsorted(edges / edges[-1], place.double())[order].clamp(max=len(edges) - 1)


@dataclass(frozen=True)
class DenoiserTask:
    """Everything the denoiser's loss needs besides the network."""

    world: ExactShapes
    tokenizer: CLIPTokenizer
    text_encoder: CLIPTextModel
    levels: NoiseLevels
    target: Target = "posterior"
    batch_size: int = 128
    caption_dropout: float = 0.1
    weighting: Callable[[Tensor], Tensor] = sigmoid_weight

    def loss(self, network: nn.Module, generator: torch.Generator) -> Tensor:
        """Weighted mean squared error of the v-prediction on a fresh batch."""
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        drawn = [sample_captioned(rng) for _ in range(self.batch_size)]
        dropped = rng.random(self.batch_size) < self.caption_dropout
        texts = ["" if drop else text for drop, (_, text, _) in zip(dropped, drawn, strict=True)]
        meanings = [Meaning() if drop else meaning for drop, (_, _, meaning) in zip(dropped, drawn, strict=True)]
        timesteps = self.levels.draw(self.batch_size, generator)
        logsnr = self.levels.logsnr[timesteps]
        alpha, sigma = (torch.sigmoid(level).sqrt()[:, None, None, None] for level in (logsnr, -logsnr))
        clean = torch.stack([self.world.scene_map(scene) for scene, _, _ in drawn])
        z = alpha * clean + sigma * torch.randn(clean.shape, generator=generator)
        if self.target == "posterior":
            clean = self.world.denoise(z, logsnr, conditions(meanings))
        with torch.no_grad():
            states = self.text_encoder(tokenize(self.tokenizer, texts)).last_hidden_state
        # v = α·ε − σ·x₀ with ε = (z − α·x₀)/σ, so v = (α·z − x₀)/σ (Salimans & Ho 2022, eq. 12).
        wanted = (alpha * z - clean) / sigma
        predicted: Tensor = network(z, timesteps, states)
        errors = (predicted - wanted).square().mean((1, 2, 3))
        return (self.weighting(logsnr) * errors).mean()
