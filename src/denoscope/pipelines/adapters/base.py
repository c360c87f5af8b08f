"""What the observer needs to know of an architecture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from diffusers import DiffusionPipeline
from torch import Tensor, nn

TokenKind = Literal["bos", "words", "eos", "padding"]
Branch = Literal["cond", "uncond"]


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the prompt as the model sees it.

    ``label`` is unique within the prompt ("red", and "red#2" for its second occurrence); ``positions`` are the columns
    of the attention matrix that belong to it, one per token; ``tokens`` are those tokens as the tokenizer spells them.
    """

    label: str
    positions: tuple[int, ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A tokenised prompt: its words, and the kind of every token position."""

    words: tuple[Word, ...]
    kinds: tuple[TokenKind, ...]


class Adapter(Protocol):
    """The facts about one architecture that the observer uses. Adapters hold no state and change nothing."""

    name: str

    def denoiser(self, pipe: DiffusionPipeline) -> nn.Module:
        """The module that predicts noise, called once or more per scheduler step."""
        ...

    def text_encoder(self, pipe: DiffusionPipeline) -> nn.Module | None:
        """The module whose first input is the token ids ``(B, tokens)`` of the prompt, then of the negative prompt.

        ``None`` for a pipeline that was loaded without it.
        """
        ...

    def cross_attention(self, pipe: DiffusionPipeline) -> Mapping[str, nn.Module]:
        """Dotted name to module of every layer in which the picture attends to the text, in calling order."""
        ...

    def prompt_tokens(self, pipe: DiffusionPipeline, ids: Sequence[int]) -> PromptTokens:
        """Words and token kinds of one row of token ids."""
        ...

    def tokenize(self, pipe: DiffusionPipeline, prompt: str) -> list[int]:
        """The token ids that the pipeline will make of a prompt."""
        ...

    def branches(self, pipe: DiffusionPipeline, output: Tensor) -> Mapping[Branch, slice]:
        """Which rows of a denoiser call belong to which branch of classifier-free guidance."""
        ...

    def map_size(self, sample: Tensor, queries: int) -> tuple[int, int]:
        """Height and width of a layer's map with this many queries, for a denoiser input ``(B, c, h, w)``.

        Raises ``ValueError`` if no level of the denoiser has that many locations.
        """
        ...
