"""How different samples are from each other."""

import numpy as np
from numpy.typing import ArrayLike

from denoscope.metrics.frechet import checked


def rms_pairwise_distance(features: ArrayLike) -> float:
    """Root mean square distance between two different features of ``(n, d)``.

    √(2·tr Σ) with Σ by n − 1, which is exactly the mean over all pairs, in O(n·d). Raises
    :class:`~denoscope.metrics.frechet.FeatureError` for fewer than two features.

    >>> round(rms_pairwise_distance([[0.0, 0.0], [3.0, 4.0]]), 6)
    5.0
    """
    return float(np.sqrt(2 * checked(features).var(0, ddof=1).sum()))
