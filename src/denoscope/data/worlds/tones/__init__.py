"""The world of tones: short sounds of eight kinds, and a checker that reads the kind off any wave."""

from denoscope.data.worlds.tones.checker import read_kind
from denoscope.data.worlds.tones.tones import KINDS, SAMPLE_RATE, SAMPLES, tone, tones

__all__ = ["KINDS", "SAMPLES", "SAMPLE_RATE", "read_kind", "tone", "tones"]
