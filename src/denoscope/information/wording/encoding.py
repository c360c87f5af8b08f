"""A text encoder's view of words: vectors with and without their neighbours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedTokenizerBase

from denoscope.information.errors import InformationError
from denoscope.pipelines.adapters import adapter_for
from denoscope.pipelines.adapters.base import TextPart
from denoscope.pipelines.adapters.spelling import Word, read_tokens

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TextReader:
    """The first text encoder that a pipeline has loaded, its tokenizer, and how that spells words."""

    encoder: nn.Module
    tokenizer: PreTrainedTokenizerBase
    part: TextPart

    def embeddings(self) -> Array:
        """The table of token embeddings ``(tokens, width)``."""
        table = cast("Callable[[], nn.Embedding]", self.encoder.get_input_embeddings)()
        return table.weight.detach().double().cpu().numpy()


def text_reader(pipe: DiffusionPipeline) -> TextReader:
    """The pipeline's reader of text. Raises :class:`InformationError` for a pipeline without one."""
    for part in adapter_for(pipe).parts:
        encoder, tokenizer = getattr(pipe, part.encoder, None), getattr(pipe, part.tokenizer, None)
        if isinstance(encoder, nn.Module) and isinstance(tokenizer, PreTrainedTokenizerBase):
            return TextReader(encoder, tokenizer, part)
    raise InformationError(f"{type(pipe).__name__} reads no text, so it has no words to look at")


@torch.no_grad()
def states(reader: TextReader, texts: Sequence[str], batch: int = 64) -> tuple[list[list[int]], Array]:
    """Token ids and last hidden states ``(texts, tokens, width)`` of some texts, padded as the pipeline pads them."""
    length = reader.part.length or reader.tokenizer.model_max_length
    ids = reader.tokenizer(list(texts), padding="max_length", max_length=length, truncation=True)["input_ids"]
    found = []
    for start in range(0, len(ids), batch):
        given = torch.tensor(ids[start : start + batch], device=next(reader.encoder.parameters()).device)
        found.append(reader.encoder(given)[0].double().cpu().numpy())
    return ids, np.concatenate(found)


def words_in(reader: TextReader, ids: Sequence[int]) -> tuple[Word, ...]:
    """The words of a row of token ids."""
    return tuple(read_tokens(reader.tokenizer, ids, reader.part.spelling)[0])


def word_vectors(states_of_text: Array, words: Sequence[Word]) -> Array:
    """The mean state over each word's tokens: ``(tokens, width)`` to ``(words, width)``."""
    return np.stack([states_of_text[list(word.positions)].mean(0) for word in words])


def cosines(one: Array, other: Array) -> Array:
    """Cosines of all rows of ``(n, width)`` with all of ``(m, width)``: ``(n, m)``.

    >>> cosines(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [[1.0, 0.0]]
    """
    lengths = [np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12) for rows in (one, other)]
    found: Array = (one / lengths[0]) @ (other / lengths[1]).T
    return found


def vocabulary(reader: TextReader) -> list[str]:
    """Whole words of the tokenizer: alphabetic, two letters or more, in lower case, each one token; sorted."""
    ending = "</w>" if reader.part.spelling == "clip" else ""
    beginning = {"sentencepiece": "▁", "chat": "Ġ"}.get(reader.part.spelling, "")
    found = set()
    for token in reader.tokenizer.get_vocab():
        if token.endswith(ending) and token.startswith(beginning):
            word = token.removesuffix(ending).removeprefix(beginning)
            if len(word) > 1 and word.isalpha() and word.isascii() and word.islower():
                found.add(word)
    return sorted(found)
