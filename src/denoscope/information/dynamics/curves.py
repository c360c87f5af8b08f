"""Information as a curve over logsnr that never falls, and its rate.

Noise adds nothing: at guidance 1 a picture with less noise tells at least as much about the word. So each curve is
made non-decreasing before it is differentiated; plain differences of a noisy curve have false negative steps.
"""

import numpy as np
import xarray as xr
from scipy.special import ndtr

from denoscope.information.dynamics.resampling import DRAWS, LEVEL, interval, resample
from denoscope.information.dynamics.scores import Array, scores
from denoscope.information.errors import InformationError

_BLOCK = 16384


def step_widths(logsnr: Array) -> Array:
    """The stretch of logsnr that each step stands for: half the way to each neighbour.

    >>> step_widths(np.array([0.0, 1.0, 3.0])).tolist()
    [0.5, 1.5, 1.0]
    """
    gaps = np.diff(logsnr)
    return (np.append(gaps, 0) + np.append(0, gaps)) / 2


def isotonic(curves: Array, logsnr: Array) -> Array:
    """The non-decreasing curves nearest to ``curves (..., step)``, in the mean square over logsnr.

    A step weighs as much as the stretch of logsnr it stands for, so that the fit approximates that of a continuous
    curve and stays the same when steps are set more densely somewhere. Equal weights would be right if the errors of
    steps were independent, but all steps have the same samples: ten close steps are not ten measurements.

    By the min–max formula of isotonic regression (Barlow et al. 1972): fit at i = max over j ≤ i of min over k ≥ i of
    the mean of j…k, which does many curves at once. A curve with NaN comes back as NaN.

    >>> isotonic(np.array([0.0, 2.0, 1.0, 3.0]), np.arange(4.0)).tolist()
    [0.0, 1.5, 1.5, 3.0]
    """
    widths = step_widths(logsnr)
    masses = np.append(0, widths.cumsum())
    flat = curves.reshape(-1, len(logsnr))
    fits = np.full(flat.shape, -np.inf)
    for start in range(0, len(flat), _BLOCK):
        fit = fits[start : start + _BLOCK]
        sums = np.zeros((len(fit), len(masses)))
        (flat[start : start + _BLOCK] * widths).cumsum(1, out=sums[:, 1:])
        for j in range(len(logsnr)):
            means = (sums[:, j + 1 :] - sums[:, j, None]) / (masses[j + 1 :] - masses[j])
            least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
            np.maximum(fit[:, j:], least, out=fit[:, j:])
    # Two means of one block may differ by rounding, and a rate must not be negative by an ulp.
    return np.maximum.accumulate(fits, axis=1).reshape(curves.shape)


def rate(fits: Array, logsnr: Array, bandwidth: float | None = None) -> Array:
    """dI/dlogsnr of non-decreasing curves ``(..., step)``, in nats per unit of logsnr; never negative.

    The slopes between steps, averaged with a Gaussian of standard deviation ``bandwidth`` in logsnr (the median
    distance of two steps, if None), whose weights sum to 1 at the ends too.

    >>> rate(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.5, 1.0, 1.5])).round(9).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    width = float(np.median(np.diff(logsnr))) if bandwidth is None else bandwidth
    if not width > 0:
        raise InformationError(f"the bandwidth of a rate must be positive, not {bandwidth}")
    below = ndtr((logsnr - logsnr[:, None]) / width)  # [at, end]
    kernel = np.diff(below, axis=1)
    kernel /= kernel.sum(1, keepdims=True)
    slopes = np.diff(fits, axis=-1) / np.diff(logsnr)
    return slopes @ kernel.T


def curves(
    dataset: xr.Dataset,
    *,
    bandwidth: float | None = None,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
) -> xr.Dataset:
    """The isotonic ``curve`` of information (nats) and its ``rate`` (nats per unit of logsnr), with intervals.

    Returns both over ``(slot, branch, layer, step)``, each with ``_low`` and ``_high`` from the two-way cluster
    bootstrap, in which every draw is fitted anew. See :func:`isotonic` and :func:`rate`.

    Raises :class:`InformationError` for an experiment that can't be read, or a bandwidth that is not positive.
    """
    cells = scores(dataset)
    drawn = resample(cells, draws, seed)
    fit = isotonic(drawn.information, cells.logsnr)
    fits = isotonic(drawn.information_draws, cells.logsnr)
    rates = rate(fits, cells.logsnr, bandwidth)
    found = {
        "curve": (fit, *interval(fits, level)),
        "rate": (rate(fit, cells.logsnr, bandwidth), *interval(rates, level)),
    }
    arrays = {}
    for name, values in found.items():
        units = "nat" if name == "curve" else "nat per unit of logsnr"
        for ending, value in zip(("", "_low", "_high"), values, strict=True):
            arrays[name + ending] = cells.named(value, units=units)
    attrs: dict[str, float] = {"draws": draws, "level": level, "seed": seed}
    return xr.Dataset(arrays, attrs=attrs)
