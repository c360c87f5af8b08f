"""The exact model, made quick for captions of one object: the same answers from the templates that they allow."""

from collections.abc import Sequence

import numpy as np
import torch
from diffusers import DDPMScheduler, StableDiffusionPipeline
from numpy.typing import NDArray
from torch import Tensor

import denoscope
from benchmarks.exact_half_times import pooled
from denoscope.data.worlds.shapes.captions import parse
from denoscope.data.worlds.shapes.exact import Conditions, ExactShapes, conditions
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, BACKGROUNDS, PICTURE_SIZE, VALUES, Attribute, Region, table
from denoscope.pipelines.exact import ExactDenoiser, Output, pipeline_around
from denoscope.schedules import convert_prediction


class SlotShapes(ExactShapes):
    """An :class:`ExactShapes` that multiplies only with the objects that some caption of a batch allows."""

    def __init__(self, templates: dict[Region, Tensor], shape: tuple[int, int, int]) -> None:
        super().__init__(templates, shape)
        self._parts: dict[bytes, tuple[Tensor, Tensor]] = {}

    def weights(self, z: Tensor, logsnr: Tensor, given: Conditions) -> tuple[Tensor, Tensor, Tensor]:
        """p(background, object | z, caption) over the objects allowed ``(B, 2, n)``, which those are, their maps."""
        log_prior = given.objects["whole"].to(self.dtype)
        rows = log_prior.isfinite().any(0).nonzero()[:, 0]
        key = rows.numpy().tobytes()
        if key not in self._parts:
            part = self.templates["whole"][:, rows]
            self._parts[key] = part, part.square().sum(-1) / 2
        part, half_squares = self._parts[key]
        level = logsnr.to(self.dtype).clamp(max=60).expand(len(z))[:, None, None]
        alpha, variance = level.sigmoid().sqrt(), (-level).sigmoid()
        products = (z.to(self.dtype).flatten(1) @ part.flatten(0, 1).T).reshape(len(z), 2, -1)
        joint = alpha / variance * products - alpha**2 / variance * half_squares + log_prior[:, None, rows]
        return joint.flatten(1).softmax(1).reshape(joint.shape), rows, part

    def denoise(self, z: Tensor, logsnr: Tensor | float, given: Conditions) -> Tensor:
        """As the whole world's, quick where every caption is of one object."""
        if bool(given.layout[:, 1:].isfinite().any()):
            return super().denoise(z, logsnr, given)
        weights, _, part = self.weights(z, torch.as_tensor(logsnr), given)
        return (weights.flatten(1) @ part.flatten(0, 1)).reshape(len(z), *self.shape)

    def belief(self, z: Tensor, logsnr: float, name: Attribute, caption: str) -> Tensor:
        """p(attribute | z, caption) for a caption of one object that leaves it open: ``(B, values)``."""
        given = conditions([parse(caption)], self.dtype)
        given = Conditions(given.layout, {key: held.expand(len(z), -1) for key, held in given.objects.items()})
        weights, rows, _ = self.weights(z, torch.as_tensor(logsnr), given)
        values = torch.from_numpy(table("whole"))[rows, ATTRIBUTES.index(name)]
        return torch.zeros(len(z), len(VALUES[name]), dtype=self.dtype).index_add_(1, values, weights.sum(1))

    def draw(self, caption: str, n: int, seed: int = 0) -> Tensor:
        """Clean maps of scenes that a caption of one object describes: ``(n, c, h, w)`` float32."""
        generator = torch.Generator().manual_seed(seed)
        rows = conditions([parse(caption)]).objects["whole"][0].isfinite().nonzero()[:, 0]
        which = rows[torch.randint(len(rows), (n,), generator=generator)]
        backgrounds = torch.randint(len(BACKGROUNDS), (n,), generator=generator)
        return self.templates["whole"][backgrounds, which].reshape(n, *self.shape).float()


class PooledDenoiser(ExactDenoiser):
    """The exact denoiser of another space than the picture's."""

    def forward(
        self, sample: Tensor, timestep: Tensor | float, encoder_hidden_states: Tensor, **_: object
    ) -> Output | tuple[Tensor]:
        """As :class:`ExactDenoiser`'s; in the world's own precision."""
        assert self.world is not None
        steps = torch.as_tensor(timestep).reshape(-1).double()
        below, above = self.logsnr[steps.floor().long()], self.logsnr[steps.ceil().long()]
        logsnr = torch.lerp(below, above, steps % 1).expand(len(sample))
        told: dict[tuple[int, ...], int] = {}
        for row in encoder_hidden_states[..., 0].round().long().tolist():
            told.setdefault(tuple(row), len(told))
        meanings = [self.meaning(torch.tensor(row)[:, None]) for row in told]
        which = [told[tuple(row)] for row in encoder_hidden_states[..., 0].round().long().tolist()]
        each = conditions(meanings, self.world.dtype)
        given = Conditions(each.layout[which], {key: held[which] for key, held in each.objects.items()})
        clean = self.world.denoise(sample, logsnr, given)
        alpha, sigma = logsnr.sigmoid().sqrt(), (-logsnr).sigmoid().sqrt()
        return Output(convert_prediction(clean, "sample", "v_prediction", sample.to(clean), alpha, sigma).to(sample))


def slot_pipeline(space: str = "pooled") -> tuple[StableDiffusionPipeline, SlotShapes]:
    """The exact model with DDPM sampling, and its world: in picture space, or quick on 8×8 means in float64."""
    if space == "pixels":
        pipe: StableDiffusionPipeline = denoscope.load("exact-shapes", "cpu")
        world = SlotShapes(pipe.unet.world.templates, pipe.unet.world.shape)
        pipe.unet.world = world
    else:
        world = pooled_world()
        pipe = pipeline_around(PooledDenoiser(sample_size=PICTURE_SIZE // 8), world)
    pipe.scheduler = DDPMScheduler.from_config(pipe.scheduler.config, variance_type="fixed_small")
    pipe.set_progress_bar_config(disable=True)
    return pipe, world


def pooled_world() -> SlotShapes:
    """Maps of one object as 8×8 means, in float64."""
    return SlotShapes.encoded(contrasted, torch.float64)


def contrasted(pictures: NDArray[np.uint8]) -> Tensor:
    """Means of 8×8 pixels times 4: what is seen of an object is as strong as in the whole picture."""
    return 4 * pooled(pictures)


def prompts(context: str, name: Attribute) -> Sequence[str]:
    """A caption for each value of an attribute, from one with a gap such as "a {} circle"."""
    return [context.format(value) for value in VALUES[name]]
