"""Flux.2: as Flux, but its text is a chat template, and its tokens are latents themselves."""

from typing import ClassVar

from diffusers import DiffusionPipeline
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from denoscope.pipelines.adapters.base import DenoiserCall, TextPart, token_grid
from denoscope.pipelines.adapters.flux import FluxAdapter


class Flux2KleinAdapter(FluxAdapter):
    """Flux.2 klein: Qwen reads the text. The template's own tokens count as beginning and end of the prompt."""

    name = "flux-2-klein"
    classes: ClassVar[tuple[str, ...]] = ("Flux2KleinPipeline", "Flux2KleinInpaintPipeline")
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


class Flux2Adapter(Flux2KleinAdapter):
    """Flux.2 dev: Mistral reads the text, between ``[INST]`` and ``[/INST]``; guidance is told, so there is one branch.

    What the pipeline calls its tokenizer is a processor of text and pictures.
    """

    name = "flux-2-dev"
    classes = ("Flux2Pipeline",)
    encodes_twice = False
    parts = (TextPart("text_encoder", "tokenizer", "instruct", 512),)
    note = "what the chat template and the system's message add counts as beginning and end of the prompt"

    def tokenizer(self, pipe: DiffusionPipeline, part: TextPart) -> PreTrainedTokenizerBase | None:
        """The processor's."""
        found: PreTrainedTokenizerBase = pipe.tokenizer.tokenizer
        return found

    def tokenize(self, pipe: DiffusionPipeline, prompt: str) -> list[list[int]]:
        """With the template and the system's message around the prompt, as the pipeline has it."""
        said = (("system", pipe.system_message), ("user", prompt.replace("[IMG]", "")))
        turns = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in said]
        found = pipe.tokenizer.apply_chat_template(
            [turns], tokenize=True, return_dict=True, padding="max_length", truncation=True, max_length=512
        )
        return [list(found["input_ids"][0])]
