"""Sounds to train on: folders of one's own; spectrograms that networks learn, and the way back to a wave."""

from denoscope.data.sounds.files import load_sounds, write_wave
from denoscope.data.sounds.logmel import LogMel
from denoscope.data.sounds.sounds import SoundSet

__all__ = ["LogMel", "SoundSet", "load_sounds", "write_wave"]
