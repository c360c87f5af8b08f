"""What is out of order in an experiment: words decided late, words that come and go, layers that lose them.

Three patterns, each a contrast with its own simultaneous lower end: an anomaly is told only where that lies above 0, so
that a healthy model raises one in at most a share ``alpha`` of experiments, over all slots and kinds together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import xarray as xr

from denoscope.information.dynamics.curves import isotonic
from denoscope.information.dynamics.resampling import cluster_weights, critical_value
from denoscope.information.dynamics.scores import Array, Scores, null_threshold, scores
from denoscope.information.dynamics.times import fraction_times

Kind = Literal["delayed response", "oscillating lock-in", "information collapse"]
_KINDS: Final = 3
LATE: Final = 0.5
"""Units of logsnr that a word must at least lag behind its fellows."""
_DRAWS: Final = 500


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding. ``word`` is the substitute it is about, if it is about one; ``steps`` where it is seen.

    ``size`` is the contrast and ``least`` its simultaneous lower end, in ``unit``; ``sentence`` says what was found and
    ``advice`` what to try.
    """

    kind: Kind
    slot: str
    branch: str
    layer: str
    word: str | None
    steps: tuple[int, ...]
    size: float
    least: float
    unit: str
    sentence: str
    advice: str


def anomalies(
    beliefs: Sequence[xr.Dataset], *, alpha: float = 0.05, draws: int = _DRAWS, seed: int = 0
) -> list[Anomaly]:
    """The anomalies of an experiment, the surest first.

    ``beliefs`` are the slots' log beliefs, one dataset each. The slots and the three kinds share ``alpha`` equally
    (Bonferroni); within a kind the greatest of all contrasts is compared (Romano & Wolf 2005).

    **Delayed response**: a substitute's t50 lies later than the median of its fellows' by more than half a unit of
    logsnr and twice their spread. **Oscillating lock-in**: the curve of a slot rises, falls and rises again, each
    beyond the band. **Information collapse**: no layer after this one holds half of what it holds.

    Raises :class:`~denoscope.information.InformationError` for beliefs that can't be read.
    """
    share = alpha / (_KINDS * max(1, len(beliefs)))
    found: list[Anomaly] = []
    for dataset in beliefs:
        cells = scores(dataset)
        weights = cluster_weights(cells.context, cells.seed, draws, seed)
        drawn = np.moveaxis(cells.information[0] @ weights.T, -1, 0)  # (draw, branch, layer, step)
        threshold = float(null_threshold(dataset)[0])
        floor = 0.0 if np.isnan(threshold) else threshold
        found += _delayed(dataset, cells, weights, share, floor)
        found += _oscillating(cells, drawn, share)
        found += _collapsed(cells, drawn, share, floor)
    return sorted(found, key=lambda each: -each.least / max(each.size, 1e-9))


def _names(cells: Scores, branch: int, layer: int) -> tuple[str, str, str]:
    return str(cells.coords["slot"][0]), str(cells.coords["branch"][branch]), str(cells.coords["layer"][layer])


def _delayed(dataset: xr.Dataset, cells: Scores, weights: Array, share: float, floor: float) -> list[Anomaly]:
    """Substitutes whose own curve is decided late, in the layer that knows most of the slot."""
    labels = dataset["label"].transpose("slot", "sample").to_numpy()[0]
    values = [str(value) for value in dataset["value"].values]
    if len(values) < 3:
        return []
    found = []
    for branch in range(cells.information.shape[1]):
        layer = int(cells.information[0, branch].mean((1, 2)).argmax())
        told = cells.information[0, branch, layer]  # (step, sample)
        curves, drawn = _by_value(told, labels, len(values), weights)
        known = curves[:, -1] > floor
        if known.sum() < 3:
            continue
        late = fraction_times(isotonic(curves, cells.logsnr), cells.logsnr, 0.5)
        late_drawn = fraction_times(isotonic(drawn, cells.logsnr), cells.logsnr, 0.5)
        late, late_drawn = (np.clip(held, cells.logsnr[0], cells.logsnr[-1]) for held in (late, late_drawn))
        lag, lags = _behind_fellows(late), _behind_fellows(late_drawn)
        spread = lags.std(0) + 1e-9
        reach = critical_value(np.where(known, (lags - lag) / spread, -np.inf).max(1), share, cells)
        for number in np.flatnonzero(known & (lag - reach * spread > 0)):
            slot, side, name = _names(cells, branch, layer)
            word, others = values[number], float(np.median(np.delete(late, number)))
            steps = np.flatnonzero((cells.logsnr >= others) & (cells.logsnr <= late[number]))
            found.append(
                Anomaly(
                    "delayed response",
                    slot,
                    side,
                    name,
                    word,
                    tuple(int(step) for step in steps),
                    float(lag[number]),
                    float(lag[number] - reach * spread[number]),
                    "logsnr beyond what its fellows spread",
                    f"{word!r} is decided at log-SNR {late[number]:.2f}, its fellows at {others:.2f}",
                    f"say {word!r} earlier in the prompt or with a commoner word; see whether the text encoder "
                    "spells it in pieces",
                )
            )
    return found


