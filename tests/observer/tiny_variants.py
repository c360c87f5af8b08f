"""Pipelines that share a family's network and call it with further pictures, channels or steps; how each is called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import diffusers
import numpy as np
import torch
from diffusers import (
    ControlNetModel,
    DDIMScheduler,
    DiffusionPipeline,
    FluxControlNetModel,
    LCMScheduler,
    SD3ControlNetModel,
    VQModel,
)
from diffusers.pipelines.flux2.system_messages import SYSTEM_MESSAGE
from family_calls import CHAT, PROMPT, shifted
from family_layouts import LAYOUTS
from held_against import Layout
from numpy.typing import NDArray
from PIL import Image
from tiny_parts import WIDTH, Network, instruct_processor, mistral, sharpened, unet

HEIGHT, WIDTH_OF_PICTURE = 16, 24

Change = Callable[[DiffusionPipeline], Mapping[str, object]]
"""What a variant has instead of, or beyond, the family's parts."""


def picture(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (HEIGHT, WIDTH_OF_PICTURE, 3), dtype=np.uint8))


def hole() -> Image.Image:
    mask = np.zeros((HEIGHT, WIDTH_OF_PICTURE), np.uint8)
    mask[4:12, 6:20] = 255
    return Image.fromarray(mask)


def nothing(_pipe: DiffusionPipeline) -> Mapping[str, object]:
    return {}


def telling(control: Network) -> Network:
    """Fresh controls add nothing; these do."""
    for name, weight in control.named_parameters():
        if "controlnet" in name and name.endswith("weight"):
            torch.nn.init.normal_(weight, std=0.1)
    return control


def control(pipe: DiffusionPipeline) -> Mapping[str, object]:
    return {"controlnet": telling(ControlNetModel.from_unet(pipe.unet, conditioning_embedding_out_channels=(8,)))}


def control_of_sd3(further: int) -> Change:
    """``further`` channels beyond those of the picture: a mask."""
    return lambda pipe: {"controlnet": telling(SD3ControlNetModel.from_transformer(pipe.transformer, 1, further))}


def control_of_flux(pipe: DiffusionPipeline) -> Mapping[str, object]:
    inputs = ("patch_size", "in_channels", "joint_attention_dim", "pooled_projection_dim", "guidance_embeds")
    shape = ("attention_head_dim", "num_attention_heads", "axes_dims_rope")
    config = {key: pipe.transformer.config[key] for key in (*inputs, *shape)}
    return {"controlnet": telling(FluxControlNetModel(num_layers=1, num_single_layers=1, **config))}


def flux_of(channels: int) -> Change:
    def change(pipe: DiffusionPipeline) -> Mapping[str, object]:
        config = dict(pipe.transformer.config) | {"in_channels": channels, "out_channels": 16}
        return {"transformer": sharpened(type(pipe.transformer).from_config(config))}

    return change


def instructed(padding_side: str) -> Change:
    """The family's own processor needs torchvision; another stands in its place, with the same marks."""

    def change(pipe: DiffusionPipeline) -> Mapping[str, object]:
        processor = instruct_processor(padding_side)
        config = dict(pipe.transformer.config) | {"guidance_embeds": True}
        transformer = sharpened(type(pipe.transformer).from_config(config))
        return {
            "tokenizer": processor,
            "text_encoder": mistral(len(processor.tokenizer)),
            "transformer": transformer,
        }

    return change


def nine_channels(_pipe: DiffusionPipeline) -> Mapping[str, object]:
    return {"unet": sharpened(unet(9))}


def eight_channels(pipe: DiffusionPipeline) -> Mapping[str, object]:
    return {"unet": sharpened(type(pipe.unet).from_config(dict(pipe.unet.config) | {"in_channels": 8}))}


def consistency(pipe: DiffusionPipeline) -> Mapping[str, object]:
    return {
        "unet": sharpened(unet(time_cond_proj_dim=8)),
        "scheduler": LCMScheduler.from_config(pipe.scheduler.config),
    }


def nine_channels_of_kandinsky(pipe: DiffusionPipeline) -> Mapping[str, object]:
    config = dict(pipe.unet.config) | {"in_channels": 9}
    return {"unet": sharpened(type(pipe.unet).from_config(config))}


def quantised() -> VQModel:
    return VQModel(
        block_out_channels=(8,),
        down_block_types=("DownEncoderBlock2D",),
        up_block_types=("UpDecoderBlock2D",),
        latent_channels=3,
        num_vq_embeddings=8,
        norm_num_groups=4,
    )


