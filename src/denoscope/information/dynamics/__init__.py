"""From log beliefs to curves, decision times and what they mean."""

from denoscope.information.dynamics.curves import curves, isotonic, rate
from denoscope.information.dynamics.measures import information
from denoscope.information.dynamics.times import times

__all__ = ["curves", "information", "isotonic", "rate", "times"]
