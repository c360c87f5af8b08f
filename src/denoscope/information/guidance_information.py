"""How much each word tells, step by step and place by place, from one generation.

By the relation of mutual information and denoising error (Guo, Shamai & Verdú 2005; Kong et al. 2023), with λ = logsnr,
dI(z_λ; word | rest)/dλ = ½·E‖ε̂(z | all) − ε̂(z | rest)‖², the mean being over pictures and noise of the model's own:
guidance_scale = 1. One generation is one draw of that mean.
"""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from diffusers import DiffusionPipeline
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from denoscope.information.calls import Call, level_at, watched
from denoscope.information.conditioning import Conditioning, conditioning, predict
from denoscope.information.errors import InformationError
from denoscope.information.gradient_flow import gradient_flow
from denoscope.information.leaving_out import How, without, words_of
from denoscope.information.levels import timesteps_at, trained_range
from denoscope.pipelines.adapters import adapter_for


def word_information(
    pipe: DiffusionPipeline,
    prompt: str,
    words: Sequence[str] | None = None,
    *,
    how: How = "omit",
    neutral: dict[str, str] | None = None,
    guidance_scale: float = 1.0,
    seed: int = 0,
    gradient: bool = False,
    **call: object,
) -> xr.Dataset:
    """Generate one picture and measure, for each word, how far leaving it out moves the prediction.

    One further denoiser call a word and step; the picture is the one drawn unwatched (a CPU generator with ``seed``).
    ``words`` are the words asked for (all), ``how`` they are left out, ``neutral`` maps a word to what takes its place.
    ``call`` goes to the pipeline.

    Returns, over ``word, step, y, x`` (places of the latents, summed over channels):

    - ``rate``: ½·‖Δε̂‖², nats per unit of logsnr;
    - ``injected``: its part of the integral over logsnr (trapezoid), what the word adds around this step;
    - ``written``: the integral from the first step to this one, what z at this step holds of the word already;

    and ``total(word)``, the whole integral, ``logsnr(step)``, ``picture(row, column, channel)`` uint8. At
    ``guidance_scale`` 1 these are *information*; under guidance the latents aren't the model's own, all of it is
    multiplied by the squared scale and called *guidance effort* (``attrs["quantity"]``): how hard the word is pushed.
    A level without any signal (logsnr −∞) counts nothing. ``gradient=True`` adds ``gradient(word, step)``, see
    :func:`denoscope.information.gradient_flow.gradient_flow`.

    Raises ``ObserveError`` for a word that isn't in the prompt; :class:`InformationError` for one that can't be left
    out so, or a model whose latents are no map.
    """
    adapter = adapter_for(pipe)
    scheduler = adapter.scheduler(pipe)
    told = {**call, "guidance_scale": guidance_scale}
    found = words_of(pipe, prompt, None if words is None else list(words))
    given = conditioning(pipe, prompt, **told)
    rest = [without(pipe, given, word, how, neutral, **told) for word in found]
    levels: list[float] = []
    rates: list[NDArray[np.float64]] = []
    gradients: list[list[float]] = []

    def measure(at: Call) -> None:
        levels.append(at.level.logsnr)
        own = at.level.convert(at.prediction, scheduler, "epsilon", at.z)
        maps = []
        for one in rest:
            other = at.level.convert(predict(pipe, at.z, at.timestep, one), scheduler, "epsilon", at.z)
            spatial = adapter.spatial(own - other, at.grid)
            if spatial is None:
                raise InformationError(
                    f"the latents of {type(pipe).__name__} are no map, so no place of them can be told"
                )
            maps.append(spatial.double().square().sum(1)[0].cpu().numpy() / 2)
        rates.append(np.stack(maps))
        if gradient:
            flows = gradient_flow(pipe, at.z, at.timestep, given, [word.positions for word in found])
            gradients.append(flows.tolist())

    with watched(pipe, measure):
        output = pipe(
            prompt=prompt,
            generator=torch.Generator("cpu").manual_seed(seed),
            **{**told, "output_type": "np"},
        )
    weight = guidance_scale**2 if guidance_scale > 1 else 1.0
    result = _summed(np.stack(rates, 1) * weight, np.array(levels))
    result = result.assign_coords(word=[word.label for word in found])
    result["picture"] = ("row", "column", "channel"), np.rint(np.nan_to_num(output.images[0]) * 255).astype(np.uint8)
    if gradient:
        result["gradient"] = ("word", "step"), np.array(gradients).T
    quantity = "information" if weight == 1 else "guidance effort"
    result.attrs.update(quantity=quantity, how=how, prompt=prompt, guidance_scale=guidance_scale, seed=seed)
    return result


