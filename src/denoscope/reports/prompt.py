"""The prompt as a row of words: which parts of the text are traced words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the prompt; ``word`` is the index of the traced word there, or ``None``."""

    text: str
    word: int | None = None


def split_prompt(prompt: str, words: Sequence[str]) -> tuple[list[Piece], list[int]]:
    """Cut a prompt at its traced words; also returns the indices of words that are not found in it.

    A label "red#2" is the second "red". Words are found whatever their case, whole words first.

    >>> pieces, missing = split_prompt("a red dog, a red mat", ["red", "red#2", "cat"])
    >>> [(piece.text, piece.word) for piece in pieces], missing
    ([('a ', None), ('red', 0), (' dog, a ', None), ('red', 1), (' mat', None)], [2])
    """
    places: dict[int, tuple[int, int]] = {}
    missing = []
    for index, label in enumerate(words):
        place = _find(prompt, label, list(places.values()))
        if place is None:
            missing.append(index)
        else:
            places[index] = place
    pieces = []
    done = 0
    for index, (start, end) in sorted(places.items(), key=lambda item: item[1]):
        if start > done:
            pieces.append(Piece(prompt[done:start]))
        pieces.append(Piece(prompt[start:end], index))
        done = end
    if done < len(prompt):
        pieces.append(Piece(prompt[done:]))
    return pieces, missing


def _find(prompt: str, label: str, taken: list[tuple[int, int]]) -> tuple[int, int] | None:
    numbered = re.fullmatch(r"(.+)#(\d+)", label, re.DOTALL)
    readings = [(label, 1)] + ([(numbered[1], int(numbered[2]))] if numbered else [])
    for text, number in readings:
        if not text:
            continue
        for pattern in (rf"(?<!\w){re.escape(text)}(?!\w)", re.escape(text)):
            spans = [match.span() for match in re.finditer(pattern, prompt, re.IGNORECASE)]
            if 1 <= number <= len(spans):
                start, end = spans[number - 1]
                if all(end <= other_start or start >= other_end for other_start, other_end in taken):
                    return start, end
    return None
