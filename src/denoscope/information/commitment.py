"""When a picture is committed to a word: the prompt is switched on the way, and the picture is asked what it shows.

A picture drawn with prompt A up to a step and with B from there shows A if A's word was decided by then. The chance of
it rises with the logsnr of the switch; half-way is the commitment time t_c. Drawn the other way, B then A, the same.

Switching to the *other word* asks until when the text can still turn the picture round: a perfect model obeys B to the
end, whatever z holds, and commits at the clean end only. Switching to a text *without the word* asks what z holds: a
perfect model then shows A with chance p(A | z), which is what decision times are about.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from diffusers import DiffusionPipeline
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from denoscope.information.conditioning import conditioning, replaced
from denoscope.information.errors import InformationError

Judge = Callable[[NDArray[np.uint8]], Sequence[str | None]]
"""Pictures ``(B, H, W, 3)`` uint8 to what each shows, ``None`` where it can't be told."""


def commitment(
    pipe: DiffusionPipeline,
    prompts: tuple[str, str],
    values: tuple[str, str],
    judge: Judge,
    *,
    seeds: Sequence[int] = tuple(range(64)),
    points: int = 12,
    span: tuple[float, float] | None = None,
    neutral: str | None = None,
    chance: float = 0.0,
    **call: object,
) -> xr.Dataset:
    """Draw with every switch and ask the judge.

    ``prompts`` differ in one word, ``values`` are what the judge calls the two. ``points`` steps of the sampler are
    switched at, spread evenly over logsnr within ``span`` (all steps if not given). Every point draws with all
    ``seeds`` (CPU generators), in both directions: 2 · points generations of len(seeds) pictures. ``call`` goes to the
    pipeline (``guidance_scale``, ``num_inference_steps`` …). With ``neutral``, the prompt without the word, both are
    switched to that; ``chance`` is then how often it shows a given value by itself (1/K for K equally likely ones).

    Returns ``first(direction, point, seed)``: 1 where the picture shows the prompt that it began with, 0 where it
    shows the other (with ``neutral`` any other value), NaN where neither or nothing can be told; ``logsnr(point)`` and
    ``step(point)`` of the switch, the first step of the second prompt; ``share(direction, point)``, the mean over what
    was told.

    Raises :class:`InformationError` for equal prompts or values, no seeds, or fewer than two steps to switch at.
    """
    if len(set(prompts)) < 2 or len(set(values)) < 2:
        raise InformationError("a switch needs two prompts that differ, and two values that the judge tells apart")
    if not seeds:
        raise InformationError("a switch needs pictures to draw: give seeds")
    given = [conditioning(pipe, prompt, **call) for prompt in prompts]
    steps, levels = _switches(np.array(given[0].levels), points, span)
    later = given[::-1] if neutral is None else [conditioning(pipe, neutral, **call)] * 2
    first = np.full((2, len(steps), len(seeds)), np.nan)
    for direction in (0, 1):
        for point, step in enumerate(steps):
            with replaced(pipe, {step: later[direction]}):
                output = pipe(
                    prompt=prompts[direction],
                    num_images_per_prompt=len(seeds),
                    generator=[torch.Generator("cpu").manual_seed(seed) for seed in seeds],
                    **{**call, "output_type": "np"},
                )
            shown = judge(np.rint(np.nan_to_num(output.images) * 255).astype(np.uint8))
            other = {values[1 - direction]} if neutral is None else {value for value in shown if value is not None}
            told = {**dict.fromkeys(other, 0.0), values[direction]: 1.0}
            first[direction, point] = [np.nan if value is None else told.get(value, np.nan) for value in shown]
    known = np.isfinite(first)
    counts = known.sum(-1)
    share = np.where(counts > 0, np.where(known, first, 0).sum(-1) / np.maximum(counts, 1), np.nan)
    return xr.Dataset(
        {"first": (("direction", "point", "seed"), first), "share": (("direction", "point"), share)},
        coords={
            "direction": [f"{values[0]} to {values[1]}", f"{values[1]} to {values[0]}"],
            "logsnr": ("point", levels),
            "step": ("point", steps),
            "seed": list(seeds),
        },
        attrs={"chance": chance, "switched_to": "the other" if neutral is None else neutral},
    )


