"""Why something could not be measured."""


class InformationError(ValueError):
    """An experiment or an estimate that can't be made as asked; the message names the cause and the way out."""