def _summed(rates: NDArray[np.float64], logsnr: NDArray[np.float64]) -> xr.Dataset:
    """From rates ``(word, step, y, x)``: their parts of the integral over logsnr and the running integral."""
    steps = np.diff(logsnr)
    steps = np.where(np.isfinite(steps), steps, 0.0)
    weights = (np.concatenate([[0.0], steps]) + np.concatenate([steps, [0.0]])) / 2
    between = (rates[:, 1:] + rates[:, :-1]) / 2 * steps[:, None, None]
    written = np.concatenate([np.zeros_like(rates[:, :1]), between.cumsum(1)], 1)
    axes = ("word", "step", "y", "x")
    return xr.Dataset(
        {
            "rate": (axes, rates, {"units": "nat per logsnr"}),
            "injected": (axes, rates * weights[:, None, None], {"units": "nat"}),
            "written": (axes, written, {"units": "nat"}),
            "total": ("word", written[:, -1].sum((1, 2)), {"units": "nat"}),
        },
        coords={"logsnr": ("step", logsnr)},
    )


def pointwise_information(
    pipe: DiffusionPipeline,
    latents: Tensor,
    prompt: str,
    rest: str = "",
    *,
    n: int = 64,
    location: float = 0.0,
    scale: float = 2.0,
    span: tuple[float, float] | None = None,
    seed: int = 0,
    **call: object,
) -> xr.Dataset:
    """What a prompt tells of given pictures beyond what ``rest`` tells, without generating (Kong et al. 2024).

    ``latents`` are clean, ``(S, …)`` as the denoiser takes them. Over ``sample``, in nats, with standard errors:

    - ``standard`` = ½·∫E[‖ε − ε̂(z | rest)‖² − ‖ε − ε̂(z | prompt)‖²]dλ, in the mean over noise log p(x | prompt) −
      log p(x | rest) for a perfect model; negative for a picture that the prompt makes less likely;
    - ``orthogonal`` = ½·∫E‖ε̂(z | rest) − ε̂(z | prompt)‖²dλ ≥ 0, of less variance and, over pictures of the prompt, of
      the same mean.

    λ is drawn ``n`` times from a logistic with ``location`` and ``scale``, cut to ``span`` (the model's own range if
    not given), one draw in each of n equally likely parts, and weighted by its density: the range counts whole,
    whatever the logistic.

    Raises :class:`InformationError` for a span outside the model's trained range, n < 2 or a scale not positive.
    """
    scheduler = adapter_for(pipe).scheduler(pipe)
    low, high = trained_range(scheduler) if span is None else span
    if n < 2 or not scale > 0 or not low < high:
        raise InformationError("take at least 2 noise levels, a positive scale, and a span that rises")
    timesteps_at(scheduler, [low, high])  # refuses levels that the model doesn't know
    generator = torch.Generator("cpu").manual_seed(seed)
    shares = (torch.arange(n) + torch.rand(n, generator=generator, dtype=torch.float64)) / n
    logsnr, density = truncated_logistic(shares.numpy(), location, scale, low, high)
    both: list[Conditioning] = [conditioning(pipe, text, **call) for text in (prompt, rest)]
    standard, orthogonal = (np.zeros((n, len(latents))) for _ in range(2))
    for i, timestep in enumerate(timesteps_at(scheduler, logsnr)):
        level = level_at(scheduler, timestep)
        noise = torch.randn(latents.shape, generator=generator, dtype=torch.float64).to(latents)
        z = level.alpha * latents + level.sigma * noise
        with torch.no_grad():
            told, untold = (
                level.convert(predict(pipe, z, timestep, one), scheduler, "epsilon", z).double() for one in both
            )
        off, off_rest = (noise.double() - told), (noise.double() - untold)
        gained = (off_rest.square() - off.square()).flatten(1).sum(1) / 2
        standard[i] = gained.cpu().numpy() / density[i]
        orthogonal[i] = (told - untold).square().flatten(1).sum(1).cpu().numpy() / 2 / density[i]
    found = xr.Dataset(attrs={"low": low, "high": high, "n": n, "seed": seed})
    for name, draws in (("standard", standard), ("orthogonal", orthogonal)):
        found[name] = "sample", draws.mean(0), {"units": "nat"}
        found[f"{name}_error"] = "sample", draws.std(0, ddof=1) / n**0.5, {"units": "nat"}
    return found


def truncated_logistic(
    shares: ArrayLike, location: float, scale: float, low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Quantiles of a logistic cut to [low, high], and its density there.

    >>> points, density = truncated_logistic([0.0, 0.5, 1.0], 0.0, 2.0, -4.0, 4.0)
    >>> points.round(6).tolist(), density.round(4).tolist()
    ([-4.0, -0.0, 4.0], [0.0689, 0.1641, 0.0689])
    """
    ends = 1 / (1 + np.exp(-(np.array([low, high]) - location) / scale))
    at = ends[0] + np.asarray(shares, dtype=np.float64) * (ends[1] - ends[0])
    points = np.clip(location + scale * (np.log(at) - np.log1p(-at)), low, high)
    return points, at * (1 - at) / scale / (ends[1] - ends[0])