def enlarging(pipe: DiffusionPipeline) -> Mapping[str, object]:
    config = dict(pipe.unet.config) | {"in_channels": 6}
    return {"vqvae": quantised(), "unet": sharpened(type(pipe.unet).from_config(config)), "scheduler": DDIMScheduler()}


def latent(_pipe: DiffusionPipeline) -> Mapping[str, object]:
    return {"vqvae": quantised(), "scheduler": DDIMScheduler()}


def ddim(_pipe: DiffusionPipeline) -> Mapping[str, object]:
    return {"scheduler": DDIMScheduler()}


@dataclass(frozen=True, slots=True)
class Variant:
    """A pipeline's class, the family of its parts, what it has of its own, and how it is called."""

    pipeline: str
    family: str
    settings: Callable[[], dict[str, object]]
    change: Change = nothing
    layout: Layout | None = None

    def made(self, family: DiffusionPipeline) -> DiffusionPipeline:
        """From the family's parts."""
        torch.manual_seed(0)
        pipe: DiffusionPipeline = getattr(diffusers, self.pipeline).from_pipe(family, **self.change(family))
        pipe.set_progress_bar_config(disable=True)
        return pipe

    def draw(self, pipe: DiffusionPipeline) -> NDArray[np.float32]:
        """Two steps; some pipelines draw from the random numbers of all."""
        torch.manual_seed(7)
        settings = {"num_inference_steps": 2, "output_type": "np"} | self.settings()
        return np.asarray(pipe(generator=torch.Generator().manual_seed(5), **settings).images)


def told(**pictures: Callable[[], Image.Image]) -> Callable[[], dict[str, object]]:
    """The prompt, a size, and pictures made afresh for each call."""
    return lambda: {
        "prompt": PROMPT,
        "height": HEIGHT,
        "width": WIDTH_OF_PICTURE,
        **{name: make() for name, make in pictures.items()},
    }


def over(settings: Callable[[], dict[str, object]], *without: str, **more: object) -> Callable[[], dict[str, object]]:
    """The same, with some arguments changed or left out."""
    return lambda: {key: value for key, value in (settings() | more).items() if key not in without}


def whole(settings: Callable[[], dict[str, object]], *without: str) -> Callable[[], dict[str, object]]:
    """Begins from noise, so that all steps are taken."""
    return over(settings, *without, strength=1.0)


SIZE = ("height", "width")
PLAIN, CONTROLLED = told(), told(control_image=picture)
EDITED, FILLED = told(image=picture), told(image=picture, mask_image=hole)
EDITED_UNDER_CONTROL = told(image=picture, control_image=lambda: picture(1))
FILLED_UNDER_CONTROL = told(image=picture, mask_image=hole, control_image=lambda: picture(1))


def embedded(**more: Callable[[], object]) -> Callable[[], dict[str, object]]:
    """A decoder of Kandinsky's is told an embedding."""
    return lambda: {
        "image_embeds": torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(3)),
        "negative_image_embeds": torch.zeros(1, WIDTH),
        "height": HEIGHT,
        "width": WIDTH_OF_PICTURE,
        **{name: make() for name, make in more.items()},
    }


