"""The world's tokenizer: which words are one token, and that the numbers stay."""

from denoscope.data.worlds.shapes.captions import GENERIC_NOUN, PLACES, RELATIONS, SYNONYMS
from denoscope.data.worlds.shapes.scenes import VALUES
from denoscope.data.worlds.shapes.tokens import BOS, EOS, new_tokenizer, tokenize

SPLIT = {"crimson", "emerald", "turquoise"}
WORDS = {word for phrase in [*PLACES, *RELATIONS, *SYNONYMS] for word in phrase.split()}
WORDS |= {value for values in VALUES.values() for value in values} | {"a", "an", GENERIC_NOUN}


def test_the_world_s_words_are_one_token_each_but_three() -> None:
    tokenizer = new_tokenizer()
    pieces = {word: tokenizer.tokenize(word) for word in WORDS}
    assert {word for word, parts in pieces.items() if len(parts) > 1} == SPLIT
    assert all("".join(parts) == f"{word}</w>" for word, parts in pieces.items())


def test_numbers_never_change() -> None:
    """A trained model knows its words by number."""
    tokenizer = new_tokenizer()
    assert len(tokenizer) == 636
    told = tokenize(tokenizer, ["a crimson disc on the left of"])[0].tolist()
    assert tokenizer.decode(told, skip_special_tokens=True).strip() == "a crimson disc on the left of"
    assert [tokenizer.convert_tokens_to_ids(word) for word in ("on</w>", "of</w>", BOS, EOS)] == [565, 566, 634, 635]


def test_other_text_is_spelled_out() -> None:
    tokenizer = new_tokenizer()
    assert tokenizer.tokenize("zebra") == ["z", "e", "b", "r", "a</w>"]
    assert tokenizer.unk_token_id not in tokenizer("Äpfel, 狐!", add_special_tokens=False)["input_ids"]
