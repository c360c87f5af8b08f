"""What can be wrong with a model that was asked for."""


class ModelError(ValueError):
    """A model that can't be found, loaded or handled; the message is one sentence that says what to do."""
