"""What a training step draws at random: the same for each sample, however the batch is split.

A step's batch may be cut into micro-batches and spread over processes. Whatever a sample needs is drawn from its own
stream, seeded by (seed, step, row), and what the batch draws as one (its noise levels, stratified) every process draws
alike and takes its rows of. So two processes see the very numbers that one would, and a resumed run those of an
unbroken one.
"""

import hashlib
from collections.abc import Callable
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from denoscope.sampling import NoiseSource


class Draws:
    """Randomness of the rows ``rows`` of a batch of ``total`` samples, at one step of a run seeded by ``seed``.

    >>> whole, part = Draws.of(4, seed=7), Draws(7, 0, range(2, 4), 4)
    >>> like = torch.zeros(4, 3)
    >>> bool(torch.equal(whole.noise(like)[2:], part.noise(like[2:])))
    True
    """

    def __init__(self, seed: int, step: int, rows: range, total: int) -> None:
        self.seed, self.step, self.rows, self.total = seed, step, rows, total
        self.project: Callable[[Tensor], Tensor] | None = None
        """Applied to noise: molecules have no noise of their centre, nor of atoms that aren't there."""

    @classmethod
    def of(cls, total: int, seed: int = 0, step: int = 0) -> "Draws":
        """For a whole batch."""
        return cls(seed, step, range(total), total)

    @cached_property
    def shared(self) -> torch.Generator:
        """The stream of the batch as a whole. Whoever uses it must draw the same in every process."""
        return torch.Generator().manual_seed(step_seed(self.seed, self.step))

    @cached_property
    def _source(self) -> NoiseSource:
        return NoiseSource([step_seed(self.seed, self.step, row) for row in self.rows])

    def noise(self, like: Tensor) -> Tensor:
        """Standard normal noise of the shape ``(rows, …)``, dtype and device of ``like``.

        Raises :class:`ValueError` when ``like`` has another number of rows.
        """
        drawn = self._source.draw(like)
        return drawn if self.project is None else self.project(drawn)

    def uniform(self) -> Tensor:
        """One number in [0, 1) a row, float64, independent of the others."""
        streams = self._source.generators
        return torch.stack([torch.rand((), generator=stream, dtype=torch.float64) for stream in streams])

    def stratified(self) -> Tensor:
        """One number in [0, 1) a row, float64; the whole batch has one in each of ``total`` equal parts.

        Noise levels are drawn so (Kingma et al. 2021, appendix I.1): each batch covers all of them.

        >>> sorted((Draws.of(4).stratified() * 4).long().tolist())
        [0, 1, 2, 3]
        """
        offsets = torch.rand(self.total, generator=self.shared, dtype=torch.float64)
        places = (torch.randperm(self.total, generator=self.shared) + offsets) / self.total
        return places[self.rows.start : self.rows.stop]

    def indices(self, examples: int) -> Tensor:
        """Which of ``examples`` the rows are: each epoch is a permutation of all, by (seed, epoch): ``(rows,)`` int64.

        >>> sorted(torch.cat([Draws.of(2, step=step).indices(4) for step in (0, 1)]).tolist())
        [0, 1, 2, 3]
        """
        first = self.step * self.total
        places = [first + row for row in self.rows]
        orders = {place // examples: _order(self.seed, place // examples, examples) for place in places}
        return torch.stack([orders[place // examples][place % examples] for place in places])


def step_seed(seed: int, step: int, row: int | None = None) -> int:
    """A seed for one step, or for one row of its batch, unrelated to those of its neighbours."""
    name = f"{seed}/{step}" if row is None else f"{seed}/{step}/{row}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


@lru_cache(maxsize=4)  # a batch touches an epoch and the next; a step looks them up for every micro-batch
def _order(seed: int, epoch: int, examples: int) -> Tensor:
    digest = hashlib.blake2b(f"{seed}/epoch {epoch}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.randperm(examples, generator=generator)
