"""What the observer needs to know of an architecture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from diffusers import DiffusionPipeline
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from denoscope.pipelines.adapters.spelling import Spelling, TokenKind, Word, read_tokens

Branch = Literal["cond", "uncond", "image", "perturbed"]
"""Parts of a guided call: with the prompt, without it, with the picture to edit alone, with attention perturbed."""

Attends = Literal["cross", "self"]


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A tokenised prompt: its words, and the kind of every column of text."""

    words: tuple[Word, ...]
    kinds: tuple[TokenKind, ...]


@dataclass(frozen=True, slots=True)
class TextPart:
    """A run of text columns: the pipeline's components that read it; ``length`` when the tokenizer doesn't say."""

    encoder: str
    tokenizer: str
    spelling: Spelling
    length: int | None = None


@dataclass(frozen=True, slots=True)
class DenoiserCall:
    """A call of the denoiser: its arguments by name, and its number since the last scheduler step.

    ``guided`` says whether the pipeline guides without a classifier.
    """

    arguments: Mapping[str, object]
    index: int
    guided: bool

    def tensor(self, name: str) -> Tensor:
        """An argument that is a tensor. Raises ``ValueError`` when it isn't."""
        found = self.arguments.get(name)
        if not isinstance(found, Tensor):
            raise ValueError(f"the denoiser was called without {name}")
        return found


@dataclass(frozen=True, slots=True)
class Section:
    """Which queries of a layer are places of the picture, and which of its keys are text, which are places."""

    queries: slice
    text: slice
    places: slice


