"""The words that are watched, and which columns of attention are theirs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from denoscope.observer.errors import ObserveError
from denoscope.pipelines.adapters import PromptTokens, TokenKind, Word


def select_words(tokens: PromptTokens, words: Sequence[str] | None) -> tuple[Word, ...]:
    """The words asked for, in the prompt's order; ``None`` asks for all.

    "red" finds every occurrence, "red#2" the second alone; a single word need not stand in a list. Raises
    :class:`ObserveError` for a word that is not in the prompt, naming those that are.
    """
    if words is None:
        return tokens.words
    words = [words] if isinstance(words, str) else words
    wanted = {word.strip().lower() for word in words}
    chosen = tuple(
        word for word in tokens.words if word.label.lower() in wanted or word.label.split("#")[0].lower() in wanted
    )
    found = {form for word in chosen for form in (word.label.lower(), word.label.split("#")[0].lower())}
    for word in words:
        if word.strip().lower() not in found:
            known = ", ".join(repr(known.label) for known in tokens.words) or "none (the prompt is empty)"
            raise ObserveError(f"the word {word!r} is not in the prompt; its words are {known}")
    return chosen


@dataclass(frozen=True, slots=True)
class Columns:
    """The words watched and the kind of each of the T columns of text."""

    words: tuple[Word, ...]
    kinds: tuple[TokenKind, ...]

    def fitted(self, count: int) -> "Columns | None":
        """With padding added or taken away at the end, so that there are ``count``; ``None`` if that doesn't do."""
        kept, gone = self.kinds[:count], self.kinds[count:]
        if self.kinds[-1:] not in ((), ("padding",)) or any(kind != "padding" for kind in gone):
            return self if len(self.kinds) == count else None
        more: list[TokenKind] = ["padding"] * (count - len(kept))
        return replace(self, kinds=(*kept, *more))

    def matrix(self, kinds: Sequence[TokenKind], keys: int, text: slice) -> Tensor:
        """Indicators ``(keys, words + kinds)``; the text's columns are ``text``, all others places of the picture."""
        found = np.zeros((keys, len(self.words) + len(kinds)), np.float32)
        for column, word in enumerate(self.words):
            found[[text.start + position for position in word.positions], column] = 1
        told: list[TokenKind] = ["picture"] * keys
        told[text] = self.kinds
        for key, kind in enumerate(told):
            found[key, len(self.words) + kinds.index(kind)] = 1
        return torch.from_numpy(found)
