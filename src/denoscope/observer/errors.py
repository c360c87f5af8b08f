"""Why something could not be observed."""


class ObserveError(RuntimeError):
    """A pipeline or a call that can't be observed as asked; the message names the cause and the way out."""


class MapError(ValueError):
    """Attention maps that can't be measured as asked; the message is one plain sentence."""
