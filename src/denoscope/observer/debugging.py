"""What each watched layer gives out and how long it takes, told as it happens."""

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Tell = Callable[["LayerReport"], None]


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One run of a watched layer: its first output, and its own wall time without what the observer did meanwhile.

    >>> print(LayerReport(3, "mid_block", ("features",), (2, 64, 8, 8), "float32", 32768, 1.5))
    step 3  mid_block  features  (2, 64, 8, 8) float32  32768 bytes  1.500 ms
    """

    step: int
    layer: str
    reads: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    milliseconds: float

    def __str__(self) -> str:
        seen = f"{self.shape} {self.dtype}  {self.bytes} bytes"
        return f"step {self.step}  {self.layer}  {', '.join(self.reads)}  {seen}  {self.milliseconds:.3f} ms"


def print_report(report: LayerReport) -> None:
    """One line to the standard error stream."""
    sys.stderr.write(f"{report}\n")


class LayerTimer:
    """A stopwatch for layers, which stands still while the observer reads. Devices finish their work at each press."""

    def __init__(self, tell: Tell, device: torch.device, step: Callable[[], int]) -> None:
        self._tell, self._device, self._step = tell, device, step
        self._aside = 0.0
        self._started: dict[str, float] = {}

    def before(self, name: str, module: nn.Module, args: object, kwargs: object) -> None:
        """The layer begins."""
        self._started[name] = self._now()

    def after(
        self, name: str, reads: tuple[str, ...], module: nn.Module, args: object, kwargs: object, output: object
    ) -> None:
        """It has ended."""
        taken = self._now() - self._started.pop(name)
        parts = output if isinstance(output, tuple | list) else (output,)
        first = next((part for part in parts if isinstance(part, Tensor)), None)
        if first is None:
            return
        size, kind = first.numel() * first.element_size(), str(first.dtype).removeprefix("torch.")
        self._aside_of(
            lambda: self._tell(LayerReport(self._step(), name, reads, tuple(first.shape), kind, size, taken * 1e3))
        )

    def aside(self, hook: Callable[..., None]) -> Callable[..., None]:
        """The same hook, whose time is not the layer's."""

        @functools.wraps(hook)
        def timed(*args: object, **kwargs: object) -> None:
            self._aside_of(lambda: hook(*args, **kwargs))

        return timed

    def _aside_of(self, action: Callable[[], None]) -> None:
        start = self._now()
        try:
            action()
        finally:
            self._aside += self._now() - start

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter() - self._aside
