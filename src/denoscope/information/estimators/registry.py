"""Estimators by name: the probe, and what its information can be checked against."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from denoscope.information.errors import InformationError
from denoscope.information.estimators.classic import cca_information, ross_information
from denoscope.information.estimators.critics import Bound, critic_information
from denoscope.information.estimators.probe import components

CrossCheck = Callable[[NDArray[np.floating], NDArray[np.integer]], float]
"""Information of features ``(N, d)`` about labels ``(N,)``, nats, at most H(Y)."""

DEFAULT: Final = "probe"
_CRITIC_RANK, _CCA_RANK, _NEIGHBOUR_RANK = 32, 32, 5


def _critic(bound: Bound, features: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    held = components(features, _CRITIC_RANK).numpy()
    return min(critic_information(held, _hot(labels), bound).information, _entropy(labels))


def _cca(features: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    # One-hot rows add up to one, so the last column says nothing new.
    hot = _hot(labels)[:, :-1]
    rank = max(1, min(_CCA_RANK, len(labels) - hot.shape[1] - 2))
    return min(cca_information(components(features, rank).numpy(), hot), _entropy(labels))


def _ksg(features: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    return ross_information(components(features, _NEIGHBOUR_RANK).numpy(), labels)


_CHECKS: Final[dict[str, CrossCheck]] = {
    "nwj": partial(_critic, "nwj"),
    "infonce": partial(_critic, "infonce"),
    "smile": partial(_critic, "smile"),
    "cca": _cca,
    "ksg": _ksg,
}


def cross_check(name: str) -> CrossCheck | None:
    """An estimator to stand beside the probe; ``None`` for the probe itself.

    Raises :class:`InformationError` for a name that is none, naming those that there are.

    >>> labels = np.tile([0, 1], 200)
    >>> features = labels[:, None] + 0.01 * np.random.default_rng(0).normal(size=(400, 1))
    >>> round(cross_check("ksg")(features, labels), 2)
    0.69
    """
    if name == DEFAULT:
        return None
    if name not in _CHECKS:
        raise InformationError(f"there is no estimator {name!r}: {', '.join((DEFAULT, *_CHECKS))}")
    return _CHECKS[name]


def _hot(labels: NDArray[np.integer]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = np.eye(int(labels.max()) + 1, dtype=np.float32)[labels]
    return found


def _entropy(labels: NDArray[np.integer]) -> float:
    shares = np.bincount(labels) / len(labels)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())
