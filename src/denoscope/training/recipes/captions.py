"""Captions as conditions: the states of a frozen CLIP text encoder, which cross-attention reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from transformers import CLIPTextModel, CLIPTokenizer

from denoscope.pipelines.loading import EMBEDDED, embedded_folder
from denoscope.training.recipes.config import RecipeError
from denoscope.training.recipes.modality import Conditions

STATES: Final = "encoder_hidden_states"


@dataclass(frozen=True)
class CaptionEncoder:
    """A tokenizer and a text encoder, as a Stable Diffusion pipeline has them."""

    tokenizer: CLIPTokenizer
    text_encoder: CLIPTextModel

    @classmethod
    def load(cls, name: str | Path) -> "CaptionEncoder":
        """From a folder with ``tokenizer/`` and ``text_encoder/`` (any Stable Diffusion pipeline's), or ``"shapes"``.

        Raises :class:`RecipeError` when the folder has no such parts or they can't be read.
        """
        folder = embedded_folder(str(name)) if name in EMBEDDED else Path(name)
        for part in ("tokenizer", "text_encoder"):
            if not (folder / part).is_dir():
                raise RecipeError(f"{folder} has no {part}/: give the folder of a pipeline with a CLIP text encoder")
        try:
            tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer")
            encoder = CLIPTextModel.from_pretrained(folder / "text_encoder", use_safetensors=True)
        except Exception as error:  # A damaged folder fails in as many ways as there are files and libraries.
            raise RecipeError(f"the text encoder in {folder} can't be read: {str(error).splitlines()[0]}") from error
        return cls(tokenizer, encoder.float().eval().requires_grad_(False))

    @property
    def width(self) -> int:
        """Channels of a word's state."""
        return int(self.text_encoder.config.hidden_size)

    @torch.no_grad()
    def states(self, captions: Sequence[str], batch_size: int = 256) -> Tensor:
        """The last hidden states of captions, padded and cut as pipelines do: ``(n, tokens, width)`` float32."""
        found = []
        for start in range(0, len(captions), batch_size):
            ids = self.tokenizer(
                list(captions[start : start + batch_size]),
                padding="max_length",
                truncation=True,
                max_length=self.text_encoder.config.max_position_embeddings,
                return_tensors="pt",
            )["input_ids"]
            found.append(self.text_encoder(ids).last_hidden_state)
        return torch.cat(found)

    @cached_property
    def nothing(self) -> Tensor:
        """The states of the empty caption, ``(tokens, width)``: what a network is told when it isn't told anything."""
        return self.states([""])[0]

    def tell(self, captions: Sequence[str]) -> Conditions:
        """Captions as conditions."""
        return {STATES: self.states(captions)}

    def untold(self, conditions: Conditions) -> Conditions:
        """As many empty captions."""
        states = conditions[STATES]
        return {STATES: self.nothing.to(states).expand(states.shape)}

    def save(self, folder: Path) -> None:
        """Write ``tokenizer/`` and ``text_encoder/``."""
        self.tokenizer.save_pretrained(folder / "tokenizer")
        self.text_encoder.save_pretrained(folder / "text_encoder")
