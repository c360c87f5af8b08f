"""The observer: watches one pipeline call and streams what it sees into labelled arrays; measures what was seen."""

from denoscope.observer.binding import Binding, Pair, binding, bindings, pairs_of, similarity
from denoscope.observer.debugging import LayerReport
from denoscope.observer.errors import MapError, ObserveError
from denoscope.observer.maps import effective_area, entropy, overlap, pointing, sharpening, word_maps
from denoscope.observer.observer import Observer
from denoscope.observer.raw import read_raw
from denoscope.observer.tracing import Generation, Traced, count_steps, plan_generation, trace_generation
from denoscope.observer.watching import observe
from denoscope.observer.words import select_words

__all__ = [
    "Binding",
    "Generation",
    "LayerReport",
    "MapError",
    "ObserveError",
    "Observer",
    "Pair",
    "Traced",
    "binding",
    "bindings",
    "count_steps",
    "effective_area",
    "entropy",
    "observe",
    "overlap",
    "pairs_of",
    "plan_generation",
    "pointing",
    "read_raw",
    "select_words",
    "sharpening",
    "similarity",
    "trace_generation",
    "word_maps",
]
