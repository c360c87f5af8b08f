"""Hearing a method call of one object without changing it."""

import functools
from collections.abc import Callable


def listen(thing: object, name: str, before: Callable[..., None]) -> Callable[[], None]:
    """Call ``before`` with the same arguments ahead of every ``thing.name(…)``; returns what undoes it.

    The listener is an attribute of this one object, and keeps the signature, which pipelines inspect.
    """
    original = getattr(thing, name)
    own = vars(thing).get(name)

    @functools.wraps(original)
    def heard(*args: object, **kwargs: object) -> object:
        before(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(thing, name, heard)

    def undo() -> None:
        # The user may have put something of their own there meanwhile: that stays.
        if vars(thing).get(name) is not heard:
            return
        if own is None:
            delattr(thing, name)
        else:
            setattr(thing, name, own)

    return undo
