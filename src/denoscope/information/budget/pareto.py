"""What economies cost and what they lose, and which of them nothing beats on both counts."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
import xarray as xr
from diffusers import DiffusionPipeline, DPMSolverMultistepScheduler
from numpy.typing import NDArray
from scipy.stats import binomtest
from torch.utils.flop_counter import FlopCounterMode

from denoscope.information.budget.economies import Economy, economised
from denoscope.pipelines.decoding import decode_latents

Family = Literal["guidance off", "text frozen", "features cached", "re-spaced", "fewer steps", "random skips"]
Judge = Callable[[str, Sequence[NDArray[np.uint8]]], Sequence[bool]]
"""Whether each picture shows what its prompt says."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to draw: ``steps`` of the solver, or these ``timesteps``, with an economy. ``name`` is for a reader."""

    family: Family
    name: str
    steps: int
    economy: Economy = field(default_factory=Economy)
    timesteps: tuple[int, ...] | None = None


def usual_settings(steps: int, logsnr: NDArray[np.float64], t50: float, seed: int = 0) -> list[Setting]:
    """The four advices and what they have to beat, for a run of ``steps`` steps with these noise levels.

    ``t50`` is the decision time of the word that is decided last, in logsnr: economies of guidance and text begin at
    the first step past it, and, to compare, at fixed shares of the run. Caches hold every second, third and fifth step.
    Random skips take over as many predictions as the caches, at steps of chance.

    >>> found = usual_settings(8, np.linspace(-8, 8, 8), t50=0.0)
    >>> [setting.name for setting in found if setting.family == "guidance off"][:2]
    ['guidance off from step 4 (t50)', 'guidance off from step 2']
    """
    decided = int(np.searchsorted(logsnr, t50))
    starts = sorted({max(1, round(share * steps)) for share in (0.25, 0.5, 0.75)} - {decided})
    found = []
    for start, more in ((decided, " (t50)"), *((start, "") for start in starts)):
        if 0 < start < steps:
            found.append(
                Setting("guidance off", f"guidance off from step {start}{more}", steps, Economy(guidance_off=start))
            )
            found.append(
                Setting("text frozen", f"text frozen from step {start}{more}", steps, Economy(text_frozen=start))
            )
    rng = np.random.default_rng(seed)
    for every in (2, 3, 5):
        held = tuple(step for step in range(steps) if step % every)
        found.append(
            Setting("features cached", f"features of every {_ORDINALS[every]} step", steps, Economy(cached=held))
        )
        skipped = tuple(sorted(int(step) for step in rng.choice(np.arange(1, steps), len(held), replace=False)))
        found.append(Setting("random skips", f"{len(held)} predictions taken over", steps, Economy(taken_over=skipped)))
    for share in (0.8, 0.6, 0.4, 0.2):
        count = max(2, round(share * steps))
        found.append(Setting("fewer steps", f"{count} steps", count))
    return found


_ORDINALS = {2: "second", 3: "third", 5: "fifth"}


def spaced_by_information(curve: NDArray[np.float64], timesteps: NDArray[np.float64], count: int) -> tuple[int, ...]:
    """``count`` timesteps between which equal information is gained, noisiest first.

    ``curve`` is a non-decreasing information curve at ``timesteps``, which fall. A tenth of the way is spread evenly,
    so that stretches without information keep some steps: the picture's details that no word names are made there.

    >>> spaced_by_information(np.array([0.0, 0.0, 1.0, 1.0]), np.array([900.0, 600.0, 300.0, 0.0]), 4)
    (900, 504, 396, 0)
    """
    rise = curve - curve[0]
    even = np.linspace(0, 1, len(curve))
    way = 0.9 * (rise / rise[-1] if rise[-1] > 0 else even) + 0.1 * even
    at = np.interp(np.linspace(0, 1, count), way, timesteps)
    found: list[int] = []
    for value in np.rint(at).astype(int).tolist():  # two may round to one
        found.append(min(value, found[-1] - 1) if found else value)
    return tuple(found)


