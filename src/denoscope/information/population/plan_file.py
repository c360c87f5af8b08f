"""An experiment's plan as a file, so that a run that was stopped goes on as it began."""

from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from denoscope.information.errors import InformationError
from denoscope.information.population.design import Population, plan_population
from denoscope.information.population.drawing import Settings
from denoscope.information.wording.template import Template

PLAN_NAME: Final = "plan.json"


class ExperimentPlan(BaseModel):
    """Everything that decides an experiment's numbers.

    ``model_sha256`` is the digest of the weights, ``None`` for a model without; ``estimator``, ``permutations`` and
    ``layers`` are as on the command line.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    model_sha256: str | None
    template: str
    slots: dict[str, tuple[str, ...]]
    contexts: dict[str, tuple[str, ...]]
    context_count: int
    seeds: int
    seed: int
    num_inference_steps: int
    guidance_scale: float
    negative_prompt: str
    layers: tuple[str, ...]
    grid: int
    batch: int
    estimator: str
    permutations: int

    def population(self) -> Population:
        """The prompts. Raises :class:`InformationError` when the plan holds none."""
        template = Template(self.template, self.slots, self.contexts)
        return plan_population(template, contexts=self.context_count, seeds=self.seeds, seed=self.seed)

    def settings(self) -> Settings:
        """How its pictures are drawn."""
        return Settings(
            self.num_inference_steps, self.guidance_scale, self.negative_prompt, self.layers, self.grid, self.batch
        )

    def write(self, folder: Path) -> None:
        """Write ``plan.json`` into the folder, all or nothing."""
        beside = folder / f".{PLAN_NAME}.partial"
        beside.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8", newline="\n")
        beside.replace(folder / PLAN_NAME)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder's plan. Raises :class:`InformationError` when there is none, or it is damaged."""
        path = folder / PLAN_NAME
        try:
            return cls.model_validate_json(path.read_text("utf-8"))
        except FileNotFoundError:
            raise InformationError(f"{folder} is no experiment: it has no {PLAN_NAME}") from None
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            raise InformationError(f"{path} can't be read as a plan; it may be damaged") from error
