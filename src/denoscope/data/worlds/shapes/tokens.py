"""The tokenizer of the shapes world: CLIP's kind, with the world's words as single tokens."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import CLIPTokenizer

from denoscope.data.worlds.shapes.captions import GENERIC_NOUN, PLACES, RELATIONS, SYNONYMS
from denoscope.data.worlds.shapes.scenes import VALUES

BOS, EOS = "<|startoftext|>", "<|endoftext|>"
MAX_TOKENS = 32
_SPLIT_WORDS = ("crimson", "emerald", "turquoise")
"""Adjectives kept out of the tokenizer's training, so that some words are several tokens, as in large models."""


def new_tokenizer() -> CLIPTokenizer:
    """A byte-level CLIP tokenizer in which the world's words are one token each and any other text is spelled out.

    >>> tokens = new_tokenizer()
    >>> tokens.tokenize("a red circle")
    ['a</w>', 'red</w>', 'circle</w>']
    """
    words = {word for phrase in [*PLACES, *RELATIONS, *SYNONYMS] for word in phrase.split()}
    words |= {value for values in VALUES.values() for value in values} | {"a", "an", GENERIC_NOUN}
    corpus = [word for word in sorted(words) if word not in _SPLIT_WORDS for _ in range(100)]
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        min_frequency=50,
        end_of_word_suffix="</w>",
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    with TemporaryDirectory() as folder:
        _, merges_file = tokenizer.model.save(folder)
        merges = [line for line in Path(merges_file).read_text("utf-8").splitlines() if not line.startswith("#")]
    symbols = [*alphabet, *(f"{letter}</w>" for letter in alphabet)]
    symbols += ["".join(merge.split(" ")) for merge in merges]
    vocabulary = {symbol: index for index, symbol in enumerate(dict.fromkeys([*symbols, BOS, EOS]))}
    return CLIPTokenizer(
        vocab=vocabulary,
        merges=[tuple(merge.split(" ")) for merge in merges],
        bos_token=BOS,
        eos_token=EOS,
        unk_token=EOS,
        pad_token=EOS,
        model_max_length=MAX_TOKENS,
    )


def tokenize(tokenizer: CLIPTokenizer, texts: list[str]) -> Tensor:
    """Token ids ``(n, 32)``, padded and cut as Stable Diffusion's pipeline does."""
    ids = tokenizer(texts, padding="max_length", truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
    return ids["input_ids"]
