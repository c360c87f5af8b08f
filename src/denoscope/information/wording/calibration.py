"""Is every word what the text encoder takes it for? Similarities of a prompt's words, and what they warn of."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import xarray as xr
from diffusers import DiffusionPipeline
from torch import nn

from denoscope.information.wording.encoding import (
    Array,
    TextReader,
    cosines,
    states,
    text_reader,
    vocabulary,
    word_vectors,
    words_in,
)
from denoscope.observer.binding import pairs_of, runs_of
from denoscope.pipelines.adapters import adapter_for
from denoscope.pipelines.adapters.spelling import Word

_PAIRS: Final = 200
_QUANTILE: Final = 0.99


@dataclass(frozen=True, slots=True)
class Calibration:
    """``similarity`` has ``contextual`` and ``embedding`` cosines over ``(word, other_word)``; ``warnings`` are
    sentences; ``threshold`` is the contextual cosine above which two words are closer than 99 % of unrelated pairs.
    """

    similarity: xr.Dataset
    threshold: float
    warnings: tuple[str, ...]


def calibrate(pipe: DiffusionPipeline, prompt: str, seed: int = 0) -> Calibration:
    """How the text encoder sees the words of a prompt.

    Cosines of states are high between any two words (states of one encoder point one way: Ethayarajh 2019), and not
    alike from encoder to encoder. So "too close" is told by the encoder's own pairs: the cosine that 1 % of 200 pairs
    of words drawn from its vocabulary reach when they stand in the place of two words of this prompt.

    Warns of a word that is spelt in pieces, two words too close, a modifier nearer to another noun than to its own, and
    text whose width the denoiser doesn't take. Raises :class:`~denoscope.information.InformationError` for a pipeline
    that reads no text.
    """
    reader = text_reader(pipe)
    ids, found = states(reader, [prompt])
    words = words_in(reader, ids[0])
    contextual = cosines(*(2 * [word_vectors(found[0], words)])) if words else np.zeros((0, 0))
    labels = [word.label for word in words]
    content = [label for run in runs_of(labels) for label in run]
    threshold = _threshold(reader, prompt, content, seed) if len(content) > 1 else 1.0
    warnings = [
        *_pieces(words, content),
        *_too_close(labels, content, contextual, threshold),
        *_wrong_noun(labels, contextual),
        *_widths(pipe, reader),
    ]
    similarity = xr.Dataset(
        {
            "contextual": (("word", "other_word"), contextual),
            "embedding": (("word", "other_word"), _embedding_cosines(reader, ids[0], words)),
        },
        {"word": labels, "other_word": labels},
        {"prompt": prompt, "encoder": type(reader.encoder).__name__},
    )
    return Calibration(similarity, threshold, tuple(warnings))


def _embedding_cosines(reader: TextReader, ids: list[int], words: tuple[Word, ...]) -> Array:
    rows = word_vectors(reader.embeddings()[ids], words) if words else np.zeros((0, 1))
    return cosines(rows, rows)


def _threshold(reader: TextReader, prompt: str, content: list[str], seed: int) -> float:
    """The cosine that unrelated words reach in the places of the prompt's first two content words."""
    known = vocabulary(reader)
    if len(known) < 8:
        return 1.0
    rng = np.random.default_rng(seed)
    plain = [label.split("#")[0] for label in content[:2]]
    texts = []
    for _ in range(_PAIRS):
        one, other = rng.choice(len(known), 2, replace=False)
        text = prompt.replace(plain[0], "\0", 1).replace(plain[1], "\1", 1)
        texts.append(text.replace("\0", known[one], 1).replace("\1", known[other], 1))
    ids, found = states(reader, texts)
    own = [word.label for word in words_in(reader, states(reader, [prompt])[0][0])]
    places = [own.index(label) for label in content[:2]]
    reached = []
    for row, state in zip(ids, found, strict=True):
        words = words_in(reader, row)
        if max(places) < len(words):
            pair = word_vectors(state, [words[place] for place in places])
            reached.append(float(cosines(pair[:1], pair[1:])[0, 0]))
    return float(np.quantile(reached, _QUANTILE)) if reached else 1.0


def _pieces(words: tuple[Word, ...], content: list[str]) -> list[str]:
    return [
        f"{word.label!r} is spelt in {len(word.tokens)} pieces ({'·'.join(word.tokens)}): the encoder may not know it"
        for word in words
        if word.label in content and len(word.tokens) > 1
    ]


def _too_close(labels: list[str], content: list[str], alike: Array, threshold: float) -> list[str]:
    found = []
    for index, one in enumerate(labels):
        for other in range(index + 1, len(labels)):
            same = one.split("#")[0].lower() == labels[other].split("#")[0].lower()
            if one in content and labels[other] in content and not same and alike[index, other] > threshold:
                found.append(
                    f"{one!r} and {labels[other]!r} are closer to the encoder ({alike[index, other]:.2f}) than 99 % of "
                    f"unrelated words ({threshold:.2f}): it may mix them up"
                )
    return found


def _wrong_noun(labels: list[str], alike: Array) -> list[str]:
    pairs = pairs_of(labels)
    nouns = list(dict.fromkeys(run[-1] for run in runs_of(labels)))
    found = []
    for pair in pairs:
        others = [noun for noun in nouns if noun != pair.noun]
        if not others:
            continue
        row = alike[labels.index(pair.modifier)]
        rival = max(others, key=lambda noun: float(row[labels.index(noun)]))
        own, other = float(row[labels.index(pair.noun)]), float(row[labels.index(rival)])
        if other > own:
            found.append(
                f"{pair.modifier!r} is nearer to {rival!r} ({other:.2f}) than to its noun {pair.noun!r} ({own:.2f})"
            )
    return found


def _widths(pipe: DiffusionPipeline, reader: TextReader) -> list[str]:
    """Whether the denoiser takes text as wide as the encoder's, where the two meet without a projection."""
    denoiser = adapter_for(pipe).denoiser(pipe)
    wanted = getattr(getattr(denoiser, "config", None), "cross_attention_dim", None)
    width = getattr(getattr(reader.encoder, "config", None), "hidden_size", None)
    projects = isinstance(getattr(denoiser, "encoder_hid_proj", None), nn.Module)
    if not isinstance(wanted, int) or not isinstance(width, int) or projects or len(adapter_for(pipe).parts) > 1:
        return []
    return [f"the encoder's states are {width} wide, the denoiser takes {wanted}"] if wanted != width else []
