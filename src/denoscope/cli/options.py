"""Reading the values of options that several commands have."""


class OptionError(ValueError):
    """An option whose value can't be read; the message says what would do."""


def parse_words(words: str | None) -> list[str] | None:
    """Words separated by commas; ``None`` stays. Raises :class:`OptionError` where there is none.

    >>> parse_words("red, circle")
    ['red', 'circle']
    """
    if words is None:
        return None
    parsed = [word.strip() for word in words.split(",") if word.strip()]
    if not parsed:
        raise OptionError("--words names no word: give words of the prompt, separated by commas")
    return parsed


def parse_layers(text: str | None, option: str) -> list[str] | bool:
    """Layers' names or globs separated by commas; ``True`` of "auto", a model's usual ones; ``False`` of ``None``.

    Raises :class:`OptionError` naming ``option`` where there is none.

    >>> parse_layers("mid_block, up_blocks.*", "--features"), parse_layers("auto", "--features")
    (['mid_block', 'up_blocks.*'], True)
    """
    if text is None:
        return False
    parsed = [name.strip() for name in text.split(",") if name.strip()]
    if not parsed:
        raise OptionError(f"{option} names no layer: give names or globs separated by commas, or auto")
    return True if parsed == ["auto"] else parsed


def parse_indices(text: str | None, option: str) -> list[int] | None:
    """Numbers from 0 separated by commas, each kept once, in their order; ``None`` stays.

    Raises :class:`OptionError` naming ``option`` for anything else.

    >>> parse_indices("5, 15,5", "--steps")
    [5, 15]
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    # Longer numbers are out of any range, and int() refuses very long ones with an error of its own.
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise OptionError(f"{option} {text!r} can't be read: give numbers from 0, separated by commas, such as 0,10,20")
    return list(dict.fromkeys(int(part) for part in parts))


def parse_pairs(text: str | None, option: str) -> dict[str, str]:
    """``WORD=OTHER`` pairs separated by commas; none of ``None``.

    Raises :class:`OptionError` naming ``option`` for anything else.

    >>> parse_pairs("red=coloured, circle=shape", "--neutral")
    {'red': 'coloured', 'circle': 'shape'}
    """
    pairs = [part.partition("=") for part in (text or "").split(",") if part.strip()]
    if not all(equals and word.strip() and other.strip() for word, equals, other in pairs) or (text and not pairs):
        raise OptionError(f"{option} {text!r} can't be read: give WORD=OTHER pairs, separated by commas")
    return {word.strip(): other.strip() for word, _, other in pairs}
