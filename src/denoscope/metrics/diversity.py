"""How different samples are from each other."""

import numpy as np
from numpy.typing import ArrayLike

from denoscope.metrics.frechet import FeatureError, checked


def rms_pairwise_distance(features: ArrayLike) -> float:
    """Root mean square distance between two different features of ``(n, d)``.

    √(2·tr Σ) with Σ by n − 1, which is exactly the mean over all pairs, in O(n·d). Raises
    :class:`~denoscope.metrics.frechet.FeatureError` for fewer than two features.

    >>> round(rms_pairwise_distance([[0.0, 0.0], [3.0, 4.0]]), 6)
    5.0
    """
    return float(np.sqrt(2 * checked(features).var(0, ddof=1).sum()))


def vendi_score(features: ArrayLike) -> float:
    """How many different pictures there are, in effect: exp of the entropy of the eigenvalues of K/n (Friedman 2023).

    K holds the cosines of the features ``(n, d)``; from 1, all alike, to n, all at right angles. In O(n·d·min(n, d)).
    Raises :class:`~denoscope.metrics.frechet.FeatureError` for a feature of length 0.

    >>> round(vendi_score(np.eye(4)), 6), round(vendi_score(np.ones((4, 3))), 6)
    (4.0, 1.0)
    """
    x = checked(features)
    lengths = np.linalg.norm(x, axis=1)
    if not lengths.all():
        raise FeatureError(f"feature {int((lengths == 0).argmax())} has the length 0 and so no direction")
    unit = x / lengths[:, None]
    gram = unit.T @ unit if len(x) > x.shape[1] else unit @ unit.T
    shares = np.linalg.eigvalsh(gram / len(x)).clip(0)
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))
