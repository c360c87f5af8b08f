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


def parse_layers(text: str | None, option: str) -> bool | list[str]:
    """Names or globs of layers separated by commas; True for ``auto``, False for ``None``.

    Raises :class:`OptionError` naming ``option`` where there is none.

    >>> parse_layers("mid_block, up_blocks.*", "--features"), parse_layers("auto", "--features")
    (['mid_block', 'up_blocks.*'], True)
    """
    if text is None:
        return False
    if text.strip() == "auto":
        return True
    parsed = [name.strip() for name in text.split(",") if name.strip()]
    if not parsed:
        raise OptionError(f"{option} names no layer: give names or globs separated by commas, or 'auto'")
    return parsed
