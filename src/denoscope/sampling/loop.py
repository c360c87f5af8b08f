"""The one sampling loop: from noise to a sample along a grid of levels, whatever the solver.

A denoiser is any function ``denoise(z, level) → x0``, a solver any function ``solver(step, z) → z`` that takes one
step. What a solver may want to know about the past stands in :attr:`Step.records`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from denoscope.sampling.levels import Grid, Level
from denoscope.sampling.noise import NoiseSource

Denoise = Callable[[Tensor, Level], Tensor]
"""``denoise(z, level)``: the predicted clean sample x0, of the shape of ``z`` ``(B, …)``."""

HISTORY: Final = 4
"""How many evaluations are remembered: as many as the longest multistep solver looks at."""


class SamplingError(RuntimeError):
    """Sampling can't go on; the message says at which step and why."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """What the denoiser said at a level: ``x0`` for the noisy sample ``z``, both ``(B, …)``."""

    level: Level
    z: Tensor
    x0: Tensor

    @property
    def epsilon(self) -> Tensor:
        """The predicted noise (z − α·x0)/σ. It follows a clipped x0, which keeps solvers consistent."""
        return (self.z - self.level.alpha * self.x0) / self.level.sigma


@dataclass(slots=True, eq=False)
class Step:
    """One step of a sampler: from level ``here`` to level ``there``.

    ``records`` holds the evaluations made at the grid's levels before, the latest last, at most :data:`HISTORY`.
    """

    index: int
    grid: Grid
    denoise: Denoise
    records: deque[Record]
    source: NoiseSource | None = None

    @property
    def here(self) -> Level:
        """The level that the step starts from."""
        return self.grid[self.index]

    @property
    def there(self) -> Level:
        """The level that the step ends at."""
        return self.grid[self.index + 1]

    def evaluate(self, z: Tensor, level: Level) -> Record:
        """Ask the denoiser, without remembering the answer.

        Raises :class:`SamplingError` when the answer is not finite: a NaN would survive every clamp and end as a black
        picture.
        """
        x0 = self.denoise(z, level)
        if x0.shape != z.shape:
            raise SamplingError(f"the denoiser gave shape {tuple(x0.shape)} for samples of shape {tuple(z.shape)}")
        if not bool(torch.isfinite(x0).all()):
            raise SamplingError(
                f"the denoiser's output is not finite at step {self.index} of {len(self.grid)} "
                f"(logsnr {level.logsnr:.2f}, dtype {z.dtype})"
            )
        return Record(level, z, x0)

    def observe(self, z: Tensor) -> Record:
        """Ask the denoiser at the step's own level and remember the answer."""
        record = self.evaluate(z, self.here)
        self.records.append(record)
        return record

    def noise(self, like: Tensor) -> Tensor:
        """Fresh standard normal noise; each sample's from its own stream.

        Raises :class:`SamplingError` when the sampler was given no source of noise.
        """
        if self.source is None:
            raise SamplingError("this solver draws noise: give sample() the samples' seeds")
        return self.source.draw(like)


Solver = Callable[[Step, Tensor], Tensor]
Callback = Callable[[Step, Tensor], None]
"""Called after each step with the step and the new sample; ``step.records[-1]`` is what the denoiser said."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A part of the sample that is given: inpainting by replacement (Song et al. 2021, appendix I.2).

    ``mask`` is 1 where ``clean`` is to be kept; both broadcast to ``(B, …)``.
    """

    clean: Tensor
    mask: Tensor

    def put_in(self, z: Tensor, level: Level, step: Step) -> Tensor:
        """The sample with the known part at this level's noise; exact where there is none."""
        there = level.alpha * self.clean
        if level.sigma > 0:
            there = there + level.sigma * step.noise(z)
        return torch.where(self.mask > 0.5, there.to(z.dtype), z)


@torch.no_grad()
def sample(
    denoise: Denoise,
    z: Tensor,
    grid: Grid,
    solver: Solver,
    *,
    seeds: Sequence[int] | NoiseSource | None = None,
    known: Known | None = None,
    callback: Callback | None = None,
) -> Tensor:
    """Take ``z`` ``(B, …)`` from the grid's first level to its last one; returns shape and dtype of ``z``.

    ``seeds`` gives each sample its own stream of noise, so that a sample never depends on the batch it is in; solvers
    that draw none need none. ``known`` keeps a part of the sample. Memory: the last four evaluations.

    Raises :class:`SamplingError` when a denoiser's output is not finite or of the wrong shape, when noise is needed and
    no seeds are given, and :class:`ValueError` when seeds and samples differ in number.

    >>> from denoscope.sampling.solvers import ddim
    >>> grid = Grid.from_ratios([80.0, 1.0, 0.0], "ve")
    >>> point_mass = lambda z, level: torch.full_like(z, 3.0)  # the exact denoiser of a single clean sample
    >>> sample(point_mass, 80 * torch.randn(2, 1), grid, ddim())
    tensor([[3.],
            [3.]])
    """
    source = NoiseSource(seeds) if isinstance(seeds, Sequence) else seeds
    if source is not None and len(source) != len(z):
        raise ValueError(f"{len(source)} seeds for {len(z)} samples")
    records: deque[Record] = deque(maxlen=HISTORY)
    for index in range(len(grid)):
        step = Step(index, grid, denoise, records, source)
        if known is not None and index == 0:
            z = known.put_in(z, step.here, step)
        z = solver(step, z)
        if known is not None:
            z = known.put_in(z, step.there, step)
        if callback is not None:
            callback(step, z)
    return z
