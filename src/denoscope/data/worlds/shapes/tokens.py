"""The tokenizer of the shapes world: CLIP's kind, with the world's words as single tokens."""

from pathlib import Path
from typing import Final

from tokenizers import pre_tokenizers
from torch import Tensor
from transformers import CLIPTokenizer

BOS, EOS = "<|startoftext|>", "<|endoftext|>"
MAX_TOKENS = 32
MERGES: Final = Path(__file__).parent / "merges.txt"
"""Pairs in the order in which they are joined, one a line, as byte-pair encoding learns them from the world's words.

They are kept in a file because learning them anew breaks ties by chance, and a model knows its words by number. Three
adjectives (crimson, emerald, turquoise) were kept out, so that some words are several tokens, as in large models.
"""


def new_tokenizer() -> CLIPTokenizer:
    """A byte-level CLIP tokenizer in which the world's words are one token each and any other text is spelled out.

    >>> tokens = new_tokenizer()
    >>> tokens.tokenize("a red circle")
    ['a</w>', 'red</w>', 'circle</w>']
    """
    merges = MERGES.read_text("utf-8").splitlines()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
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
