"""Keeping what goes wrong in an observer from the call that it watches."""

import functools
from collections.abc import Callable


class Shield:
    """Wraps hooks: the first exception is kept in ``problem`` and told later, from then on nothing is done.

    >>> shield = Shield()
    >>> shield(lambda: 1 / 0)()
    >>> shield.problem
    ZeroDivisionError('division by zero')
    """

    def __init__(self) -> None:
        self.problem: Exception | None = None

    def __call__(self, told: Callable[..., None]) -> Callable[..., None]:
        """The same hook, quiet."""

        @functools.wraps(told)
        def quiet(*args: object, **kwargs: object) -> None:
            if self.problem is None:
                try:
                    told(*args, **kwargs)
                except Exception as error:
                    self.problem = error

        return quiet