class Adapter:
    """The facts about one architecture. Adapters hold no state and change nothing.

    What stands here is right for pipelines around ``UNet2DConditionModel``; others say where they differ.
    """

    name: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    """Names of diffusers' pipelines."""
    denoiser_name: ClassVar[str] = "unet"
    scheduler_name: ClassVar[str] = "scheduler"
    sample_name: ClassVar[str] = "sample"
    encode_method: ClassVar[str | None] = "encode_prompt"
    encodes_twice: ClassVar[bool] = False
    """Whether the negative prompt is encoded by a second call of that method."""
    parts: ClassVar[tuple[TextPart, ...]] = (TextPart("text_encoder", "tokenizer", "clip"),)
    columns_before: ClassVar[int] = 0
    """Columns that are no text and stand before it: embeddings of a picture."""
    channel_axis: ClassVar[int] = 1
    """Where latents and predictions have their channels."""
    patch: ClassVar[int] = 1
    """How many latents each way are one place of the denoiser."""
    processor_name: ClassVar[str | None] = "AttnProcessor2_0"
    """diffusers' processor of these layers that hands queries and keys to the kernel; ``None`` where all of them do."""
    image_is_optional: ClassVar[bool] = False
    """Whether a call that takes pictures does without."""
    has_places: ClassVar[bool] = True
    """Whether what is denoised is a picture."""
    image_columns: ClassVar[bool] = False
    """Whether embeddings of a picture stand among the text's columns."""
    joint: ClassVar[bool] = False
    """Whether picture and text attend to one another in the same layers."""
    feature_layers: ClassVar[tuple[str, ...]] = ("down_blocks.2", "mid_block", "up_blocks.1")
    """Where features are read unless something else is asked for."""
    note: ClassVar[str] = ""
    """What a user should know of this family, one sentence."""

    @property
    def kinds(self) -> tuple[TokenKind, ...]:
        """The kinds of keys that picture places attend to."""
        among: tuple[TokenKind, ...] = ("image",) if self.image_columns else ()
        return ("bos", "words", "eos", "padding", *among, *(("picture",) if self.joint else ()))

    @property
    def observes(self) -> tuple[str, ...]:
        """What can be seen, for a reader."""
        words = ("words",) if self.parts else ()
        return (*words, *(("self-attention",) if self.has_places else ()), "features", "predictions")

    @property
    def way_to_show(self) -> str:
        """What a user calls so that attention goes through ``scaled_dot_product_attention``."""
        native = f'pipe.{self.denoiser_name}.set_attention_backend("native")'
        if self.processor_name is None:
            return native
        return (
            f"pipe.{self.denoiser_name}.set_attn_processor({self.processor_name}()), from "
            f"diffusers.models.attention_processor, or {native}"
        )

    # -- parts of the pipeline -----------------------------------------------------------------------------------

    def denoiser(self, pipe: DiffusionPipeline) -> nn.Module:
        """The module that predicts noise, called once or more per scheduler step."""
        found: nn.Module = getattr(pipe, self.denoiser_name)
        return found

    def scheduler(self, pipe: DiffusionPipeline) -> object:
        """The scheduler whose steps are counted."""
        return getattr(pipe, self.scheduler_name)

    def text_encoders(self, pipe: DiffusionPipeline) -> Mapping[str, nn.Module]:
        """The modules whose first input is token ids, by component name; those that are loaded."""
        found = {part.encoder: getattr(pipe, part.encoder, None) for part in self.parts}
        return {name: module for name, module in found.items() if isinstance(module, nn.Module)}

    def layers(self, pipe: DiffusionPipeline, attends: Attends) -> Mapping[str, nn.Module]:
        """Dotted name to module of every layer in which the picture attends to the text or to itself, in calling order.

        U-Nets call theirs ``attn2`` and ``attn1``.
        """
        ending = "attn2" if attends == "cross" else "attn1"
        found = {name: layer for name, layer in self.denoiser(pipe).named_modules() if name.split(".")[-1] == ending}
        return in_calling_order(found)

    # -- the prompt ----------------------------------------------------------------------------------------------

    def tokenizer(self, pipe: DiffusionPipeline, part: TextPart) -> PreTrainedTokenizerBase | None:
        """What spells a part of the text; ``None`` when the pipeline was loaded without it."""
        found: PreTrainedTokenizerBase | None = getattr(pipe, part.tokenizer)
        return found

    def tokenize(self, pipe: DiffusionPipeline, prompt: str) -> list[list[int]]:
        """The token ids that the pipeline will make of a prompt, one list for each part of the text."""
        found: list[list[int]] = []
        for part in self.parts:
            tokenizer = self.tokenizer(pipe, part)
            if tokenizer is None:  # loaded without it, as SD3 may be without T5
                found.append([])
                continue
            text = pipe.maybe_convert_prompt(prompt, tokenizer) if hasattr(pipe, "maybe_convert_prompt") else prompt
            length = part.length or tokenizer.model_max_length
            found.append(tokenizer(text, padding="max_length", max_length=length, truncation=True)["input_ids"])
        return found

    def prompt_tokens(self, pipe: DiffusionPipeline, ids: Sequence[Sequence[int]]) -> PromptTokens:
        """Words and kinds of all columns of text, from one row of token ids for each part.

        A word that several parts read owns its columns in each of them.
        """
        kinds: list[TokenKind] = ["image"] * self.columns_before
        words: dict[str, Word] = {}
        for part, row in zip(self.parts, ids, strict=True):
            found, kinds_here = read_tokens(self.tokenizer(pipe, part), row, part.spelling)
            for word in found:
                here = tuple(position + len(kinds) for position in word.positions)
                known = words.get(word.label.lower())
                words[word.label.lower()] = (
                    Word(word.label, here, word.tokens)
                    if known is None
                    else Word(known.label, known.positions + here, known.tokens + word.tokens)
                )
            kinds += kinds_here
        return PromptTokens(tuple(words.values()), tuple(kinds))

    # -- a call --------------------------------------------------------------------------------------------------

    def branches(self, pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
        """Which of the rows of a denoiser call belong to which branch of guidance; none, if the call is an extra one.

        Usually the unguided half comes first.
        """
        if not call.guided:
            return {"cond": slice(0, rows)}
        return {"uncond": slice(0, rows // 2), "cond": slice(rows // 2, rows)}

    def grid(self, pipe: DiffusionPipeline, call: DenoiserCall) -> tuple[int, int]:
        """Height and width of the latents."""
        sample = call.tensor(self.sample_name)
        return int(sample.shape[-2]), int(sample.shape[-1])

    def spatial(self, latents: Tensor, grid: tuple[int, int]) -> Tensor | None:
        """Latents or a prediction as a map ``(B, channels, h, w)``; ``None`` when they are none."""
        return latents

    def section(self, call: DenoiserCall, layer: nn.Module, queries: int, keys: int) -> Section | None:
        """What the queries and keys of a layer are; ``None`` for attention to something else than text and places."""
        states = call.arguments.get("encoder_hidden_states")
        states = states[0] if isinstance(states, tuple | list) else states
        text = int(states.shape[1]) if isinstance(states, Tensor) else 0
        own = getattr(layer, "is_cross_attention", None) is False
        if own:
            return Section(slice(0, queries), slice(0, 0), slice(0, keys)) if keys == queries else None
        return Section(slice(0, queries), slice(0, keys), slice(keys, keys)) if keys == text else None

    def map_size(self, grid: tuple[int, int], places: int) -> tuple[int, int]:
        """Height and width of a layer's map with so many places: U-Nets halve, rounding up.

        Raises ``ValueError`` if no level of the denoiser has so many.
        """
        height, width = grid
        while height * width > places and (height, width) != (1, 1):
            height, width = (height + 1) // 2, (width + 1) // 2
        if height * width != places:
            raise ValueError(f"no level of the denoiser has {places} places for latents of {grid[0]} x {grid[1]}")
        return height, width

    def token_places(
        self, pipe: DiffusionPipeline, call: DenoiserCall, count: int
    ) -> tuple[slice, tuple[int, int]] | None:
        """Which of a layer's ``count`` rows are places, and the map that they make; ``None`` if they make none."""
        try:
            return slice(0, count), self.map_size(self.grid(pipe, call), count)
        except ValueError:
            return None

    def refusal(self, pipe: DiffusionPipeline) -> str | None:
        """Why this pipeline, as it is set up, can't be observed rightly, and what to do; ``None`` if it can."""
        return None


_ORDER: Final = {"down_blocks": 0, "mid_block": 1, "up_blocks": 2}


def in_calling_order(found: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """A U-Net's layers, down, middle, up; its modules are registered in another order."""
    return dict(sorted(found.items(), key=lambda item: _ORDER.get(item[0].split(".")[0], 3)))


def token_grid(ids: Tensor) -> tuple[int, int]:
    """Height and width of the picture's tokens from their position ids ``(N, 3 or 4)``: time, row, column …

    Tokens of another time are those of pictures to go by, and don't count.
    """
    rows = ids.reshape(-1, ids.shape[-1])
    rows = rows[rows[:, 0] == rows[0, 0]]
    return int(rows[:, 1].max()) + 1, int(rows[:, 2].max()) + 1


def unpacked(latents: Tensor, grid: tuple[int, int]) -> Tensor:
    """Flux's tokens ``(B, h/2·w/2, 4·channels)`` as latents ``(B, channels, h, w)``.

    >>> import torch
    >>> unpacked(torch.arange(4.0).reshape(1, 1, 4), (2, 2))[0, 0].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    rows, columns = grid[0] // 2, grid[1] // 2
    held = latents[:, : rows * columns].reshape(len(latents), rows, columns, -1, 2, 2)
    return held.permute(0, 3, 1, 4, 2, 5).reshape(len(latents), -1, grid[0], grid[1])
