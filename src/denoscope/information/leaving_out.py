"""What a pipeline is told when one word of its prompt is left out."""

import re
from collections.abc import Mapping
from typing import Literal, get_args

import torch
from diffusers import DiffusionPipeline

from denoscope.information.conditioning import Conditioning, conditioning
from denoscope.information.errors import InformationError
from denoscope.observer import select_words
from denoscope.pipelines.adapters import Word, adapter_for

How = Literal["omit", "mask", "neutral"]
"""A word is struck from the text, its columns are those of an empty prompt, or a word that says less takes its place.

Struck or replaced, no column knows of it. Masked, the other columns do, where the text encoder lets words see one
another: what is measured is then what the word's own columns say beyond them.
"""


def words_of(pipe: DiffusionPipeline, prompt: str, words: list[str] | None) -> tuple[Word, ...]:
    """The words asked for; ``ObserveError`` for one that isn't in the prompt."""
    adapter = adapter_for(pipe)
    return select_words(adapter.prompt_tokens(pipe, adapter.tokenize(pipe, prompt)), words)


def without(
    pipe: DiffusionPipeline,
    given: Conditioning,
    word: Word,
    how: How = "omit",
    neutral: Mapping[str, str] | None = None,
    **call: object,
) -> Conditioning:
    """The conditioning of ``given``'s prompt without one word; ``call`` as it was for ``given``.

    Raises :class:`InformationError` for an unknown ``how``, a word without a neutral substitute, or columns that
    aren't those of the prompt.
    """
    if how == "mask":
        return _masked(given, conditioning(pipe, "", **call), word)
    if how not in get_args(How):
        raise InformationError(f"a word can be left out by {', '.join(get_args(How))}, not by {how!r}")
    substitute = ""
    if how == "neutral":
        known = neutral or {}
        found = known.get(word.label, known.get(word.label.split("#")[0]))
        if found is None:
            raise InformationError(
                f"{word.label!r} has no neutral substitute: give neutral={{{word.label!r}: 'thing'}}"
            )
        substitute = found
    return conditioning(pipe, struck(given.prompt, word.label, substitute), **call)


def struck(prompt: str, label: str, substitute: str = "") -> str:
    """A prompt with one word replaced; ``red#2`` is the second "red".

    Raises :class:`InformationError` when the word can't be found in the text as it is written.

    >>> struck("a red circle above a red square", "red#2"), struck("a red circle", "circle", "shape")
    ('a red circle above a square', 'a red shape')
    """
    form, _, number = label.partition("#")
    places = list(re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", prompt, re.IGNORECASE))
    which = int(number or 1) - 1
    if which >= len(places):
        raise InformationError(f"the word {label!r} isn't written so in the prompt: leave it out by how='mask'")
    found = places[which]
    return " ".join(f"{prompt[: found.start()]} {substitute} {prompt[found.end() :]}".split())


def _masked(given: Conditioning, empty: Conditioning, word: Word) -> Conditioning:
    states, nothing = given.states, empty.states
    if max(word.positions) >= min(states.shape[1], nothing.shape[1]):
        raise InformationError(f"{word.label!r} has no columns of its own in this text: leave it out by how='omit'")
    changed = states.clone()
    columns = torch.tensor(word.positions, device=states.device)
    changed[:, columns] = nothing[:, columns]
    return given.with_states(changed)
