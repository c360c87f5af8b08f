"""How good samples are: distances between sets of features, with intervals; feature extractors."""

from denoscope.metrics.diversity import vendi_score
from denoscope.metrics.frechet import FeatureError, Moments, frechet_distance, frechet_from_moments
from denoscope.metrics.frechet_interval import frechet_at_infinity, frechet_interval
from denoscope.metrics.inception_score import inception_score, inception_score_splits
from denoscope.metrics.intervals import Interval, difference_interval, subsampled_interval
from denoscope.metrics.kernel import gaussian_mmd, kernel_distance, kernel_interval, kernel_subsets
from denoscope.metrics.neighbours import copied, expected_coverage, nearest, prdc

__all__ = [
    "FeatureError",
    "Interval",
    "Moments",
    "copied",
    "difference_interval",
    "expected_coverage",
    "frechet_at_infinity",
    "frechet_distance",
    "frechet_from_moments",
    "frechet_interval",
    "gaussian_mmd",
    "inception_score",
    "inception_score_splits",
    "kernel_distance",
    "kernel_interval",
    "kernel_subsets",
    "nearest",
    "prdc",
    "subsampled_interval",
    "vendi_score",
]
