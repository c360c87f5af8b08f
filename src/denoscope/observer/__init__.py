"""The observer: watches one pipeline call and streams what it sees into labelled arrays."""

from denoscope.observer.errors import ObserveError
from denoscope.observer.observer import Observer
from denoscope.observer.tracing import Generation, Traced, plan_generation, trace_generation
from denoscope.observer.watching import observe
from denoscope.observer.words import select_words

__all__ = [
    "Generation",
    "ObserveError",
    "Observer",
    "Traced",
    "observe",
    "plan_generation",
    "select_words",
    "trace_generation",
]
