"""Flux.2 klein: as Flux, but its text is a chat template read by Qwen, and its tokens are latents themselves."""

from diffusers import DiffusionPipeline
from torch import Tensor

from denoscope.pipelines.adapters.base import DenoiserCall, TextPart, token_grid
from denoscope.pipelines.adapters.flux import FluxAdapter


class Flux2KleinAdapter(FluxAdapter):
    """The template's own tokens count as beginning and end of the prompt."""

    name = "flux-2-klein"
    classes = ("Flux2KleinPipeline",)
    parts = (TextPart("text_encoder", "tokenizer", "chat", 512),)
    image_is_optional = True
    note = "what the chat template adds counts as beginning and end of the prompt"

    def tokenize(self, pipe: DiffusionPipeline, prompt: str) -> list[list[int]]:
        """With the template around the prompt, as the pipeline has it."""
        turns = [{"role": "user", "content": prompt}]
        text = pipe.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        ids: list[int] = pipe.tokenizer(text, padding="max_length", max_length=512, truncation=True)["input_ids"]
        return [ids]

    def grid(self, pipe: DiffusionPipeline, call: DenoiserCall) -> tuple[int, int]:
        """The tokens: the autoencoder's patches are packed before noise is added."""
        return token_grid(call.tensor("img_ids"))

    def spatial(self, latents: Tensor, grid: tuple[int, int]) -> Tensor | None:
        """A token is a place."""
        height, width = grid
        return latents[:, : height * width].transpose(1, 2).reshape(len(latents), -1, height, width)