def measure(
    pipe: DiffusionPipeline,
    settings: Sequence[Setting],
    prompts: Sequence[str],
    seeds: Sequence[int],
    *,
    steps: int,
    guidance_scale: float,
    judge: Judge | None = None,
    on_setting: Callable[[str], None] | None = None,
) -> xr.Dataset:
    """Draw every prompt and seed in every setting, and compare with the same solver at four times the steps.

    All are drawn with DPM-Solver++(2M) on the pipeline's own schedule: an ancestral sampler would draw other pictures
    with every number of steps, and nothing could be compared seed by seed; a better solver is also the harder one to
    beat. Flow models keep their scheduler. The pipeline has its own scheduler again afterwards.

    Returns over ``setting`` (the first is the run without economies): ``calls`` of the denoiser's rows (a guided call
    counts two), ``macs`` a picture, ``psnr`` to the reference in dB with ``psnr_low`` and ``psnr_high`` (90 % interval
    of the mean over pictures), ``accuracy`` with its interval where there is a ``judge``, and ``front``: whether no
    other setting costs less and is nearer.
    """
    own = pipe.scheduler
    if "FlowMatch" not in type(own).__name__:
        pipe.scheduler = DPMSolverMultistepScheduler.from_config(own.config)
    every = [Setting("fewer steps", f"{steps} steps, nothing left out", steps), *settings]
    try:
        reference = _draw(pipe, Setting("fewer steps", "reference", 4 * steps), prompts, seeds, guidance_scale)
        rows = []
        for setting in every:
            rows.append(_draw(pipe, setting, prompts, seeds, guidance_scale))
            if on_setting is not None:
                on_setting(setting.name)
    finally:
        pipe.scheduler = own
    table = [_compare(drawn, reference, prompts, judge) for drawn in rows]
    dataset = xr.Dataset(
        {name: ("setting", np.array([row[name] for row in table])) for name in table[0]},
        {"setting": [setting.name for setting in every], "family": ("setting", [each.family for each in every])},
        {"reference_steps": 4 * steps, "guidance_scale": guidance_scale},
    )
    dataset["front"] = ("setting", np.asarray(on_front(dataset["macs"].values, dataset["psnr"].values)))
    return dataset


def on_front(cost: NDArray[np.float64], quality: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points no other beats: none costs as little or less and is better, or costs less and is as good.

    >>> on_front(np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, 6.0])).tolist()
    [True, False, True]
    """
    cheaper, better = cost[None] <= cost[:, None], quality[None] >= quality[:, None]
    strictly = (cost[None] < cost[:, None]) | (quality[None] > quality[:, None])
    found: NDArray[np.bool_] = np.any(cheaper & better & strictly, axis=1)
    return np.logical_not(found)


@dataclass(frozen=True, slots=True)
class _Drawn:
    pictures: list[NDArray[np.uint8]]
    macs: float
    calls: float


@torch.no_grad()
def _draw(
    pipe: DiffusionPipeline, setting: Setting, prompts: Sequence[str], seeds: Sequence[int], guidance_scale: float
) -> _Drawn:
    pictures: list[NDArray[np.uint8]] = []
    counter = FlopCounterMode(display=False)
    rows = 0
    asked = {"timesteps": list(setting.timesteps)} if setting.timesteps else {"num_inference_steps": setting.steps}
    for number, prompt in enumerate(prompts):
        # All prompts cost the same, and counting is slow: the first is counted.
        with economised(pipe, setting.economy) as tally, counter if number == 0 else nullcontext():
            output = pipe(
                prompt=prompt,
                num_images_per_prompt=len(seeds),
                guidance_scale=guidance_scale,
                generator=[torch.Generator("cpu").manual_seed(seed) for seed in seeds],
                output_type="latent",
                **asked,
            )
        rows += tally.rows
        pictures += decode_latents(pipe, output.images)
    return _Drawn(pictures, counter.get_total_flops() / 2 / len(seeds), rows / len(pictures))


def _compare(drawn: _Drawn, reference: _Drawn, prompts: Sequence[str], judge: Judge | None) -> dict[str, float]:
    ratios = np.array([psnr(one, other) for one, other in zip(drawn.pictures, reference.pictures, strict=True)])
    reach = 1.645 * ratios.std(ddof=1) / len(ratios) ** 0.5 if len(ratios) > 1 else np.nan
    found = {
        "macs": drawn.macs,
        "calls": drawn.calls,
        "psnr": float(ratios.mean()),
        "psnr_low": float(ratios.mean() - reach),
        "psnr_high": float(ratios.mean() + reach),
    }
    if judge is not None:
        each = len(drawn.pictures) // len(prompts)
        right = [
            bool(value)
            for number, prompt in enumerate(prompts)
            for value in judge(prompt, drawn.pictures[number * each : (number + 1) * each])
        ]
        share = binomtest(sum(right), len(right)).proportion_ci(0.9, "wilson")
        found |= {"accuracy": sum(right) / len(right), "accuracy_low": share.low, "accuracy_high": share.high}
    return found


def psnr(picture: NDArray[np.uint8], reference: NDArray[np.uint8]) -> float:
    """Peak signal-to-noise ratio of two pictures in dB: 10·log₁₀(255² / mean square error); at most 100.

    >>> round(psnr(np.full((2, 2, 3), 5, np.uint8), np.zeros((2, 2, 3), np.uint8)), 2)
    34.15
    """
    error = np.square(picture.astype(np.float64) - reference).mean()
    return min(100.0, float(10 * np.log10(255**2 / error))) if error > 0 else 100.0
