"""Which samples a probe may learn from: those that share neither context nor seed with the ones it is asked about."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from denoscope.information.errors import InformationError

GROUPS = 4
"""Groups of contexts, and of seeds: with four of each a fold learns from 9/16 of the samples."""


@dataclass(frozen=True, slots=True)
class Folds:
    """Blocks of samples by group of contexts × group of seeds, each asked about once.

    ``blocks[b]`` are sample numbers; ``training[b]`` the blocks that share neither group with block b. With one context
    alone, seeds alone are held out.
    """

    blocks: tuple[NDArray[np.intp], ...]
    training: tuple[tuple[int, ...], ...]

    def halved(self) -> "Folds":
        """The same questions, with every second block to learn from."""
        return Folds(self.blocks, tuple(learnt[::2] for learnt in self.training))

    def learnt(self) -> float:
        """How many samples are learnt from, averaged over blocks."""
        return float(np.mean([sum(len(self.blocks[other]) for other in learnt) for learnt in self.training]))


def folds_of(context: NDArray[np.integer], seed: NDArray[np.integer], groups: int = GROUPS) -> Folds:
    """Group contexts and seeds, in the order of their numbers, into ``groups`` of each, or as many as there are.

    A picture's noise and wording are shared by all samples of its seed and context. A probe that has seen either could
    tell the word by recognising the picture, so both are held out at once, at the price of training on
    (1 − 1/g)² of the samples.

    Raises :class:`InformationError` when a block or its training set would be empty.

    >>> folds = folds_of(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    >>> [block.tolist() for block in folds.blocks], folds.training
    ([[0], [1], [2], [3]], ((3,), (2,), (1,), (0,)))
    """
    sides = []
    for values in (context, seed):
        number = np.unique(values, return_inverse=True)[1]
        sides.append(number % min(groups, int(number.max()) + 1))
    if max(int(side.max()) for side in sides) == 0:
        raise InformationError("there is one context and one seed, so nothing can be held out: draw more seeds")
    names = [(one, other) for one in range(int(sides[0].max()) + 1) for other in range(int(sides[1].max()) + 1)]
    lone = [int(side.max()) == 0 for side in sides]  # nothing to hold out on that side
    blocks = tuple(np.flatnonzero((sides[0] == one) & (sides[1] == other)) for one, other in names)
    training = tuple(
        tuple(
            number
            for number, (one, other) in enumerate(names)
            if (lone[0] or one != asked[0]) and (lone[1] or other != asked[1]) and len(blocks[number])
        )
        for asked in names
    )
    for block, learnt in zip(blocks, training, strict=True):
        if len(block) and not learnt:
            raise InformationError(
                "contexts and seeds don't cross, so nothing can be held out: draw every seed everywhere"
            )
    return Folds(blocks, training)
