"""What a recipe says, group by group. Unknown keys and wrong values are refused by name."""

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class RecipeError(ValueError):
    """A recipe that can't be followed; the message names the key."""


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PictureData(_Group):
    """Pictures: Fashion-MNIST, digits, or a folder of one's own.

    ``classes`` conditions on the labels, dropped for one in ``1/label_dropout`` samples so that classifier-free
    guidance works. ``captions`` (CSV or JSON lines with file_name and text) condition on words instead, by the text
    encoder of a pipeline's folder (or of the embedded model, "shapes"), frozen. ``flip`` mirrors every other sample.
    ``held_out`` is the share that is validated on.
    """

    kind: Literal["fashion-mnist", "digits", "folder"]
    folder: Path | None = None
    size: Count | None = None
    channels: Literal[1, 3] = 3
    bad_files: Literal["skip", "fail"] = "skip"
    classes: bool = True
    label_dropout: Fraction = 0.1
    captions: Path | None = None
    text_encoder: str | None = None
    flip: bool = False
    held_out: Fraction = 0.05

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "folder" and (self.folder is None or self.size is None):
            raise ValueError("a folder of pictures needs data.folder and data.size")
        if (self.captions is None) != (self.text_encoder is None):
            raise ValueError("captions need both data.captions, a file, and data.text_encoder, a pipeline's folder")
        if self.captions is not None and self.kind != "folder":
            raise ValueError(f"captions go with a folder of pictures, not with {self.kind}")
        return self


class SoundData(_Group):
    """Sounds: ``examples`` of the world of tones, or a folder of one's own, as log-mel spectrograms.

    Sounds are ``(frames − 1)·hop_length`` samples long, at ``sample_rate`` (tones have their own).
    """

    kind: Literal["tones", "sounds"]
    folder: Path | None = None
    examples: Count = 8000
    sample_rate: Count = 16000
    frames: Count = 32
    n_fft: Count = 512
    hop_length: Count = 128
    n_mels: Count = 32
    f_min: Annotated[float, Field(ge=0)] = 60.0
    f_max: Positive = 3800.0
    bad_files: Literal["skip", "fail"] = "skip"
    classes: bool = True
    label_dropout: Fraction = 0.1
    held_out: Fraction = 0.05
    seed: int = 0

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "sounds" and self.folder is None:
            raise ValueError("sounds of one's own need data.folder")
        return self


class MoleculeData(_Group):
    """Molecules: those of the shipped list with at most ``heavy`` heavy atoms, or a SMILES file of one's own."""

    kind: Literal["molecules"]
    smiles: Path | None = None
    conformers: Count = 10
    heavy: Annotated[int, Field(ge=1, le=6)] = 4
    hydrogens: bool = False
    held_out: Fraction = 0.05
    seed: int = 0


class UNetGroup(_Group):
    """A U-Net; ``attention`` says, level by level, whether it has self-attention."""

    kind: Literal["unet"]
    channels: tuple[Count, ...]
    layers_per_block: Count = 1
    attention: tuple[bool, ...] = ()
    middle_attention: bool = True
    head_dim: Count = 16
    groups: Count = 8
    dropout: Fraction = 0.0


class DiTGroup(_Group):
    """A diffusion transformer."""

    kind: Literal["dit"]
    patch_size: Count = 2
    layers: Count = 6
    heads: Count = 4
    head_dim: Count = 32


class EGNNGroup(_Group):
    """An equivariant graph network."""

    kind: Literal["egnn"]
    width: Count = 64
    layers: Count = 4
    waves: Annotated[int, Field(ge=0)] = 3


class ScheduleGroup(_Group):
    """Noise levels of training; ``zero_snr`` stretches them to pure noise, ``shift`` moves the logsnr of the cosine."""

    name: Literal["linear", "scaled_linear", "cosine", "cosine_floored", "sigmoid", "laplace"] = "cosine"
    steps: Count = 1000
    zero_snr: bool = False
    shift: float = 0.0

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.zero_snr and self.steps < 2:
            raise ValueError("zero_snr needs at least two levels to stretch")
        if self.shift != 0 and self.name != "cosine":
            raise ValueError("schedule.shift moves the cosine schedule's logsnr; no other schedule has one")
        return self


