"""The noise of each step, asked of the scheduler once a schedule."""

from contextlib import suppress
from typing import cast

import torch
from torch import Tensor

from denoscope.schedules import NoiseLevels, logsnr_of


class LevelReader:
    """Noise levels by timestep; those of a scheduler's whole list are computed at its first step."""

    def __init__(self, scheduler: object) -> None:
        self._scheduler = scheduler
        self._list: object = None
        self._known: dict[float, int] = {}
        self._levels: NoiseLevels | None = None

    def at(self, timestep: object) -> tuple[float, NoiseLevels]:
        """A step's timestep and its level, tensors ``(1,)``.

        Raises ``ValueError`` where :func:`~denoscope.schedules.logsnr_of` does.
        """
        asked = timestep if isinstance(timestep, Tensor) else torch.as_tensor(timestep)
        number = float(asked if asked.dim() == 0 else asked.reshape(-1)[0])
        self._learn()
        place = self._known.get(number)
        if place is None or self._levels is None:  # not of the list: some pipelines make steps of their own
            return number, logsnr_of(self._scheduler, asked.reshape(-1)[:1])
        one = slice(place, place + 1)
        return number, NoiseLevels(self._levels.sigma[one], self._levels.logsnr[one])

    def _learn(self) -> None:
        timesteps = getattr(self._scheduler, "timesteps", None)
        if timesteps is self._list:
            return
        self._list, self._known, self._levels = timesteps, {}, None
        if not isinstance(timesteps, Tensor):
            return
        # A timestep that stands there twice means its first place, as when it is asked for alone.
        numbers = cast("list[float]", timesteps.tolist())
        known = {float(number): place for place, number in reversed(list(enumerate(numbers)))}
        # Where some of the list have no level, a step that is made with one of them says so.
        with suppress(ValueError):
            self._levels, self._known = logsnr_of(self._scheduler, timesteps), known
