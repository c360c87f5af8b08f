"""How good samples are: distances between sets of features, with intervals; feature extractors."""

from denoscope.metrics.frechet import Moments, frechet_distance, frechet_from_moments
from denoscope.metrics.intervals import Interval, difference_interval, subsampled_interval

__all__ = [
    "Interval",
    "Moments",
    "difference_interval",
    "frechet_distance",
    "frechet_from_moments",
    "subsampled_interval",
]
