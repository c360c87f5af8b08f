"""When a word is decided: t10, t50, t90, the steepest step, and lock-in, on the axis of logsnr."""

from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from denoscope.information.dynamics.curves import isotonic, rate
from denoscope.information.dynamics.resampling import DRAWS, LEVEL, Resampled, interval, resample
from denoscope.information.dynamics.scores import Array, Scores, null_threshold, scores
from denoscope.information.errors import InformationError

FRACTIONS = (0.1, 0.5, 0.9)
SURE = 0.9
_CURVE = ("slot", "branch", "layer")
UNMEASURED = "not measured"
IN_NULL = "the final information is not above that of shuffled labels"
BEFORE = "before the first step"
NEVER = "not by the last step"


def crossings(fits: Array, logsnr: Array, levels: Array) -> Array:
    """Where non-decreasing curves ``(..., step)`` first reach ``levels (...)``, linear between steps: ``(...)``.

    −inf for a curve that is there at the first step, inf for one that never is, NaN for a NaN curve or level.

    >>> crossings(np.array([[0.0, 1.0, 4.0]]), np.array([-1.0, 0.0, 1.0]), np.array([2.5])).tolist()
    [0.5]
    """
    above = (fits < levels[..., None]).sum(-1)
    after = np.clip(above, 1, len(logsnr) - 1)
    low = np.take_along_axis(fits, after[..., None] - 1, -1)[..., 0]
    high = np.take_along_axis(fits, after[..., None], -1)[..., 0]
    with np.errstate(invalid="ignore", divide="ignore"):  # of curves that are flat there, which are told apart below
        share = (levels - low) / (high - low)
    inside = logsnr[after - 1] + (logsnr[after] - logsnr[after - 1]) * share
    found = np.where(above == 0, -np.inf, np.where(above == len(logsnr), np.inf, inside))
    return np.where(np.isnan(levels) | np.isnan(fits).any(-1), np.nan, found)


