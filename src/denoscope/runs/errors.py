"""The one error of this room."""


class RunError(ValueError):
    """A run folder that can't be read or made; the message is one plain sentence."""
