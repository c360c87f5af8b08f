"""The one error of this room."""


class ReportError(ValueError):
    """A report that can't be made from what it was given; the message is one plain sentence."""
