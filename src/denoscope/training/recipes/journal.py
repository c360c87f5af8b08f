"""What a run measures, line by line in ``metrics.jsonl``, and to a tracker where one is asked for."""

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from accelerate import Accelerator

from denoscope.training.recipes.config import Recipe
from denoscope.training.trainer import StepResult

FILE = "metrics.jsonl"
EVERY = 20
"""Steps between two lines of training loss; each line is the mean over them."""


class Journal:
    """Appends to ``metrics.jsonl``; a resumed run first drops the lines of steps that it takes again."""

    def __init__(self, out: Path, accelerator: Accelerator | None, recipe: Recipe) -> None:
        self.path = out / FILE
        self.accelerator = accelerator
        self.recipe = recipe
        self.sum, self.count, self.started = 0.0, 0, time.perf_counter()
        self.begun = False

    def __enter__(self) -> Self:
        """Start the tracker, if there is one."""
        if self.accelerator is not None:
            self.accelerator.init_trackers("denoscope")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the tracker write what it has."""
        if self.accelerator is not None:
            self.accelerator.end_training()

    def step(self, done: StepResult) -> None:
        """Note a step's loss."""
        if not self.begun:
            self._rewind(done.step)
            self.begun = True
        self.sum, self.count = self.sum + done.loss, self.count + 1
        if (done.step + 1) % EVERY == 0 or done.step + 1 == self.recipe.trainer.max_steps:
            seconds = time.perf_counter() - self.started
            self._write(
                done.step + 1,
                {
                    "loss": self.sum / self.count,
                    "gradient_norm": done.gradient_norm,
                    "learning_rate": done.learning_rate,
                    "samples_per_second": self.count * self.recipe.trainer.batch_size / seconds,
                },
            )
            self.sum, self.count, self.started = 0.0, 0, time.perf_counter()

    def levels(self, step: int, losses: list[float]) -> None:
        """Note the validation loss of each part of the noise levels."""
        values = {f"validation_loss_{index}": loss for index, loss in enumerate(losses)}
        self._write(step, values | {"validation_loss": sum(losses) / len(losses)})

    def _write(self, step: int, values: dict[str, float]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step} | values) + "\n")
        if self.accelerator is not None:
            self.accelerator.log(values, step=step)

    def _rewind(self, first: int) -> None:
        if not self.path.is_file():
            return
        kept = []
        for line in self.path.read_text("utf-8").splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue  # the line that a kill cut off
            if int(told["step"]) <= first:
                kept.append(line + "\n")
        self.path.write_text("".join(kept), "utf-8")