SD = (
    Variant("StableDiffusionImg2ImgPipeline", "sd", whole(EDITED, *SIZE)),
    Variant("StableDiffusionInpaintPipeline", "sd", whole(FILLED)),
    Variant("StableDiffusionInpaintPipeline", "sd", whole(FILLED), nine_channels),
    Variant("StableDiffusionControlNetPipeline", "sd", told(image=picture), control),
    Variant("StableDiffusionControlNetImg2ImgPipeline", "sd", whole(EDITED_UNDER_CONTROL), control),
    Variant("StableDiffusionControlNetInpaintPipeline", "sd", whole(FILLED_UNDER_CONTROL), control),
    Variant("LatentConsistencyModelPipeline", "sd", PLAIN, consistency, replace(LAYOUTS["sd"], row=0)),
    Variant(
        "LatentConsistencyModelImg2ImgPipeline", "sd", whole(EDITED, *SIZE), consistency, replace(LAYOUTS["sd"], row=0)
    ),
    Variant("StableDiffusionPAGImg2ImgPipeline", "pag", whole(EDITED, *SIZE)),
    Variant("StableDiffusionPAGInpaintPipeline", "pag", whole(FILLED)),
)
SDXL = (
    Variant("StableDiffusionXLImg2ImgPipeline", "sdxl", whole(EDITED, *SIZE)),
    Variant("StableDiffusionXLInpaintPipeline", "sdxl", whole(FILLED)),
    Variant("StableDiffusionXLControlNetPipeline", "sdxl", told(image=picture), control),
    Variant("StableDiffusionXLControlNetImg2ImgPipeline", "sdxl", whole(EDITED_UNDER_CONTROL), control),
    Variant("StableDiffusionXLControlNetInpaintPipeline", "sdxl", whole(FILLED_UNDER_CONTROL), control),
    Variant("StableDiffusionXLPAGPipeline", "sdxl", PLAIN),
    Variant("StableDiffusionXLPAGImg2ImgPipeline", "sdxl", whole(EDITED, *SIZE)),
    Variant("StableDiffusionXLPAGInpaintPipeline", "sdxl", whole(FILLED)),
)
JOINT = (
    Variant("StableDiffusion3Img2ImgPipeline", "sd3", whole(EDITED)),
    Variant("StableDiffusion3InpaintPipeline", "sd3", whole(FILLED)),
    Variant("StableDiffusion3ControlNetPipeline", "sd3", CONTROLLED, control_of_sd3(0)),
    Variant(
        "StableDiffusion3ControlNetInpaintingPipeline",
        "sd3",
        told(control_image=picture, control_mask=hole),
        control_of_sd3(1),
    ),
    Variant("FluxImg2ImgPipeline", "flux", whole(EDITED)),
    Variant("FluxInpaintPipeline", "flux", whole(FILLED)),
    Variant("FluxFillPipeline", "flux", FILLED, flux_of(16 + 16 + 4)),
    Variant("FluxControlNetPipeline", "flux", CONTROLLED, control_of_flux),
    Variant("FluxControlNetImg2ImgPipeline", "flux", whole(EDITED_UNDER_CONTROL), control_of_flux),
    Variant("FluxControlNetInpaintPipeline", "flux", whole(FILLED_UNDER_CONTROL), control_of_flux),
    Variant("FluxControlPipeline", "flux", CONTROLLED, flux_of(32)),
    Variant("FluxControlImg2ImgPipeline", "flux", whole(EDITED_UNDER_CONTROL), flux_of(32)),
    Variant("FluxControlInpaintPipeline", "flux", whole(FILLED_UNDER_CONTROL), flux_of(32)),
)
"""Attention of text and picture in the same layers."""
OUT_LAYERS = {"text_encoder_out_layers": (1, 2, 3)}
ASIDE = {"_auto_resize": False, "max_area": HEIGHT * WIDTH_OF_PICTURE}
PICTURE_TO_GO_BY = (
    Variant("FluxKontextPipeline", "flux", over(EDITED, **ASIDE)),
    Variant("FluxKontextInpaintPipeline", "flux", whole(over(FILLED, **ASIDE))),
    Variant("Flux2KleinInpaintPipeline", "flux2", whole(over(FILLED, **OUT_LAYERS))),
    Variant(
        "StableDiffusionXLInstructPix2PixPipeline", "sdxl", EDITED, eight_channels, replace(LAYOUTS["sdxl"], row=0)
    ),
)
# "[/INST]" is the last of 512 tokens; or four marks and the system's message come before "a", which CHAT has at 3.
AHEAD = {"left": 511 - 13, "right": 4 + len(instruct_processor("right").tokenizer(SYSTEM_MESSAGE)["input_ids"]) - 3}
INSTRUCTED = tuple(
    Variant(
        "Flux2Pipeline",
        "flux2",
        over(PLAIN, **OUT_LAYERS),
        instructed(side),
        replace(LAYOUTS["flux2"], calls=1, words=shifted(CHAT, AHEAD[side])),
    )
    for side in ("left", "right")
)
KANDINSKY = (
    Variant("KandinskyV22Img2ImgPipeline", "kandinsky-decoder", whole(embedded(image=picture))),
    Variant(
        "KandinskyV22InpaintPipeline",
        "kandinsky-decoder",
        embedded(image=picture, mask_image=lambda: np.asarray(hole(), np.float32) / 255),
        nine_channels_of_kandinsky,
    ),
)
WITHOUT_TEXT = (
    Variant("DDIMPipeline", "ddpm", dict, ddim),
    Variant("LDMPipeline", "ddpm", dict, latent),
    Variant("LDMSuperResolutionPipeline", "ddpm", lambda: {"image": picture().resize((64, 32))}, enlarging),
)
VARIANTS = (*SD, *SDXL, *JOINT, *PICTURE_TO_GO_BY, *INSTRUCTED, *KANDINSKY, *WITHOUT_TEXT)
