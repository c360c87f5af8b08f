"""From log beliefs to curves, decision times and what they mean."""

from denoscope.information.dynamics.anomalies import Anomaly, anomalies
from denoscope.information.dynamics.curves import curves, isotonic, rate
from denoscope.information.dynamics.layers import increments, transfer
from denoscope.information.dynamics.measures import information
from denoscope.information.dynamics.times import times

__all__ = ["Anomaly", "anomalies", "curves", "increments", "information", "isotonic", "rate", "times", "transfer"]
