"""Slots for a prompt of one's own: which words may be measured, and what could stand in their place."""

import re
from dataclasses import dataclass

import numpy as np
from diffusers import DiffusionPipeline

from denoscope.information.errors import InformationError
from denoscope.information.wording.encoding import (
    TextReader,
    cosines,
    states,
    text_reader,
    vocabulary,
    word_vectors,
    words_in,
)
from denoscope.information.wording.template import Template
from denoscope.observer.binding import STOP_WORDS, runs_of

_SHORTLIST = 48


@dataclass(frozen=True, slots=True)
class Substitute:
    """A word that could stand in a slot, and the cosine of its state with the slot's own word in the same prompt."""

    word: str
    similarity: float


def substitutes(pipe: DiffusionPipeline, prompt: str, word: str, count: int = 7) -> list[Substitute]:
    """Words that the text encoder takes for most like ``word`` when they stand in its place; the most alike first.

    Candidates are whole words of the tokenizer: first the 48 nearest by token embedding, then by the state that the
    encoder gives them in the prompt itself. Forms of the same word ("cat", "cats") are left out. Nearness is of
    meaning as the encoder has it: opposites are near, and so are synonyms, which draw the same picture and so must be
    taken out by who knows them.

    Raises :class:`InformationError` for a word that doesn't stand in the prompt.
    """
    reader = text_reader(pipe)
    place = _place_of(prompt, word)
    candidates = [other for other in vocabulary(reader) if not _same_word(other, word) and other not in STOP_WORDS]
    near = _nearest_by_embedding(reader, word, candidates)
    texts = [prompt, *(_put(prompt, place, other) for other in near)]
    ids, found = states(reader, texts)
    vectors = []
    for text, row, state in zip(texts, ids, found, strict=True):
        # The word's own place in the sequence of words, which substitutes don't change.
        number = len(re.findall(r"\w+", text[: place[0]]))
        words = [held for held in words_in(reader, row) if any(sign.isalnum() for sign in held.label)]
        vectors.append(word_vectors(state, words)[min(number, len(words) - 1)])
    alike = cosines(np.stack(vectors[:1]), np.stack(vectors[1:]))[0]
    order = np.argsort(-alike, kind="stable")[:count]
    return [Substitute(near[int(index)], float(alike[index])) for index in order]


def propose(pipe: DiffusionPipeline, prompt: str, count: int = 8) -> Template:
    """A template of a prompt: a slot for every content word, the word itself and its nearest substitutes.

    Content words are those that no stop word is; a slot is named after its word. Raises :class:`InformationError` for a
    prompt without any, or with braces.

    >>> import denoscope
    >>> propose(denoscope.load("shapes"), "a red circle", 3).text
    'a {red} {circle}'
    """
    if "{" in prompt or "}" in prompt:
        raise InformationError("the prompt has braces already: take them out, or write the template yourself")
    reader = text_reader(pipe)
    words = [word.label for word in words_in(reader, states(reader, [prompt])[0][0])]
    chosen = [label for run in runs_of(words) for label in run if label.isidentifier() and label.isascii()]
    chosen = [label for label in dict.fromkeys(chosen) if re.search(rf"\b{re.escape(label)}\b", prompt, re.IGNORECASE)]
    if not chosen:
        raise InformationError("the prompt has no word that could be a slot: write the template yourself")
    text, slots = prompt, {}
    for label in chosen:
        begin, end = _place_of(prompt, label)
        own = prompt[begin:end]
        slots[label] = (own, *(each.word for each in substitutes(pipe, prompt, own, count - 1)))
        begin, end = _place_of(text, label)
        text = f"{text[:begin]}{{{label}}}{text[end:]}"
    return Template(text, slots)


def _place_of(prompt: str, word: str) -> tuple[int, int]:
    """Where the word stands first, outside of braces."""
    found = re.search(rf"(?<!\{{)\b{re.escape(word)}\b(?!\}})", prompt, re.IGNORECASE)
    if found is None:
        raise InformationError(f"the word {word!r} is not in the prompt")
    return found.span()


def _put(prompt: str, place: tuple[int, int], word: str) -> str:
    return prompt[: place[0]] + word + prompt[place[1] :]


def _same_word(one: str, other: str) -> bool:
    """Forms of one word: one begins with the other but for its last letter, and adds three letters at most."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return long.startswith(short.rstrip("e")) and len(long) - len(short) <= 3


def _nearest_by_embedding(reader: TextReader, word: str, candidates: list[str]) -> list[str]:
    table = reader.embeddings()

    def embedded(text: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        ids = reader.tokenizer(text, add_special_tokens=False)["input_ids"]
        found: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = table[ids].mean(0)
        return found

    if not candidates:
        raise InformationError(
            "the tokenizer has no other whole words to put in a slot: write the substitutes yourself"
        )
    alike = cosines(embedded(word)[None], np.stack([embedded(each) for each in candidates]))[0]
    return [candidates[int(index)] for index in np.argsort(-alike, kind="stable")[:_SHORTLIST]]
