"""What is believed of a word along a path, without a probe: the likelihood of the path under each substitute.

An ancestral path z_T, z_{T−1}, … is drawn from p(z_s | z_t, y) = N(μ(z_t, x̂₀(z_t | y)), σ̃²). For a closed set of
substitutes y each transition's likelihood is a closed form, and since noisier latents add nothing to what z_t tells,
p(y | path up to z_t) is p(y | z_t): exactly in the limit of small steps, with an error of the order of √Δlogsnr.

In coordinates z̃ = z/α, with s² = e^(−logsnr) and ρ = s_s²/s_t², DDPM, DDIM with η = 1 and Euler ancestral all draw
from N(x̂₀ + ρ·(z̃_t − x̂₀), s_s²·(1 − ρ)).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
import xarray as xr
from diffusers import DiffusionPipeline
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from denoscope.information.calls import Call, Level, level_at, watched
from denoscope.information.conditioning import Conditioning, conditioning, predict
from denoscope.information.errors import InformationError
from denoscope.information.levels import timesteps_at
from denoscope.pipelines.adapters import adapter_for

_ANCESTRAL: Final = ("DDPMScheduler", "EulerAncestralDiscreteScheduler")
_WITH_ETA: Final = "DDIMScheduler"


def transition_loglik(z_t: Tensor, z_s: Tensor, clean: Tensor, logsnr_t: float, logsnr_s: float) -> Tensor:
    """log p(z_s | z_t, y) for each substitute, up to a number that all of them share: ``(B, K)`` float64.

    ``z_t`` and ``z_s`` are ``(B, …)`` *divided by their α*, ``clean`` is x̂₀(z_t | y) ``(B, K, …)``; ``logsnr_s`` is
    the greater level.

    >>> clean = torch.tensor([[[1.0], [-1.0]]])  # two substitutes, one number each
    >>> loglik = transition_loglik(torch.zeros(1, 1), torch.ones(1, 1), clean, -1.0, 1.0)
    >>> bool(loglik[0, 0] > loglik[0, 1])
    True
    """
    s_t, s_s = math.exp(-logsnr_t), math.exp(-logsnr_s)
    ratio = s_s / s_t
    # Relative to the first substitute: the squares themselves would drown the differences.
    first = clean[:, :1].cpu().double()
    apart = (clean.cpu().double() - first).flatten(2)
    rest = (z_s - ratio * z_t).cpu().double()[:, None] - (1 - ratio) * first
    gained: Tensor = torch.einsum("bkd,bd->bk", apart, rest.flatten(1)) - (1 - ratio) / 2 * apart.square().sum(-1)
    return gained / s_s


@dataclass(slots=True)
class _Path:
    """The beliefs of a batch of paths so far."""

    logits: Tensor  # (B, K)
    beliefs: list[Tensor] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    latents: list[NDArray[np.float32]] = field(default_factory=list)
    before: tuple[Tensor, Tensor] | None = None  # the last step's z/α and x̂₀

    def arrive(self, z: Tensor, level: Level) -> None:
        """Latents z at a level: take up the transition to them."""
        scaled = z.cpu().double() / level.alpha
        if self.before is not None:
            self.logits = self.logits + transition_loglik(
                self.before[0], scaled, self.before[1], self.levels[-1], level.logsnr
            )
        self.beliefs.append(self.logits.log_softmax(1))
        self.levels.append(level.logsnr)
        self.before = (scaled, torch.empty(0))

    def foresee(self, clean: Tensor) -> None:
        """x̂₀ under every substitute at the last latents: ``(B, K, …)``."""
        assert self.before is not None
        self.before = (self.before[0], clean.cpu())


def path_posterior(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    *,
    values: Sequence[str] | None = None,
    prior: ArrayLike | None = None,
    drawn: Sequence[int] | None = None,
    seeds: Sequence[int] = tuple(range(16)),
    guidance_scale: float = 1.0,
    keep_latents: bool = False,
    **call: object,
) -> xr.Dataset:
    """p(y | z_t) along ancestral paths, for K prompts that differ in one word; K − 1 further denoiser calls a step.

    ``values`` name the substitutes (the prompts themselves otherwise), ``prior`` is theirs (uniform), ``drawn`` which
    of them are drawn with (all), each with every seed (CPU generators, so all substitutes share their noise). ``call``
    goes to the pipeline: ``num_inference_steps``, ``timesteps``, ``negative_prompt``, ``eta=1.0`` for DDIM … How many
    steps are needed, see docs/paths.md.

    Under guidance the path is drawn from the guided prediction and judged by the *unguided* transition of each
    substitute: the ratio of two substitutes' path likelihoods depends on the path alone, whoever drew it, so that the
    belief stays p(y | z_t). The guided transitions are no model of any picture, and their ratio is no belief.

    Returns, over ``sample`` (substitute × seed), ``step`` and ``value``: ``posterior`` (that of the latents that enter
    the step, so the prior at step 0), ``entropy`` and ``cross_entropy`` to the substitute drawn with, in nats, and
    ``logsnr(step)``, ``intended(sample)``, ``seed(sample)``; with ``keep_latents`` also ``latents``, as the
    denoiser was given them.

    Raises :class:`InformationError` for a sampler without noise in its steps, fewer than two prompts, or a bad prior.
    """
    names, log_prior = _checked(prompts, values, prior)
    _check_ancestral(pipe, call)
    indices = tuple(range(len(prompts))) if drawn is None else tuple(drawn)
    if not seeds or not indices or any(not 0 <= index < len(prompts) for index in indices):
        raise InformationError(f"give seeds, and substitutes to draw with from 0 to {len(prompts) - 1}")
    told = {**call, "guidance_scale": guidance_scale}
    given = [conditioning(pipe, prompt, **told) for prompt in prompts]
    found = []
    for index in indices:
        path = _Path(log_prior.expand(len(seeds), -1))

        def follow(at: Call, index: int = index, path: _Path = path) -> None:
            path.arrive(at.z, at.level)
            if keep_latents:
                path.latents.append(at.z.float().cpu().numpy())
            others = {k: predict(pipe, at.z, at.timestep, one) for k, one in enumerate(given) if k != index}
            every = [at.prediction if k == index else others[k] for k in range(len(given))]
            path.foresee(_clean(pipe, every, at.z, at.level))

        generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        with watched(pipe, follow):
            pipe(
                prompt=prompts[index],
                num_images_per_prompt=len(seeds),
                generator=generators,
                **{**told, "output_type": "latent"},
            )
        found.append(_dataset(path, names, index, seeds))
    result = xr.concat(found, "sample", data_vars="minimal", coords="minimal", compat="override")
    result.attrs.update(guidance_scale=guidance_scale, path="sampled", prior=log_prior.exp().tolist())
    return result


def renoised_posterior(
    pipe: DiffusionPipeline,
    latents: Tensor,
    prompts: Sequence[str],
    logsnr: ArrayLike,
    *,
    values: Sequence[str] | None = None,
    prior: ArrayLike | None = None,
    intended: int | None = None,
    seed: int = 0,
    keep_latents: bool = False,
    **call: object,
) -> xr.Dataset:
    """The same for finished pictures, whatever drew them: noise is put on them step by step, and read backwards.

    ``latents`` are clean, ``(S, …)`` as the denoiser takes them; ``logsnr`` the levels, rising once sorted, within the
    model's own. The path z_T … z_t given x₀ is drawn from q(z_s | z_t, x₀), whose law is that of noising x₀. K calls a
    step. Returns what :func:`path_posterior` does; ``cross_entropy`` is NaN without ``intended``.

    Raises :class:`InformationError` for levels outside the model's, fewer than two prompts, or a bad prior.
    """
    names, log_prior = _checked(prompts, values, prior)
    scheduler = adapter_for(pipe).scheduler(pipe)
    grid = np.sort(np.asarray(logsnr, dtype=np.float64).ravel())
    timesteps = timesteps_at(scheduler, grid)
    given: list[Conditioning] = [conditioning(pipe, prompt, **call) for prompt in prompts]
    generator = torch.Generator("cpu").manual_seed(seed)
    clean, path = latents.cpu().double(), _Path(log_prior.expand(len(latents), -1))

    def noise() -> Tensor:
        return torch.randn(clean.shape, dtype=torch.float64, generator=generator)

    scaled = torch.zeros_like(clean)
    for step, timestep in enumerate(timesteps):
        level = level_at(scheduler, timestep)
        variance = math.exp(-level.logsnr)
        if step == 0:
            scaled = clean + variance**0.5 * noise()
        else:
            ratio = variance / math.exp(-path.levels[-1])
            scaled = clean + ratio * (scaled - clean) + (variance * (1 - ratio)) ** 0.5 * noise()
        z = (scaled * level.alpha).to(latents)
        path.arrive(z, level)
        if keep_latents:
            path.latents.append(z.float().cpu().numpy())
        with torch.no_grad():
            every = [predict(pipe, z, timestep, one) for one in given]
        path.foresee(_clean(pipe, every, z, level))
    result = _dataset(path, names, intended, range(len(latents)))
    result.attrs.update(guidance_scale=1.0, path="renoised", prior=log_prior.exp().tolist())
    return result


def _clean(pipe: DiffusionPipeline, predictions: Sequence[Tensor], z: Tensor, level: Level) -> Tensor:
    """x̂₀ of each prediction: ``(B, K, …)``."""
    scheduler = adapter_for(pipe).scheduler(pipe)
    return torch.stack([level.convert(one, scheduler, "sample", z) for one in predictions], 1)


def _checked(prompts: Sequence[str], values: Sequence[str] | None, prior: ArrayLike | None) -> tuple[list[str], Tensor]:
    if len(set(prompts)) < 2 or len(set(prompts)) != len(prompts):
        raise InformationError("a belief needs at least two prompts, all different: one for each substitute of a word")
    names = list(prompts if values is None else values)
    weights = np.full(len(prompts), 1 / len(prompts)) if prior is None else np.asarray(prior, dtype=np.float64)
    if len(names) != len(prompts) or weights.shape != (len(prompts),):
        raise InformationError(f"there are {len(prompts)} prompts: give as many values and prior probabilities")
    if not (weights > 0).all() or abs(weights.sum() - 1) > 1e-6:
        raise InformationError("the prior of the substitutes must be positive and sum to 1")
    return names, torch.from_numpy(np.log(weights))


def _check_ancestral(pipe: DiffusionPipeline, call: Mapping[str, object]) -> None:
    """Refuse samplers whose steps have no likelihood."""
    scheduler = adapter_for(pipe).scheduler(pipe)
    name = type(scheduler).__name__
    variance = getattr(getattr(scheduler, "config", None), "variance_type", "fixed_small")
    if name == _WITH_ETA:
        if call.get("eta", 0.0) == 1:
            return
        raise InformationError(
            f"DDIM with eta={call.get('eta', 0.0)} is no ancestral sampler, so its path has no likelihood: pass "
            "eta=1.0, or re-noise finished latents with renoised_posterior"
        )
    if name not in _ANCESTRAL or variance not in ("fixed_small", "fixed_small_log"):
        raise InformationError(
            f"the path of a {name} has no ancestral likelihood: set pipe.scheduler = "
            "DDPMScheduler.from_config(pipe.scheduler.config, variance_type='fixed_small'), or re-noise finished "
            "latents with renoised_posterior"
        )


def _dataset(path: _Path, names: Sequence[str], intended: int | None, seeds: Sequence[int]) -> xr.Dataset:
    logp = torch.stack(path.beliefs, 1).numpy()
    posterior = np.exp(logp)
    axes = ("sample", "step")
    surprise = np.full(logp.shape[:2], np.nan) if intended is None else -logp[:, :, intended]
    found = xr.Dataset(
        {
            "posterior": ((*axes, "value"), posterior),
            "entropy": (axes, -(posterior * np.where(posterior > 0, logp, 0)).sum(-1), {"units": "nat"}),
            "cross_entropy": (axes, surprise, {"units": "nat"}),
        },
        coords={
            "value": list(names),
            "logsnr": ("step", np.array(path.levels)),
            "seed": ("sample", list(seeds)),
            "intended": ("sample", ["" if intended is None else names[intended]] * len(logp)),
        },
    )
    if path.latents:
        held = np.stack(path.latents, 1)
        found["latents"] = ((*axes, *(f"latent_{i}" for i in range(held.ndim - 2))), held)
    return found
