"""What can be wrong with data."""


class DataError(ValueError):
    """The data can't be used; one sentence says which file, why, and what to do."""
