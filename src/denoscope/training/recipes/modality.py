"""What the trainer and the sampler need to know of pictures, sounds or molecules: data in, results out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from denoscope.data.pictures import to_model_range
from denoscope.training.draws import Draws
from denoscope.training.recipes.config import RecipeError

Conditions = dict[str, Tensor]
Details = Mapping[str, list[str] | list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """N examples in memory: ``data`` ``(N, …)``, and what each is conditioned on, by keyword, ``(N, …)``.

    Data of uint8 are pictures and are brought to [−1, 1] a batch at a time, so that they take a quarter of the memory.
    A condition that has a table is the number of its row there, so that what many examples share is kept once.

    Raises :class:`RecipeError` when the numbers of examples differ or the data are not finite.
    """

    data: Tensor
    conditions: Mapping[str, Tensor] = field(default_factory=dict)
    tables: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what can't be learnt from."""
        for name, values in self.conditions.items():
            if len(values) != len(self.data):
                raise RecipeError(f"{len(values)} {name} for {len(self.data)} examples")
        if self.data.is_floating_point() and not bool(torch.isfinite(self.data).all()):
            bad = int((~torch.isfinite(self.data.flatten(1)).all(1)).nonzero()[0])
            raise RecipeError(f"example {bad} of the data is not finite (NaN or infinite)")

    def __len__(self) -> int:
        """N."""
        return len(self.data)

    def batch(self, indices: Tensor) -> tuple[Tensor, Conditions]:
        """The examples with these numbers ``(B,)``: float32 ``(B, …)`` and conditions ``(B, …)``."""
        clean = self.data[indices]
        if clean.dtype == torch.uint8:
            clean = to_model_range(clean)
        told = {name: values[indices] for name, values in self.conditions.items()}
        return clean, told | {name: table[told[name]] for name, table in self.tables.items()}

    def split(self, held_out: float, seed: int = 0) -> tuple["Examples", "Examples"]:
        """Most, and a random share ``held_out`` of all: at least one, and none when the share is zero."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        count = min(len(self) - 1, max(1, round(held_out * len(self)))) if held_out > 0 else 0
        return self._pick(order[count:]), self._pick(order[:count])

    def _pick(self, indices: Tensor) -> "Examples":
        chosen = indices.sort().values
        told = {name: values[chosen] for name, values in self.conditions.items()}
        return Examples(self.data[chosen], told, self.tables)


@dataclass(frozen=True, slots=True, eq=False)
class Modality:
    """How samples of a kind come to be and what becomes of them.

    ``shape`` is one sample's, ``classes`` the names of its classes if it has any (the network then has one more, which
    stands for "not told"). ``conditions(seeds, labels)`` makes what the network is told of each sample,
    ``untold(conditions)`` what it is told of nothing, for guidance. ``tell(captions)`` makes conditions of words,
    ``context_width`` is the width of a word's state, and ``save_parts`` writes what that needs beside a trained model.
    ``picture`` shows samples ``(n, …)`` at a glance, in so many columns; ``write`` puts them into files and returns
    these; ``judge`` measures them. ``value_range`` is what clean values lie in, if it is known. ``augment`` changes a
    batch at random. ``noise`` makes noise fit (molecules have none of their centre). ``weight`` makes up, sample by
    sample, for what is padding in the mean of a loss. ``solver`` and ``steps`` are what samples are drawn with when
    nobody says. ``aligned`` samples can be compared number by number; molecules can't, which may be turned and in any
    order. ``details`` is kept with a trained model beside its recipe.
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    conditions: Callable[[Sequence[int], Tensor | None], Conditions]
    picture: Callable[[Tensor, Conditions, int | None], Image.Image]
    write: Callable[[Tensor, Conditions, Path], list[Path]]
    judge: Callable[[Tensor, Conditions], dict[str, float]]
    value_range: float | None = None
    label_dropout: float = 0.0
    untold: Callable[[Conditions], Conditions] | None = None
    tell: Callable[[Sequence[str]], Conditions] | None = None
    context_width: int | None = None
    save_parts: Callable[[Path], None] | None = None
    augment: Callable[[Tensor, Draws], Tensor] | None = None
    noise: Callable[[Tensor, Conditions], Tensor] | None = None
    weight: Callable[[Conditions], Tensor] | None = None
    aligned: bool = True
    solver: str = "ddim"
    steps: int = 50
    details: Details = field(default_factory=dict)

    def labels(self, n: int, wanted: Sequence[int] | None = None) -> Tensor | None:
        """Labels ``(n,)``: the wanted ones, or all classes in turn; None without classes.

        Raises :class:`RecipeError` when a label is no class.
        """
        if not self.classes:
            return None
        turn = list(wanted) if wanted else list(range(len(self.classes)))
        if not all(0 <= label < len(self.classes) for label in turn):
            raise RecipeError(f"labels must lie in 0 to {len(self.classes) - 1}")
        return torch.tensor([turn[index % len(turn)] for index in range(n)])


def labelled(classes: tuple[str, ...]) -> Callable[[Sequence[int], Tensor | None], Conditions]:
    """Conditions that are class labels alone, or nothing; no labels means the class that stands for "not told"."""

    def conditions(seeds: Sequence[int], labels: Tensor | None) -> Conditions:
        if not classes:
            return {}
        return {"class_labels": torch.full((len(seeds),), len(classes)) if labels is None else labels}

    return conditions


def unlabelled(classes: tuple[str, ...]) -> Callable[[Conditions], Conditions] | None:
    """Every label replaced by the class that stands for "not told"; None without classes."""
    if not classes:
        return None
    return lambda told: told | {"class_labels": torch.full_like(told["class_labels"], len(classes))}


def dropped(told: Conditions, modality: Modality, draws: Draws) -> Conditions:
    """Conditions replaced by those of nothing, each sample by its own dice (Ho & Salimans 2022)."""
    if modality.untold is None or modality.label_dropout == 0:
        return told
    hidden = draws.uniform() < modality.label_dropout
    nothing = modality.untold(told)
    return {
        name: torch.where(hidden.to(value.device).reshape(-1, *[1] * (value.dim() - 1)), nothing[name], value)
        for name, value in told.items()
    }
