"""How a small change of the text's embedding or of the latents grows along layers and steps.

Two measures. The *gain* is local: at the latents of one generation the relative change of each layer's output is
compared with that of the denoiser's input, ‖Δf‖/‖f‖ over ‖Δx‖/‖x‖, the relative condition number along a direction
(Trefethen & Bau 1997, eq. 12.4). The *drift* is along the way: the whole generation is drawn again with the change,
and its latents are compared step by step.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
import xarray as xr
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from scipy.stats import t
from torch import Tensor, nn

from denoscope.information.calls import Call, watched
from denoscope.information.conditioning import Conditioning, conditioning, predict, replaced
from denoscope.information.errors import InformationError
from denoscope.observer.choosing import feature_layers
from denoscope.pipelines.adapters import adapter_for

Of = Literal["prompt", "latent"]
"""What is changed: the text's embedding, or the latents."""
Direction = Literal["random", "adversarial"]
"""Any direction, or the one that moves the prediction most."""


class PartGain(NamedTuple):
    """A part's gain: geometric mean over draws and steps, its 90 % interval, the greatest of a step and its log-SNR."""

    part: str
    mean: float
    low: float
    high: float
    greatest: float
    at: float


_ROUNDS: Final = 8
"""Power iterations; the gain found is a lower bound of the greatest, and rises with each."""


def robustness(
    pipe: DiffusionPipeline,
    prompt: str,
    *,
    of: Of = "prompt",
    direction: Direction = "random",
    size: float = 0.01,
    draws: int = 8,
    layers: Sequence[str] = (),
    seed: int = 0,
    guidance_scale: float = 1.0,
    on_step: Callable[[int], None] | None = None,
    **call: object,
) -> xr.Dataset:
    """Change a prompt's embedding or the latents a little in ``draws`` directions, and follow the change.

    ``size`` is the change's length over that of what is changed. A random direction is normal noise; an adversarial one
    is the Jacobian's leading right singular vector at these latents, by power iteration from a random start. ``layers``
    are names or globs of the denoiser's parts, empty for the family's usual ones. ``call`` goes to the pipeline. The
    picture is the one of ``seed`` (a CPU generator); a generation with 1 + ``draws`` rows follows it for the drift:
    changed in random directions, the embedding from the first step on, the latents after the first step.

    Returns ``gain`` ``(draw, step, layer)`` and ``output_gain`` ``(draw, step)``, 1 where a relative change is passed
    on as it is; ``drift`` ``(draw, step)``, the relative distance of the latents that enter a step over ``size``, NaN
    before the change; ``logsnr(step)``.

    Raises :class:`InformationError` for a size or a number that is not positive, and for a model without text
    embeddings or gradients where those are asked for; ``ObserveError`` for layers that there are none of.
    """
    if of not in get_args(Of) or direction not in get_args(Direction):
        raise InformationError("change the prompt or the latent, in a random or an adversarial direction")
    if not 0 < size < 1 or draws < 1:
        raise InformationError("give a size between 0 and 1 and at least one draw")
    adapter = adapter_for(pipe)
    denoiser = adapter.denoiser(pipe)
    has_parts = layers or any(True for _ in denoiser.children())  # the exact denoiser has none
    modules = feature_layers(adapter, denoiser, list(layers) or True, 1) if has_parts else {}
    told = {**call, "guidance_scale": guidance_scale}
    given = conditioning(pipe, prompt, **told)
    noise = torch.Generator("cpu").manual_seed(seed)
    gains: list[Tensor] = []
    levels: list[float] = []

    def measure(at: Call) -> None:
        x = given.states if of == "prompt" else at.z

        def output(changed: Tensor) -> Tensor:
            z = at.z.expand(len(changed), *at.z.shape[1:]) if of == "prompt" else changed
            return predict(pipe, z, at.timestep, given.with_states(changed) if of == "prompt" else given)

        unit = _unit(torch.randn(draws, *x.shape[1:], generator=noise).to(x))
        if direction == "adversarial":
            unit = leading_direction(output, x, unit, size)
        with torch.no_grad(), recorded(modules) as seen:
            last = output(torch.cat([x, x + size * x.norm() * unit]))
        gains.append(torch.stack([_relative(held) / size for held in (*(seen[name] for name in modules), last)], 1))
        levels.append(at.level.logsnr)
        if on_step is not None:
            on_step(at.step)

    with watched(pipe, measure):
        _draw(pipe, prompt, 1, seed, told)
    every = torch.stack(gains, 1).cpu().numpy()
    return xr.Dataset(
        {
            "gain": (("draw", "step", "layer"), every[..., :-1]),
            "output_gain": (("draw", "step"), every[..., -1]),
            "drift": (("draw", "step"), _drift(pipe, prompt, given, of, size, draws, seed, noise, told)),
        },
        {"layer": list(modules), "logsnr": ("step", levels)},
        {"of": of, "direction": direction, "size": size, "prompt": prompt, "guidance_scale": guidance_scale},
    )