def _switches(
    every: NDArray[np.float64], points: int, span: tuple[float, float] | None
) -> tuple[list[int], NDArray[np.float64]]:
    """Steps to switch at, and their levels; the first step can't be, nothing was drawn before it."""
    low, high = (-np.inf, np.inf) if span is None else span
    may = [step for step in range(1, len(every)) if low <= every[step] <= high and np.isfinite(every[step])]
    if len(may) < 2 or points < 2:
        raise InformationError("a commitment curve needs at least two steps to switch at: more steps, or a wider span")
    wanted = np.linspace(every[may[0]], every[may[-1]], points)
    steps = sorted({may[int(np.abs(every[may] - level).argmin())] for level in wanted})
    return steps, every[steps]


@dataclass(frozen=True, slots=True)
class Commitment:
    """The time t_c (logsnr) with its bootstrap interval over seeds, and the width of the logistic."""

    time: float
    low: float
    high: float
    width: float


def commitment_time(found: xr.Dataset, resamples: int = 200, level: float = 0.9, seed: int = 0) -> Commitment:
    """Where the picture keeps its first word half-way from chance to always: a logistic by maximum likelihood.

    Both directions count together, so a prior for one of the words cancels. ``found`` is what :func:`commitment`
    returns. The bootstrap draws seeds with all their pictures. NaN where pictures keep, or lose, the first word at
    all points: the time is outside of them.

    Raises :class:`InformationError` when nothing was told.
    """
    outcomes = found["first"].transpose("seed", "direction", "point").values
    logsnr = np.broadcast_to(found["logsnr"].values, outcomes.shape[1:])
    if not np.isfinite(outcomes).any():
        raise InformationError("no picture was told to show either word: look at the pictures and at the judge")
    chance = float(found.attrs.get("chance", 0.0))
    time, width = fit_logistic(np.broadcast_to(logsnr, outcomes.shape), outcomes, chance)
    rng = np.random.default_rng(seed)
    times = []
    for _ in range(resamples):
        drawn = outcomes[rng.integers(len(outcomes), size=len(outcomes))]
        times.append(fit_logistic(np.broadcast_to(logsnr, drawn.shape), drawn, chance)[0])
    tail = (1 - level) / 2
    low, high = np.quantile(times, [tail, 1 - tail]) if np.isfinite(times).all() else (np.nan, np.nan)
    return Commitment(time, float(low), float(high), width)


def fit_logistic(logsnr: ArrayLike, outcomes: ArrayLike, chance: float = 0.0) -> tuple[float, float]:
    """Middle and width of P(1) = c + (1 − c)·sigmoid((logsnr − middle)/width) by maximum likelihood, c = ``chance``.

    NaN outcomes are left out.

    Widths are kept above a fifth of the smallest distance of two levels, where ones and zeros part without overlap
    and the likelihood has no maximum; the middle then lies half-way. (NaN, NaN) if all outcomes are the same, or more
    noise gives more ones.

    >>> fit_logistic([-2, -1, 0, 1], [0, 0, 1, 1])[0]
    -0.5
    """
    x, y = np.asarray(logsnr, dtype=np.float64).ravel(), np.asarray(outcomes, dtype=np.float64).ravel()
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    levels, where = np.unique(x, return_inverse=True)
    ones, zeros = (np.bincount(where, told, len(levels)) for told in (y, 1 - y))
    if len(levels) < 2 or y.min() == y.max() or x[y == 1].mean() <= x[y == 0].mean():
        return float("nan"), float("nan")
    gap, reach = float(np.diff(levels).min()), float(np.ptp(levels))

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        middle, log_width = parameters
        width = np.exp(log_width)
        at = (levels - middle) / width
        with np.errstate(divide="ignore"):
            log_one = np.logaddexp(np.log(chance), np.log1p(-chance) - np.logaddexp(0, -at))
        log_zero = np.log1p(-chance) - np.logaddexp(0, at)
        value = -(ones * log_one + zeros * log_zero).sum()
        slope = zeros * expit(at) - ones * (1 - chance) * expit(at) * expit(-at) * np.exp(-log_one)
        return float(value), np.array([-(slope / width).sum(), -(slope * at).sum()])

    start = np.array([(x[y == 1].mean() + x[y == 0].mean()) / 2, np.log(reach / 4)])
    bounds = [(levels[0] - reach, levels[-1] + reach), (np.log(gap / 5), np.log(10 * reach))]
    best = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    return round(float(best.x[0]), 10), float(np.exp(best.x[1]))