def _by_value(
    told: Array, labels: np.ndarray[tuple[int, ...], np.dtype[np.integer]], count: int, weights: Array
) -> tuple[Array, Array]:
    """Mean scores of each value's samples ``(value, step)``, and their draws ``(draw, value, step)``."""
    curves, drawn = [], []
    for value in range(count):
        own = labels == value
        part = weights[:, own]
        curves.append(told[:, own].mean(1))
        drawn.append((part / part.sum(1, keepdims=True).clip(1e-12)) @ told[:, own].T)
    return np.stack(curves), np.stack(drawn, 1)


def _behind_fellows(late: Array) -> Array:
    """How far each value's time lies behind its fellows' median, less what they spread: ``(..., value)``."""
    count = late.shape[-1]
    found = np.empty_like(late)
    for number in range(count):
        fellows = np.delete(late, number, axis=-1)
        middle = np.median(fellows, axis=-1)
        spread = 1.4826 * np.median(np.abs(fellows - middle[..., None]), axis=-1)
        found[..., number] = late[..., number] - middle - np.maximum(LATE, 2 * spread)
    return found


def _oscillating(cells: Scores, drawn: Array, share: float) -> list[Anomaly]:
    """Curves that rise, fall and rise again, in the layer that knows most of the slot."""
    found = []
    first, second = np.triu_indices(len(cells.logsnr), 1)
    for branch in range(cells.information.shape[1]):
        layer = int(cells.information[0, branch].mean((1, 2)).argmax())
        curve, curves = cells.information[0, branch, layer].mean(-1), drawn[:, branch, layer]
        change, changes = curve[second] - curve[first], curves[:, second] - curves[:, first]
        spread = changes.std(0) + 1e-9
        # Two-sided: falls and rises are looked for at once.
        reach = critical_value((np.abs(changes - change) / spread).max(1), share, cells)
        falls, rises = -change - reach * spread, change - reach * spread
        least = _rise_fall_rise(first, second, rises, falls, len(cells.logsnr))
        if least is not None:
            slot, side, name = _names(cells, branch, layer)
            pair = int(np.where(falls > 0, -change, -np.inf).argmax())
            begin, end = int(first[pair]), int(second[pair])
            found.append(
                Anomaly(
                    "oscillating lock-in",
                    slot,
                    side,
                    name,
                    None,
                    (begin, end),
                    float(-change[pair]),
                    float(falls[pair]),
                    "nats lost and found again",
                    f"what is known of {slot!r} falls by {-change[pair]:.2f} nats from step {begin} to {end}, and "
                    "rises again",
                    "two words may be at odds: take one out of the prompt, or lower the guidance scale",
                )
            )
    return found


def _rise_fall_rise(
    first: np.ndarray[tuple[int, ...], np.dtype[np.intp]],
    second: np.ndarray[tuple[int, ...], np.dtype[np.intp]],
    rises: Array,
    falls: Array,
    steps: int,
) -> float | None:
    """The least sure part of the surest rise, fall and rise in that order; ``None`` if there is none."""
    best = np.full((3, steps), -np.inf)  # the surest chain of so many parts that ends by a step
    for step in range(1, steps):
        best[:, step] = best[:, step - 1]
        for pair in np.flatnonzero(second == step):
            begin = int(first[pair])
            best[0, step] = max(best[0, step], rises[pair])
            best[1, step] = max(best[1, step], min(best[0, begin], falls[pair]))
            best[2, step] = max(best[2, step], min(best[1, begin], rises[pair]))
    return float(best[2, -1]) if best[2, -1] > 0 else None


def _collapsed(cells: Scores, drawn: Array, share: float, floor: float) -> list[Anomaly]:
    """Layers after which no layer holds half of what they hold."""
    information = cells.information[0].mean(-1)
    if information.shape[1] < 2:
        return []

    def lost(curve: Array) -> Array:
        """½·I of each layer but the last, less the most that any later one holds."""
        after = np.flip(np.maximum.accumulate(np.flip(curve, -2), -2), -2)
        return curve[..., :-1, :] / 2 - np.maximum(after[..., 1:, :], floor)

    loss, losses = lost(information), lost(drawn)
    spread = losses.std(0) + 1e-9
    reach = critical_value(((losses - loss) / spread).reshape(len(losses), -1).max(1), share, cells)
    least = loss - reach * spread
    found = []
    for branch in range(len(information)):
        layers = np.flatnonzero((least[branch] > 0).any(-1))
        if not len(layers):
            continue
        layer = int(layers[-1])  # the last layer that still held it
        steps = np.flatnonzero(least[branch, layer] > 0)
        step = int(steps[loss[branch, layer, steps].argmax()])
        slot, side, name = _names(cells, branch, layer)
        after = str(cells.coords["layer"][layer + 1])
        held, left = float(information[branch, layer, step]), float(information[branch, layer + 1 :, step].max())
        found.append(
            Anomaly(
                "information collapse",
                slot,
                side,
                after,
                None,
                tuple(int(each) for each in steps),
                float(loss[branch, layer, step]),
                float(least[branch, layer, step]),
                "nats below half",
                f"{name} holds {held:.2f} nats of {slot!r} at step {step}, no later layer more than {left:.2f}",
                f"look at {after}: a block that was frozen or badly trained loses what comes in; retrain it",
            )
        )
    return found