def by_part(found: xr.Dataset) -> list[PartGain]:
    """A row a layer, one for the denoiser's ``output`` and one for the ``drift``, of :func:`robustness`'s result.

    The interval is Student's over the draws' logarithms, for some draws may tip the picture over: two at least, or it
    is NaN.
    """
    curves = {str(name): found["gain"].sel(layer=name) for name in found["layer"].values}
    curves |= {"output": found["output_gain"], "drift": found["drift"]}
    rows = []
    for name, curve in curves.items():
        values = np.log(np.maximum(curve.transpose("draw", "step").values, np.finfo(np.float64).tiny))
        means = np.nanmean(values, 1)
        spread = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else np.nan
        reach = float(t.ppf(0.95, max(len(means) - 1, 1)) * spread)
        steps = values.mean(0)
        step = int(np.nanargmax(steps))
        mean = float(means.mean())
        middle, low, high, greatest = np.exp([mean, mean - reach, mean + reach, float(steps[step])]).tolist()
        rows.append(PartGain(name, middle, low, high, greatest, float(found["logsnr"][step])))
    return rows


def leading_direction(output: Callable[[Tensor], Tensor], x: Tensor, start: Tensor, size: float) -> Tensor:
    """The direction of unit length along which ``output`` moves most at ``x``, near each row of ``start``.

    Power iteration v ← JᵀJv: Jv is a difference over a step of ``size``·‖x‖, Jᵀ one backward pass. ``x`` is ``(1, …)``,
    ``start`` ``(B, …)``. Raises :class:`InformationError` where the output has no gradient along ``x``.

    >>> wide = torch.tensor([3.0, 1.0])
    >>> found = leading_direction(lambda x: wide * x, torch.ones(1, 2), torch.tensor([[0.6, 0.8]]), 0.01)
    >>> found.abs().round(decimals=2).tolist()
    [[1.0, 0.0]]
    """
    unit, reach = start, size * x.norm()
    for _ in range(_ROUNDS):
        with torch.no_grad():
            moved = output(torch.cat([x, x + reach * unit]))
            towards = (moved[1:] - moved[:1]) / reach
        with torch.enable_grad():
            point = x.detach().expand(len(start), *x.shape[1:]).clone().requires_grad_(True)
            found = output(point)
            if not found.requires_grad:
                raise InformationError("this model's output has no gradient along what is changed: take random ones")
            (pulled,) = torch.autograd.grad((found * towards).sum(), point)
        unit = _unit(pulled)
    return unit


@contextmanager
def recorded(modules: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """What layers give out in calls inside the block, the last of each; of several tensors the first."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(_module: nn.Module, _args: object, output: object) -> None:
            first = output[0] if isinstance(output, tuple | list) else getattr(output, "sample", output)
            seen[name] = cast(Tensor, first)

        return hook

    hooks = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _drift(
    pipe: DiffusionPipeline,
    prompt: str,
    given: Conditioning,
    of: Of,
    size: float,
    draws: int,
    seed: int,
    noise: torch.Generator,
    told: dict[str, object],
) -> NDArray[np.float64]:
    """Relative distance of every draw's latents from those of the row without a change, by step."""
    places: list[Tensor] = []
    where: AbstractContextManager[None] = nullcontext()
    own = dict(told)
    if of == "prompt":
        x = given.states
        unit = _unit(torch.randn(draws, *x.shape[1:], generator=noise).to(x))
        where = replaced(pipe, given.with_states(torch.cat([x, x + size * x.norm() * unit])))
    else:

        def change(_pipe: object, step: int, _at: object, kwargs: dict[str, Tensor]) -> dict[str, Tensor]:
            if step > 0:
                return kwargs
            latents = kwargs["latents"]
            unit = _unit(torch.randn(draws, *latents.shape[1:], generator=noise).to(latents))
            changed = latents.clone()
            changed[1:] += size * latents[:1].norm() * unit
            return {**kwargs, "latents": changed}

        own["callback_on_step_end"] = change
    with where, watched(pipe, lambda at: places.append(at.z.detach().double().cpu())):
        _draw(pipe, prompt, 1 + draws, seed, own)
    found: NDArray[np.float64] = torch.stack([_relative(z) for z in places], 1).numpy() / size
    found[:, 0] = np.nan
    return found


def _draw(pipe: DiffusionPipeline, prompt: str, count: int, seed: int, told: dict[str, object]) -> None:
    """The pipeline's own call; every row has the same noise."""
    generators = [torch.Generator("cpu").manual_seed(seed) for _ in range(count)]
    pipe(prompt=prompt, num_images_per_prompt=count, generator=generators, **{**told, "output_type": "latent"})


def _unit(rows: Tensor) -> Tensor:
    lengths = rows.flatten(1).norm(dim=1)
    return rows / lengths.clamp_min(torch.finfo(rows.dtype).tiny).reshape(-1, *[1] * (rows.dim() - 1))


def _relative(rows: Tensor) -> Tensor:
    """Distances of all rows but the first from it, over its length: float64 ``(rows − 1,)``."""
    held = rows.detach().double().flatten(1)
    return (held[1:] - held[:1]).norm(dim=1) / held[0].norm()
