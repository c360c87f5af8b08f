"""Population experiments: the same seeds drawn with every substitute of a word, in several contexts."""

from denoscope.information.population.atlas import atlas
from denoscope.information.population.costs import Cost, estimate_cost
from denoscope.information.population.design import Arm, Population, plan_population
from denoscope.information.population.drawing import Settings, call_pipeline, draw_population, draw_prompt
from denoscope.information.population.experiment import measure_slot
from denoscope.information.population.parts import Part, Parts, is_written, part_path, write_part
from denoscope.information.population.plan_file import PLAN_NAME, ExperimentPlan
from denoscope.information.population.results import deciding_layer, summarise

__all__ = [
    "PLAN_NAME",
    "Arm",
    "Cost",
    "ExperimentPlan",
    "Part",
    "Parts",
    "Population",
    "Settings",
    "atlas",
    "call_pipeline",
    "deciding_layer",
    "draw_population",
    "draw_prompt",
    "estimate_cost",
    "is_written",
    "measure_slot",
    "part_path",
    "plan_population",
    "summarise",
    "write_part",
]