def stays_above(curves: Array, logsnr: Array, level: float) -> Array:
    """Where curves ``(..., step)`` rise to ``level`` for good, linear between steps: ``(...)``.

    −inf for a curve that is never below, inf for one that ends below, NaN for a curve with NaN.

    >>> stays_above(np.array([0.95, 0.5, 0.8, 1.0]), np.arange(4.0), 0.9).round(3).tolist()
    2.5
    """
    below = curves < level
    last = len(logsnr) - 1 - below[..., ::-1].argmax(-1)
    before = np.minimum(last, len(logsnr) - 2)
    low = np.take_along_axis(curves, before[..., None], -1)[..., 0]
    high = np.take_along_axis(curves, before[..., None] + 1, -1)[..., 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = logsnr[before] + (logsnr[before + 1] - logsnr[before]) * (level - low) / (high - low)
    found = np.where(~below.any(-1), -np.inf, np.where(last == len(logsnr) - 1, np.inf, inside))
    return np.where(np.isnan(curves).any(-1), np.nan, found)


def fraction_times(fits: Array, logsnr: Array, fraction: float, entropy: Array | None = None) -> Array:
    """Where isotonic curves pass a fraction of their last value, or of ``entropy``. inf for no information at all."""
    final = fits[..., -1]
    whole = np.where(final > 0, final, np.inf) if entropy is None else np.broadcast_to(entropy, final.shape)
    return crossings(fits, logsnr, np.where(np.isnan(final), np.nan, fraction * whole))


def peaks(fits: Array, logsnr: Array) -> Array:
    """The step at which isotonic curves are steepest, by :func:`~denoscope.information.dynamics.curves.rate`."""
    rates = rate(fits, logsnr)
    unknown = np.asarray(np.isnan(rates).any(-1))
    return np.where(unknown, np.nan, logsnr[np.where(unknown[..., None], 0.0, rates).argmax(-1)])


def above_null(dataset: xr.Dataset, cells: Scores, drawn: Resampled) -> NDArray[np.bool_]:
    """Whether the last step of each curve knows more than chance: ``(slot, branch, layer)``.

    More than shuffled labels reach anywhere in the slot in 95 % of shuffles; without shuffles, more than zero by the
    lower end of a 90 % interval.
    """
    threshold = null_threshold(dataset)[:, None, None]
    final, lower = drawn.information[..., -1], interval(drawn.information_draws[..., -1])[0]
    return np.where(np.isnan(threshold), lower > 0, final > threshold)


def times(
    dataset: xr.Dataset,
    *,
    of: Literal["final", "entropy"] = "final",
    sure: float = SURE,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
) -> xr.Dataset:
    """When each slot is decided, by branch and layer, in logsnr: the lower, the earlier.

    Returns, each with ``_low``, ``_high`` and ``_reason``:

    ``time (slot, branch, layer, fraction)``
        where the isotonic curve passes .1, .5 and .9 of its final value (``of="entropy"``: of H(Y)). The one at .5 is
        the decision time t50.
    ``peak (slot, branch, layer)``
        the step with the greatest rate: secondary, for it scatters several times as much as t50.
    ``lock_in (slot, branch, layer)``
        from where on the mean belief stays at ``sure`` or above.

    A time is NaN, and its reason says why, if the final information is not above that of shuffled labels, if it lies
    before the first step, or if it is never reached. The interval's ends are −inf and inf where it leaves the steps.

    Raises :class:`InformationError` for an experiment that can't be read, or ``sure`` outside (0, 1).
    """
    if not 0 < sure < 1:
        raise InformationError(f"a sure belief is between 0 and 1, not {sure}")
    if of not in ("final", "entropy"):
        raise InformationError(f"times are fractions of the 'final' information or of the 'entropy', not of {of!r}")
    cells = scores(dataset)
    drawn = resample(cells, draws, seed)
    known = above_null(dataset, cells, drawn)
    fit = isotonic(drawn.information, cells.logsnr)
    fits = isotonic(drawn.information_draws, cells.logsnr)
    entropy = cells.entropy[:, None, None] if of == "entropy" else None

    passed = [fraction_times(fit, cells.logsnr, fraction, entropy) for fraction in FRACTIONS]
    passes = [fraction_times(fits, cells.logsnr, fraction, entropy) for fraction in FRACTIONS]
    found = {
        "time": (np.stack(passed, -1), np.stack(passes, -1)),
        "peak": (peaks(fit, cells.logsnr), peaks(fits, cells.logsnr)),
        "lock_in": (
            stays_above(drawn.belief, cells.logsnr, sure),
            stays_above(drawn.belief_draws, cells.logsnr, sure),
        ),
    }
    arrays = {}
    for name, (value, of_draws) in found.items():
        dims = (*_CURVE, "fraction") if name == "time" else _CURVE
        reason = _reasons(value, known[..., None] if name == "time" else known)
        low, high = interval(of_draws, level)
        untold = np.isin(reason, (UNMEASURED, IN_NULL))
        arrays[name] = cells.named(np.where(reason == "", value, np.nan), dims, "logsnr")
        arrays[f"{name}_low"] = cells.named(np.where(untold, np.nan, low), dims, "logsnr")
        arrays[f"{name}_high"] = cells.named(np.where(untold, np.nan, high), dims, "logsnr")
        arrays[f"{name}_reason"] = xr.DataArray(reason, dims=dims)
    attrs: dict[str, float | str] = {"draws": draws, "level": level, "seed": seed, "of": of, "sure": sure}
    return xr.Dataset(arrays, attrs=attrs).assign_coords(fraction=list(FRACTIONS))


def _reasons(value: Array, known: NDArray[np.bool_]) -> NDArray[np.str_]:
    """Why a time is not a number; empty where it is one."""
    return np.select(
        [np.isnan(value), np.broadcast_to(~known, value.shape), np.isneginf(value), np.isposinf(value)],
        [UNMEASURED, IN_NULL, BEFORE, NEVER],
        "",
    )