class ObjectiveGroup(_Group):
    """What is minimised. ``min_snr_gamma``, ``p2_gamma`` or ``weighted_as_epsilon`` weights the levels of ``ddpm``."""

    name: Literal["ddpm", "learned_variance", "score", "edm", "flow"] = "ddpm"
    prediction_type: Literal["epsilon", "sample", "v_prediction"] = "epsilon"
    min_snr_gamma: Positive | None = None
    p2_gamma: Positive | None = None
    weighted_as_epsilon: bool = False
    sigma_data: Positive = 0.5
    shift: Positive = 1.0
    times: Literal["uniform", "logit_normal"] = "uniform"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        weights = [self.min_snr_gamma is not None, self.p2_gamma is not None, self.weighted_as_epsilon]
        if sum(weights) > 1:
            raise ValueError("min_snr_gamma, p2_gamma and weighted_as_epsilon are weights for one loss; give one")
        if self.name != "ddpm" and any(weights):
            raise ValueError(f"min_snr_gamma, p2_gamma, weighted_as_epsilon weight the ddpm objective, not {self.name}")
        return self


class OptimGroup(_Group):
    """AdamW, with a learning rate that rises over ``warmup`` steps and falls along half a cosine."""

    learning_rate: Positive = 1e-3
    warmup: Annotated[int, Field(ge=0)] = 200
    final_lr_fraction: Annotated[float, Field(ge=0, le=1)] = 0.02
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    betas: tuple[Fraction, Fraction] = (0.9, 0.99)
    clip: Positive = 1.0


class TrainerGroup(_Group):
    """How long, in what portions, what is kept and shown on the way."""

    max_steps: Count
    batch_size: Count = 64
    micro_batch: Count | None = None
    ema_decay: Fraction = 0.999
    sigma_rels: tuple[Annotated[float, Field(gt=0, lt=0.288)], ...] = ()
    snapshot_every: Count = 1000
    checkpoint_every: Count = 500
    validate_every: Count = 1000
    sample_every: Count = 2000
    samples: Count = 64
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    device: Literal["auto", "cpu"] = "auto"
    threads: Count = 2
    seed: int = 0
    log_with: Literal["none", "tensorboard", "wandb", "comet_ml", "aim", "mlflow", "clearml", "dvclive"] = "none"


class Recipe(_Group):
    """A whole recipe."""

    data: Annotated[PictureData | SoundData | MoleculeData, Field(discriminator="kind")]
    network: Annotated[UNetGroup | DiTGroup | EGNNGroup, Field(discriminator="kind")]
    schedule: ScheduleGroup
    objective: ObjectiveGroup
    optim: OptimGroup
    trainer: TrainerGroup

    @model_validator(mode="after")
    def _fits(self) -> Self:
        cloud, egnn = self.data.kind == "molecules", self.network.kind == "egnn"
        if cloud != egnn:
            raise ValueError(f"the network {self.network.kind} can't learn from {self.data.kind}")
        if cloud and self.objective.name in ("edm", "learned_variance"):
            raise ValueError(f"the network egnn can't learn by the {self.objective.name} objective")
        zero = self.schedule.zero_snr
        if zero and self.objective.name in ("ddpm", "learned_variance") and self.objective.prediction_type == "epsilon":
            raise ValueError(
                "epsilon can't be learnt at zero terminal SNR: it is the input there; "
                "set objective.prediction_type=v_prediction, or schedule.zero_snr=false"
            )
        return self


RESUMABLE: Final = {
    "trainer": {"max_steps", "checkpoint_every", "validate_every", "sample_every", "samples", "threads", "log_with"}
    | {"device", "micro_batch"}
}
"""What may change between the parts of one run; the rest would make it another training."""


def parse(tree: object) -> Recipe:
    """A recipe from a tree of mappings.

    Raises :class:`RecipeError` naming the first key that is wrong.
    """
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise RecipeError(_sentence(error)) from error


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    # A discriminated union puts the kind that it chose into the path.
    kinds = {"fashion-mnist", "digits", "folder", "tones", "sounds", "molecules", "unet", "dit", "egnn"}
    place = [str(part) for part in first["loc"]]
    key = ".".join(part for index, part in enumerate(place) if not (index == 1 and part in kinds))
    if first["type"] == "extra_forbidden":
        return f"the recipe has no key {key!r}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message


def differences(old: Recipe, new: Recipe) -> list[str]:
    """Keys that differ and would make another training: ``["network.channels", …]``."""
    before, after = (recipe.model_dump(mode="json") for recipe in (old, new))
    return [
        f"{group}.{key}"
        for group in after
        for key in sorted(before[group].keys() | after[group].keys())
        if before[group].get(key) != after[group].get(key) and key not in RESUMABLE.get(group, set())
    ]
