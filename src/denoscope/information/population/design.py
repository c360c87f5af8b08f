"""Which prompts an experiment draws: the words of its slots, in several contexts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from denoscope.information.errors import InformationError
from denoscope.information.wording.template import Template

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arm:
    """The pictures that tell about one slot: ``prompts[c, k]`` is the prompt with substitute k in ``contexts[c]``.

    Within a context the prompts differ in this one word, so whatever tells them apart is information about it.
    """

    slot: str
    values: tuple[str, ...]
    contexts: IntArray
    prompts: IntArray


@dataclass(frozen=True, slots=True)
class Population:
    """All prompts of an experiment; each is drawn with the same ``seeds``.

    ``contexts`` are assignments of all fields. Every slot has an arm that starts from them and varies its own word
    alone; a context's own prompt is shared by the arms. Contexts that differ in a slot's word alone are one to it.
    """

    template: Template
    contexts: tuple[Mapping[str, str], ...]
    seeds: tuple[int, ...]
    prompts: tuple[str, ...]
    arms: tuple[Arm, ...]

    @property
    def samples(self) -> int:
        """How many pictures are drawn."""
        return len(self.prompts) * len(self.seeds)

    def warnings(self) -> list[str]:
        """Plain sentences on what this population is too small for."""
        found = [
            f"{arm.slot} has too few contexts ({len(arm.contexts)}): what is found may hold for these alone; take eight"
            for arm in self.arms
            if len(arm.contexts) < 8
        ]
        if len(self.seeds) < 16:
            found.append(f"there are {len(self.seeds)} seeds a prompt: intervals will be wide; take sixteen")
        return found


def plan_population(template: Template, *, contexts: int = 8, seeds: int = 16, seed: int = 0) -> Population:
    """Draw the contexts, and list the prompts of every slot.

    Each field takes its values equally often over the contexts, in an order of chance (a Latin hypercube), so that no
    context value goes with one of another field more than by chance. Fewer contexts are made where the fields allow no
    more. ``seed`` decides the contexts and is the first of the pictures' seeds.

    Raises :class:`InformationError` without slots, for fewer than one context or two seeds, and when two substitutes
    make the same prompt.

    >>> from denoscope.information.wording.template import Template
    >>> template = Template("a {size} {shape}", {"shape": ("circle", "square")}, {"size": ("small", "large")})
    >>> found = plan_population(template, contexts=2, seeds=2)
    >>> sorted(found.prompts)
    ['a large circle', 'a large square', 'a small circle', 'a small square']
    >>> found.arms[0].prompts.shape, found.samples
    ((2, 2), 8)
    """
    if not template.slots:
        raise InformationError("the template has no slot: name one with its substitutes, such as colour=red,green,blue")
    if contexts < 1:
        raise InformationError(f"{contexts} contexts are too few: give 1 or more")
    if seeds < 2:
        raise InformationError(f"{seeds} seeds are too few: fit and test need different ones, so give 2 or more")
    index: dict[str, int] = {}

    def number(values: Mapping[str, str]) -> int:
        return index.setdefault(template.prompt(**values), len(index))

    bases = _bases(template, contexts, np.random.default_rng(seed))
    arms = []
    for slot, values in template.slots.items():
        chosen = _contexts_of(slot, bases)[:contexts]
        rows = [[number({**bases[context], slot: value}) for value in values] for context in chosen]
        if any(len(set(row)) < len(values) for row in rows):
            raise InformationError(f"two substitutes of {slot} make the same prompt: give words that differ")
        arms.append(Arm(slot, tuple(values), np.array(chosen), np.array(rows, dtype=np.int64)))
    return Population(template, tuple(bases), tuple(range(seed, seed + seeds)), tuple(index), tuple(arms))


def _contexts_of(slot: str, bases: Sequence[Mapping[str, str]]) -> list[int]:
    """Those that differ in something else than the slot itself; else a context would be met in training and test."""
    found: dict[tuple[str, ...], int] = {}
    for number, base in enumerate(bases):
        found.setdefault(tuple(value for name, value in base.items() if name != slot), number)
    return list(found.values())


def _bases(template: Template, count: int, rng: np.random.Generator) -> list[dict[str, str]]:
    """Assignments of all fields, until every slot has its contexts, or as many as there are."""
    fields = {**template.slots, **template.contexts}
    possible = {slot: prod(len(values) for name, values in fields.items() if name != slot) for slot in template.slots}
    bases: list[dict[str, str]] = []
    # Balanced columns may meet in the same row twice; further rounds fill up what is missing then.
    while any(len(_contexts_of(slot, bases)) < min(count, possible[slot]) for slot in possible):
        columns = {name: _balanced(values, count, rng) for name, values in fields.items()}
        for row in zip(*columns.values(), strict=True):
            wanted = [slot for slot in possible if len(_contexts_of(slot, bases)) < count]
            base = dict(zip(fields, row, strict=True))
            if any(len(_contexts_of(slot, [*bases, base])) > len(_contexts_of(slot, bases)) for slot in wanted):
                bases.append(base)
    return bases


def _balanced(values: tuple[str, ...], count: int, rng: np.random.Generator) -> list[str]:
    repeated = [values[index] for _ in range(-(-count // len(values))) for index in rng.permutation(len(values))]
    return [repeated[index] for index in rng.permutation(count)]
