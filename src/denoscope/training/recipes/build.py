"""Networks, schedules and objectives as a recipe says, and the denoiser that a trained network is."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from denoscope.networks import (
    DiT,
    DiTConfig,
    MoleculeNet,
    MoleculeNetConfig,
    UNet2D,
    UNet2DCondition,
    UNet2DConfig,
    UNetConfig,
)
from denoscope.sampling import Denoise, Grid, denoisers
from denoscope.sampling.spacing import Spacing, exponential_ratios, karras_ratios, ratio_range, spaced_timesteps
from denoscope.schedules import NoiseSchedule, continuous
from denoscope.training import objectives
from denoscope.training.objectives import Objective
from denoscope.training.recipes.config import DiTGroup, EGNNGroup, Recipe, RecipeError, ScheduleGroup, UNetGroup
from denoscope.training.recipes.modality import Conditions, Modality

EDM_RANGE = (0.002, 80.0)
"""σ that an EDM network is sampled from and to (Karras et al. 2022, table 1)."""


def build_network(recipe: Recipe, modality: Modality) -> nn.Module:
    """A new network; its first weights are drawn by ``trainer.seed``.

    Raises :class:`RecipeError` when the recipe's network can't have such samples.
    """
    out_channels = modality.shape[0] * (2 if recipe.objective.name == "learned_variance" else 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.trainer.seed)
        try:
            match recipe.network:
                case UNetGroup():
                    return _unet(recipe.network, modality, out_channels)
                case DiTGroup():
                    return _dit(recipe.network, modality, out_channels)
                case EGNNGroup():
                    return _molecules(recipe.network, modality.shape)
        except RecipeError:
            raise
        except ValueError as error:  # what the network's own config says
            raise RecipeError(f"network: {error}") from error


def _unet(group: UNetGroup, modality: Modality, out_channels: int) -> UNet2D | UNet2DCondition:
    """With words, cross-attention stands where self-attention is asked for, and in the middle."""
    height, width = modality.shape[1:]
    size = height if height == width else (height, width)
    attention = group.attention or (False,) * len(group.channels)
    if len(attention) != len(group.channels):
        raise RecipeError(f"network.attention has {len(attention)} entries for {len(group.channels)} network.channels")
    if modality.context_width is not None:
        return UNet2DCondition(
            UNetConfig(
                sample_size=size,
                in_channels=modality.shape[0],
                out_channels=out_channels,
                block_out_channels=group.channels,
                down_block_types=tuple("CrossAttnDownBlock2D" if at else "DownBlock2D" for at in attention),
                up_block_types=tuple("CrossAttnUpBlock2D" if at else "UpBlock2D" for at in reversed(attention)),
                layers_per_block=group.layers_per_block,
                attention_head_dim=tuple(max(1, channels // group.head_dim) for channels in group.channels),
                norm_num_groups=group.groups,
                cross_attention_dim=modality.context_width,
                dropout=group.dropout,
            )
        )
    return UNet2D(
        UNet2DConfig(
            sample_size=size,
            in_channels=modality.shape[0],
            out_channels=out_channels,
            block_out_channels=group.channels,
            down_block_types=tuple("AttnDownBlock2D" if at else "DownBlock2D" for at in attention),
            up_block_types=tuple("AttnUpBlock2D" if at else "UpBlock2D" for at in reversed(attention)),
            layers_per_block=group.layers_per_block,
            attention_head_dim=group.head_dim,
            norm_num_groups=group.groups,
            add_attention=group.middle_attention,
            # One more class than there are stands for "not told".
            num_class_embeds=len(modality.classes) + 1 if modality.classes else None,
            dropout=group.dropout,
        )
    )


def _dit(group: DiTGroup, modality: Modality, out_channels: int) -> DiT:
    if modality.context_width is not None:
        raise RecipeError("the network dit has no words; captions need network=unet")
    return DiT(
        DiTConfig(
            num_attention_heads=group.heads,
            attention_head_dim=group.head_dim,
            num_layers=group.layers,
            in_channels=modality.shape[0],
            out_channels=out_channels,
            sample_size=modality.shape[1],
            patch_size=group.patch_size,
            num_embeds_ada_norm=max(len(modality.classes), 1),
        )
    )


def _molecules(group: EGNNGroup, shape: tuple[int, ...]) -> MoleculeNet:
    return MoleculeNet(MoleculeNetConfig(shape[1] - 3, group.width, group.layers, waves=group.waves))


def build_schedule(group: ScheduleGroup) -> NoiseSchedule:
    """The discrete schedule of the recipe."""
    match group.name:
        case "linear":
            found = NoiseSchedule.linear(group.steps)
        case "scaled_linear":
            found = NoiseSchedule.scaled_linear(group.steps)
        case "cosine":
            shifted = group.shift != 0
            found = continuous.cosine(group.shift).table(group.steps) if shifted else NoiseSchedule.cosine(group.steps)
        case "cosine_floored":
            found = NoiseSchedule.cosine_floored(group.steps)
        case "sigmoid":
            found = continuous.sigmoid().table(group.steps)
        case "laplace":
            found = continuous.laplace().table(group.steps)
    return found.zero_terminal_snr() if group.zero_snr else found


def build_objective(recipe: Recipe) -> Objective:
    """The loss of the recipe."""
    group = recipe.objective
    match group.name:
        case "ddpm":
            weight = None
            if group.min_snr_gamma is not None:
                weight = objectives.min_snr(group.min_snr_gamma, group.prediction_type)
            elif group.p2_gamma is not None:
                weight = objectives.p2(gamma=group.p2_gamma)
            elif group.weighted_as_epsilon:
                weight = objectives.as_epsilon(group.prediction_type)
            return objectives.ddpm(build_schedule(recipe.schedule), group.prediction_type, weight)
        case "learned_variance":
            return objectives.learned_variance(build_schedule(recipe.schedule))
        case "score":
            return objectives.score(_continuous(recipe.schedule))
        case "edm":
            return objectives.edm(group.sigma_data)
        case "flow":
            return objectives.flow(group.times, group.shift)


def _continuous(group: ScheduleGroup) -> continuous.ContinuousSchedule:
    """The recipe's schedule in continuous time.

    Raises :class:`RecipeError` for one that has no such form.
    """
    known: dict[str, Callable[[], continuous.ContinuousSchedule]] = {
        "linear": continuous.linear,
        "cosine": continuous.cosine,
        "sigmoid": continuous.sigmoid,
        "laplace": continuous.laplace,
    }
    if group.name not in known or group.zero_snr:
        raise RecipeError(f"the score objective needs a schedule in continuous time: {', '.join(known)}")
    return known[group.name]()


def build_denoiser(recipe: Recipe, network: nn.Module, modality: Modality, conditions: Conditions) -> Denoise:
    """The trained network as x0 at any level; values are clipped where the modality knows their range."""
    group = recipe.objective

    def told(z: Tensor, t: Tensor) -> Tensor:
        said: Tensor = network(z, t, **conditions)
        # A learnt variance is told in the second half of the channels; solvers here take their own.
        return said[:, : z.shape[1]] if group.name == "learned_variance" else said

    match group.name:
        case "ddpm":
            denoise = denoisers.discrete(told, build_schedule(recipe.schedule), group.prediction_type)
        case "learned_variance":
            denoise = denoisers.discrete(told, build_schedule(recipe.schedule), "epsilon")
        case "score":
            denoise = denoisers.continuous(told, _continuous(recipe.schedule), "epsilon")
        case "edm":
            denoise = denoisers.edm(told, group.sigma_data)
        case "flow":
            denoise = denoisers.flow(told)
    return denoise if modality.value_range is None else denoisers.clipped(denoise, modality.value_range)


def build_grid(recipe: Recipe, steps: int, spacing: str | None = None) -> Grid:
    """The noise levels of ``steps`` steps, as suits the objective, or spaced as told.

    Raises :class:`RecipeError` for an unknown spacing or one that does not suit the objective, and :class:`ValueError`
    for a number of steps that the schedule does not have.
    """
    name = recipe.objective.name
    if name == "flow":
        _only(spacing, {"uniform"}, name)
        return Grid.flow(steps, recipe.objective.shift)
    if name == "edm":
        _only(spacing, {"karras", "exponential"}, name)
        ratios = exponential_ratios if spacing == "exponential" else karras_ratios
        return Grid.from_ratios(ratios(steps, *EDM_RANGE), "ve")
    table = _continuous(recipe.schedule).table() if name == "score" else build_schedule(recipe.schedule)
    return discrete_grid(table, steps, spacing)


def discrete_grid(schedule: NoiseSchedule, steps: int, spacing: str | None = None) -> Grid:
    """Levels of a discrete schedule, spaced as told; ``None`` is trailing.

    Raises :class:`RecipeError` for an unknown spacing, :class:`ValueError` for a number of steps that it doesn't have.
    """
    _only(spacing, {"leading", "linspace", "trailing", "karras", "exponential"}, "ddpm")
    if spacing in ("karras", "exponential"):
        ratios = exponential_ratios if spacing == "exponential" else karras_ratios
        return Grid.from_ratios(ratios(steps, *ratio_range(schedule)))
    kind: Spacing = "leading" if spacing == "leading" else "linspace" if spacing == "linspace" else "trailing"
    return Grid.from_timesteps(schedule, spaced_timesteps(len(schedule), steps, kind))


def _only(spacing: str | None, known: set[str], objective: str) -> None:
    if spacing is not None and spacing not in known:
        raise RecipeError(f"the spacing {spacing!r} is none of the {objective} objective's: {', '.join(sorted(known))}")
