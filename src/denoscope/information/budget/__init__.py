"""What may be left out of a run, at what loss."""

from denoscope.information.budget.economies import Economy, Tally, economised
from denoscope.information.budget.pareto import (
    Judge,
    Setting,
    measure,
    on_front,
    psnr,
    spaced_by_information,
    usual_settings,
)

__all__ = [
    "Economy",
    "Judge",
    "Setting",
    "Tally",
    "economised",
    "measure",
    "on_front",
    "psnr",
    "spaced_by_information",
    "usual_settings",
]
