"""The exact denoiser of the shapes world as a Stable Diffusion pipeline: a perfect model without weights.

Every part keeps the place that a trained part would have. The "text encoder" hands the token ids on as they are, the
"U-Net" reads the caption back from them and returns the closed-form optimum, the "autoencoder" is the identity, so the
latents are the picture itself.
"""

from dataclasses import dataclass

import torch
from diffusers import ConfigMixin, DDIMScheduler, ModelMixin, StableDiffusionPipeline
from diffusers.configuration_utils import register_to_config
from torch import Tensor
from transformers import CLIPTokenizer

from denoscope.data.worlds.shapes.captions import CaptionError, Meaning, parse
from denoscope.data.worlds.shapes.exact import ExactShapes, conditions, pixels
from denoscope.data.worlds.shapes.scenes import PICTURE_SIZE
from denoscope.data.worlds.shapes.tokens import new_tokenizer
from denoscope.pipelines.errors import ModelError
from denoscope.schedules import NoiseSchedule, convert_prediction


@dataclass(frozen=True, slots=True)
class Output:
    """What diffusers expects of a U-Net and of a decoder: the tensor under the name ``sample``."""

    sample: Tensor

    def __getitem__(self, index: int) -> Tensor:
        return (self.sample,)[index]


class TokenIds(ModelMixin, ConfigMixin):
    """A text encoder that encodes nothing: ids ``(B, tokens)`` to states ``(B, tokens, 1)`` holding the ids."""

    @register_to_config  # type: ignore[untyped-decorator]  # diffusers has no types
    def __init__(self, max_position_embeddings: int) -> None:
        super().__init__()
        self.anchor = torch.nn.Buffer(torch.zeros(()), persistent=False)  # gives the module a dtype and a device

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor]:
        """The ids as float32, which holds them exactly."""
        return (input_ids[..., None].to(self.anchor.dtype),)


class ExactDenoiser(ModelMixin, ConfigMixin):
    """E[x₀ | z, caption] of a finite world, in the place of a U-Net; the output is its v-prediction."""

    @register_to_config  # type: ignore[untyped-decorator]  # diffusers has no types
    def __init__(
        self, in_channels: int = 3, sample_size: int = PICTURE_SIZE, time_cond_proj_dim: int | None = None
    ) -> None:
        super().__init__()
        self.anchor = torch.nn.Buffer(torch.zeros(()), persistent=False)
        self.world: ExactShapes | None = None
        self.tokenizer: CLIPTokenizer | None = None
        self.logsnr = NoiseSchedule.cosine().logsnr

    def meaning(self, states: Tensor) -> Meaning:
        """The caption that a row of :class:`TokenIds` states spells. Raises :class:`ModelError` if it is none."""
        assert self.tokenizer is not None
        text = self.tokenizer.decode(states[:, 0].round().long().tolist(), skip_special_tokens=True)
        try:
            return parse(text)
        except CaptionError as error:
            raise ModelError(f"the exact model only knows captions of the shapes world: {error}") from error

    def forward(
        self, sample: Tensor, timestep: Tensor | float, encoder_hidden_states: Tensor, **_: object
    ) -> Output | tuple[Tensor]:
        """``sample`` ``(B, c, h, w)``, ``timestep`` a number or ``(B,)``; returns v, like ``sample``."""
        assert self.world is not None
        if sample.shape[-2:] != (PICTURE_SIZE, PICTURE_SIZE):
            raise ModelError(f"the exact model only draws pictures of {PICTURE_SIZE} x {PICTURE_SIZE} pixels")
        steps = torch.as_tensor(timestep).reshape(-1).double().cpu()
        below, above = self.logsnr[steps.floor().long()], self.logsnr[steps.ceil().long()]
        logsnr = torch.lerp(below, above, (steps % 1).to(below)).expand(len(sample))
        given = conditions([self.meaning(row) for row in encoder_hidden_states.cpu()], self.world.dtype)
        clean = self.world.denoise(sample.cpu(), logsnr, given)
        alpha, sigma = logsnr.sigmoid().sqrt(), (-logsnr).sigmoid().sqrt()
        v = convert_prediction(clean, "sample", "v_prediction", sample.cpu().to(clean), alpha, sigma)
        return Output(v.to(sample))


class Identity(ModelMixin, ConfigMixin):
    """An autoencoder whose latents are the picture."""

    @register_to_config  # type: ignore[untyped-decorator]  # diffusers has no types
    def __init__(self, scaling_factor: float = 1.0, block_out_channels: tuple[int, ...] = (1,)) -> None:
        super().__init__()
        self.anchor = torch.nn.Buffer(torch.zeros(()), persistent=False)

    def decode(self, z: Tensor, return_dict: bool = True, generator: object = None) -> Output:
        """The picture: ``z`` itself."""
        return Output(z)


def exact_shapes_pipeline(dtype: torch.dtype = torch.float32) -> StableDiffusionPipeline:
    """The exact model of the shapes world in picture space. Takes about 5 seconds and 0.6 GB (float32) to build."""
    return pipeline_around(ExactDenoiser(), ExactShapes.encoded(pixels, dtype))


def pipeline_around(denoiser: ExactDenoiser, world: ExactShapes) -> StableDiffusionPipeline:
    """A pipeline whose denoiser is the closed-form optimum of a world; its latents are the world's maps."""
    tokenizer = new_tokenizer()
    denoiser.world, denoiser.tokenizer = world, tokenizer
    return StableDiffusionPipeline(
        vae=Identity(),
        text_encoder=TokenIds(tokenizer.model_max_length),
        tokenizer=tokenizer,
        unet=denoiser,
        scheduler=shapes_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def shapes_scheduler() -> DDIMScheduler:
    """The scheduler of the exact model: DDIM on the cosine schedule, v-prediction, trailing steps.

    ᾱ falls to 2.4e-9, a logsnr of −19.8: the first step starts from what is pure noise for any practical purpose.
    """
    return DDIMScheduler.from_config(
        NoiseSchedule.cosine().to_diffusers_config()
        | {
            "prediction_type": "v_prediction",
            "timestep_spacing": "trailing",
            "steps_offset": 1,  # without effect on trailing steps; diffusers insists on it
            "clip_sample": False,
            "set_alpha_to_one": True,
        }
    )
