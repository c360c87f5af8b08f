"""Flux.1 (dev, schnell, Fill, Kontext): joint layers and single ones, T5 text, packed latents."""

from collections.abc import Mapping
from typing import ClassVar

from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope.pipelines.adapters.base import (
    Adapter,
    Attends,
    Branch,
    DenoiserCall,
    Section,
    TextPart,
    token_grid,
    unpacked,
)


class FluxAdapter(Adapter):
    """Attention of [text, picture] in all blocks; a single block isn't told which is which, the whole call is.

    CLIP tells the model one vector and has no columns. ``true_cfg_scale`` makes a second call for the negative prompt.
    """

    name = "flux"
    classes: ClassVar[tuple[str, ...]] = (
        "FluxPipeline",
        "FluxImg2ImgPipeline",
        "FluxInpaintPipeline",
        "FluxFillPipeline",
        "FluxKontextPipeline",
        "FluxKontextInpaintPipeline",
        "FluxControlPipeline",
        "FluxControlImg2ImgPipeline",
        "FluxControlInpaintPipeline",
        "FluxControlNetPipeline",
        "FluxControlNetImg2ImgPipeline",
        "FluxControlNetInpaintPipeline",
    )
    denoiser_name = "transformer"
    sample_name = "hidden_states"
    patch = 2
    channel_axis = 2
    encodes_twice = True
    parts = (TextPart("text_encoder_2", "tokenizer_2", "sentencepiece", 512),)
    joint = True
    processor_name = None
    feature_layers = ("transformer_blocks.*",)

    def layers(self, pipe: DiffusionPipeline, attends: Attends) -> Mapping[str, nn.Module]:
        """``attn`` of every block, joint blocks first, as they are called."""
        found = self.denoiser(pipe).named_modules()
        return {name: layer for name, layer in found if name.split(".")[-1] == "attn"}

    def branches(self, pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
        """The second call of a step has the negative prompt."""
        names: tuple[Branch, ...] = ("cond", "uncond")
        return {names[call.index]: slice(0, rows)} if call.index < len(names) else {}

    def grid(self, pipe: DiffusionPipeline, call: DenoiserCall) -> tuple[int, int]:
        """Twice the tokens each way: a token holds 2 × 2 latents."""
        rows, columns = token_grid(call.tensor("img_ids"))
        return 2 * rows, 2 * columns

    def spatial(self, latents: Tensor, grid: tuple[int, int]) -> Tensor | None:
        """Unpacked."""
        return unpacked(latents, grid)

    def section(self, call: DenoiserCall, layer: nn.Module, queries: int, keys: int) -> Section | None:
        """[text, picture, pictures to go by]."""
        text = call.tensor("encoder_hidden_states").shape[1]
        rows, columns = token_grid(call.tensor("img_ids"))
        places = slice(text, text + rows * columns)
        all_keys = text + call.tensor("hidden_states").shape[1]
        return Section(places, slice(0, text), places) if keys == queries == all_keys else None

    def token_places(
        self, pipe: DiffusionPipeline, call: DenoiserCall, count: int
    ) -> tuple[slice, tuple[int, int]] | None:
        """Single blocks may give text and picture in one."""
        size = token_grid(call.tensor("img_ids"))
        text = call.tensor("encoder_hidden_states").shape[1]
        start = text if count == text + call.tensor("hidden_states").shape[1] else 0
        return slice(start, start + size[0] * size[1]), size
