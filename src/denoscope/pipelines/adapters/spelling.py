"""Which tokens spell which word, for the tokenizers of text encoders."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from transformers import PreTrainedTokenizerBase

TokenKind = Literal["bos", "words", "eos", "padding", "image", "picture"]
"""``image`` are embeddings of a picture among the text, ``picture`` the places of the picture itself."""

Spelling = Literal["clip", "sentencepiece", "chat", "instruct"]
"""How a tokenizer marks words: at their end (CLIP), at their beginning (T5), in a chat template (Qwen, Mistral)."""

_WORD_END: Final = "</w>"
_WORD_BEGINS: Final = "▁"
_BYTES_BEGIN: Final = ("Ġ", "Ċ")
# What comes ahead of the user's words, how many tokens further they begin, and what ends them.
_TURNS: Final[dict[Spelling, tuple[str, int, str]]] = {
    "chat": ("user", 2, "<|im_end|>"),  # a line break after the name
    "instruct": ("[INST]", 1, "[/INST]"),
}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the prompt as the model sees it.

    ``label`` is unique within the prompt ("red", and "red#2" for its second occurrence); ``positions`` are the columns
    of the attention matrix that belong to it, one per token; ``tokens`` are those tokens as the tokenizer spells them.
    """

    label: str
    positions: tuple[int, ...]
    tokens: tuple[str, ...]


def read_tokens(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], spelling: Spelling
) -> tuple[list[Word], list[TokenKind]]:
    """The words of one row of token ids, and the kind of every token.

    Raises ``ValueError`` for a chat template that has no turn of the user.
    """
    spelled: list[str] = tokenizer.convert_ids_to_tokens(list(ids))
    added = tokenizer.get_added_vocab()
    start, end, kinds = _extent(tokenizer, ids, spelled, spelling)
    words: list[Word] = []
    seen: dict[str, int] = {}
    first = start
    for i in range(start, end):
        last = i == end - 1
        if spelling == "clip":
            ends = last or spelled[i].endswith(_WORD_END) or spelled[i] in added
        else:
            marks = _WORD_BEGINS if spelling == "sentencepiece" else _BYTES_BEGIN
            ends = last or spelled[i + 1].startswith(marks) or spelled[i] in added or spelled[i + 1] in added
        if not ends:
            continue
        text = tokenizer.decode(list(ids[first : i + 1])).replace(_WORD_END, " ").strip()
        if text:  # T5 spells some marks as an empty beginning and the mark
            seen[text] = seen.get(text, 0) + 1
            label = text if seen[text] == 1 else f"{text}#{seen[text]}"
            words.append(Word(label, tuple(range(first, i + 1)), tuple(spelled[first : i + 1])))
            first = i + 1
    return words, kinds


def _extent(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], spelled: Sequence[str], spelling: Spelling
) -> tuple[int, int, list[TokenKind]]:
    """Where the prompt begins and ends, and the kind of every token."""
    if spelling in _TURNS:
        return _user_turn(tokenizer, ids, spelled, spelling)
    start = 1 if spelling == "clip" else 0
    # The padding token may be the end token itself (SD 1.x): only the first one ends the prompt.
    end = next((i for i, token in enumerate(ids) if i >= start and token == tokenizer.eos_token_id), len(ids))
    kinds: list[TokenKind] = [
        "bos" if i < start else "words" if i < end else "eos" if i == end else "padding" for i in range(len(ids))
    ]
    return start, end, kinds


def _user_turn(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], spelled: Sequence[str], spelling: Spelling
) -> tuple[int, int, list[TokenKind]]:
    """The prompt lies between the marks of the user's turn; what the template adds begins and ends it.

    Padding may stand on either side.
    """
    mark, further, ending = _TURNS[spelling]
    try:
        start = spelled.index(mark) + further
    except ValueError as error:
        raise ValueError("the chat template has no turn of the user") from error
    end = next((i for i in range(start, len(ids)) if spelled[i] == ending), len(ids))
    padding = tokenizer.pad_token_id
    kinds: list[TokenKind] = [
        "padding" if token == padding and not start <= i <= end
        else "bos" if i < start else "words" if i < end else "eos"
        for i, token in enumerate(ids)
    ]  # fmt: skip
    return start, end, kinds
