"""Scores of one set of pictures against another, each with its interval and the name of its protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from denoscope.metrics.diversity import vendi_score
from denoscope.metrics.extraction import Extracted, Features
from denoscope.metrics.frechet import FeatureError
from denoscope.metrics.frechet_interval import frechet_at_infinity, frechet_interval
from denoscope.metrics.inception_score import inception_score, inception_score_splits
from denoscope.metrics.intervals import Interval, subsampled_interval
from denoscope.metrics.kernel import gaussian_mmd, kernel_interval, kernel_subsets
from denoscope.metrics.neighbours import copied, manifolds
from denoscope.metrics.protocols import Protocol

Metric = Literal[
    "fid", "fid_infinity", "kid", "is", "sfid", "prdc", "fd_dinov2", "cmmd", "clip_score", "memorization", "vendi"
]
METRICS: Final = get_args(Metric)

NETWORKS: Final[Mapping[str, str]] = {"fd_dinov2": "dinov2", "cmmd": "clip", "clip_score": "clip"}
"""Metrics that are defined by their network; the others take the features that are asked for."""

OUTPUTS: Final[Mapping[str, str]] = {"is": "logits", "sfid": "spatial"}
"""The output of the extractor that a metric takes; the others take ``pool``."""

NEEDS_REFERENCE: Final = frozenset(METRICS) - {"is", "vendi", "clip_score"}

MOST_ROWS: Final = 2500
"""Halves for intervals of neighbourhoods have at most so many pictures: their cost grows with the square."""


@dataclass(frozen=True, slots=True)
class Score:
    """One number. ``low`` and ``high`` end its 90 % interval over pictures, NaN where none is known.

    ``n`` generated and ``n_reference`` reference pictures (0: none is used). ``protocol`` is ``metric@features`` with
    Inception's preparation, as scores compare under one name only. ``as_reported`` are the numbers that others print
    under this name, where they print several (KID's mean and deviation over subsets, IS over ten parts).
    """

    name: str
    value: float
    low: float
    high: float
    n: int
    n_reference: int
    protocol: str
    higher_is_better: bool
    as_reported: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Settings:
    """How scores are taken: ``repeats`` of halves where an interval needs them, the ``seed`` of what is drawn."""

    protocol: Protocol = "tf1"
    repeats: int = 200
    nearest_k: int = 5
    kid_subsets: int = 100
    kid_size: int = 1000
    seed: int = 2020


def outputs_of(metrics: Sequence[str], features: str) -> dict[str, list[str]]:
    """Which outputs of which extractors metrics take, for a pass that feeds them all.

    Raises :class:`~denoscope.metrics.FeatureError` for an unknown metric.

    >>> outputs_of(["fid", "is", "clip_score"], "inception")
    {'inception': ['pool', 'logits'], 'clip': ['pool']}
    """
    found: dict[str, list[str]] = {}
    for metric in metrics:
        if metric not in METRICS:
            raise FeatureError(f"there is no metric {metric!r}; known are {', '.join(METRICS)}")
        wanted = found.setdefault(NETWORKS.get(metric, features), [])
        output = OUTPUTS.get(metric, "pool")
        if output not in wanted:
            wanted.append(output)
    return found


def evaluate(
    generated: Extracted,
    reference: Extracted | None,
    metrics: Sequence[str],
    features: str = "inception",
    *,
    settings: Settings | None = None,
    texts: Features | None = None,
) -> list[Score]:
    """The scores asked for. ``features`` is the extractor of all metrics but those of :data:`NETWORKS`.

    ``texts`` ``(n, d)`` are CLIP's features of the generated pictures' prompts, for ``clip_score``.

    Raises :class:`~denoscope.metrics.FeatureError` for an unknown metric, one without its reference or texts or
    features, and for too few pictures.
    """
    told = settings or Settings()
    outputs_of(metrics, features)
    found: list[Score] = []
    for metric in metrics:
        network = NETWORKS.get(metric, features)
        name = f"{network}.{told.protocol}" if network == "inception" else network
        own = _of(generated, network, metric)
        other = None if reference is None or metric not in NEEDS_REFERENCE else _of(reference, network, metric)
        if metric in NEEDS_REFERENCE and other is None:
            raise FeatureError(f"{metric} compares with reference pictures: give --reference")
        if other is not None and own.shape[1] != other.shape[1]:
            raise FeatureError(f"features of {own.shape[1]} and {other.shape[1]} dimensions can't be compared")
        measured = [_clip_score(own, texts)] if metric == "clip_score" else _measured(metric, own, other, told)
        for label, interval, better, reported in measured:
            count = 0 if other is None else len(other)
            found.append(Score(label, *interval, len(own), count, f"{label}@{name}", better, reported))
    return found


Measured = tuple[str, Interval, bool, dict[str, float]]


def _clip_score(own: Features, texts: Features | None) -> Measured:
    if texts is None:
        raise FeatureError("clip_score compares pictures with their prompts: give --prompts")
    values = 100 * np.einsum("nd,nd->n", own.astype(np.float64), texts.astype(np.float64)).clip(0)
    reach = 1.645 * float(values.std()) / len(values) ** 0.5
    mean = float(values.mean())
    return "clip_score", Interval(mean, mean - reach, mean + reach), True, {}


def _measured(metric: str, own: Features, other: Features | None, told: Settings) -> list[Measured]:
    none: dict[str, float] = {}
    if metric == "is":
        adm = told.protocol == "adm"
        rows = 5000 if adm else None
        parts = inception_score_splits(own, shuffle=not adm, rows=rows, seed=told.seed) if len(own) >= 10 else None
        reported = none if parts is None else {"mean": float(parts.mean()), "std": float(parts.std())}
        return [("is", inception_score(own), True, reported)]
    if metric == "vendi":
        interval = subsampled_interval(
            [own.astype(np.float64)], lambda s: vendi_score(s[0]), repeats=min(50, told.repeats)
        )
        return [("vendi", interval, True, none)]
    assert other is not None
    if metric in ("fid", "sfid", "fd_dinov2"):
        return [(metric, frechet_interval(own, other, repeats=told.repeats, seed=told.seed), False, none)]
    if metric == "fid_infinity":
        value = frechet_at_infinity(own, other, seed=told.seed)
        return [("fid_infinity", Interval(value, np.nan, np.nan), False, none)]
    if metric == "kid":
        size = min(told.kid_size, len(own), len(other))
        subsets = kernel_subsets(own, other, subsets=told.kid_subsets, size=size, seed=told.seed)
        reported = {"mean": float(subsets.mean()), "std": float(subsets.std()), "size": float(size)}
        return [("kid", kernel_interval(own, other), False, reported)]
    if metric == "cmmd":
        value = gaussian_mmd(own, other)
        halves = _halves(own, other, lambda a, b: {"cmmd": gaussian_mmd(a, b)}, told)
        return [("cmmd", halves(value, "cmmd"), False, none)]
    if metric == "memorization":
        near = copied(own, other)
        share, reach = float(near.mean()), 1.645 * float(near.std()) / len(near) ** 0.5
        return [("memorization", Interval(share, max(0.0, share - reach), min(1.0, share + reach)), False, none)]
    k = told.nearest_k
    whole = manifolds(other, own, k).shares()
    halves = _halves(own, other, lambda a, b: manifolds(b, a, k).shares(), told)
    return [(name, halves(value, name), True, none) for name, value in whole.items()]


def _halves(
    own: Features, other: Features, statistic: Callable[[Features, Features], dict[str, float]], told: Settings
) -> Callable[[float, str], Interval]:
    """Intervals from the spread of statistics of parts without replacement; see :mod:`denoscope.metrics.intervals`.

    A part of b of n pictures spreads by 1/b − 1/n where the whole spreads by 1/n.
    """
    rng = np.random.default_rng(told.seed)
    sizes = [min(len(x) // 2, MOST_ROWS) for x in (own, other)]
    if min(sizes) <= told.nearest_k:
        return lambda value, name: Interval(value, np.nan, np.nan)
    factor = float(np.mean([size / (len(x) - size) for size, x in zip(sizes, (own, other), strict=True)])) ** 0.5
    drawn = [
        statistic(*(x[rng.permutation(len(x))[:size]] for x, size in zip((own, other), sizes, strict=True)))
        for _ in range(min(told.repeats, 20))
    ]

    def interval(value: float, name: str) -> Interval:
        reach = 1.645 * factor * float(np.std([one[name] for one in drawn], ddof=1))
        return Interval(value, value - reach, value + reach)

    return interval


def _of(pictures: Extracted, extractor: str, metric: str) -> NDArray[np.float32]:
    output = OUTPUTS.get(metric, "pool")
    held = pictures.features.get(extractor, {})
    if output not in held:
        known = ", ".join(f"{name}/{one}" for name, outputs in pictures.features.items() for one in outputs)
        raise FeatureError(f"{metric} takes {extractor}/{output}, and of {pictures.origin} there is only {known}")
    return held[output]
