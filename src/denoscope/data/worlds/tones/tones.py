"""Sounds of half a second, by kind: pitch, phase, loudness and onset are random, the kind is not."""

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from denoscope.data.sounds import SoundSet

SAMPLE_RATE: Final = 8000
SAMPLES: Final = 3968
"""31 hops of 128: spectrograms of 32 frames."""

KINDS: Final = (
    "low tone",
    "middle tone",
    "high tone",
    "rising chirp",
    "falling chirp",
    "tremolo",
    "chord",
    "noise",
)

PITCHES: Final = {"low tone": (160.0, 320.0), "middle tone": (550.0, 950.0), "high tone": (1700.0, 2800.0)}
"""Ranges in Hz, far enough apart that no tone is two kinds."""


def tones(n: int, seed: int = 0) -> SoundSet:
    """``n`` sounds, the kinds in turn; sound i depends on (seed, i) alone.

    >>> found = tones(3)
    >>> found.waves.shape, [found.classes[label] for label in found.labels.tolist()]
    (torch.Size([3, 3968]), ['low tone', 'middle tone', 'high tone'])
    """
    kinds = [index % len(KINDS) for index in range(n)]
    waves = np.stack([tone(KINDS[kind], np.random.default_rng([seed, index])) for index, kind in enumerate(kinds)])
    names = tuple(f"tones/{seed}/{index:05d}" for index in range(n))
    return SoundSet(torch.from_numpy(waves), SAMPLE_RATE, names, torch.tensor(kinds), KINDS)


def tone(kind: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """One sound ``(SAMPLES,)``, peak at most .9, with silence before and after."""
    length = int(rng.uniform(0.36, 0.44) * SAMPLE_RATE)
    onset = int(rng.integers(0, SAMPLES - length))
    t = np.arange(length) / SAMPLE_RATE
    duration = length / SAMPLE_RATE
    phase = rng.uniform(0, 2 * math.pi)
    match kind:
        case "rising chirp" | "falling chirp":
            start = _between(rng, 250, 700)
            octaves = rng.uniform(1.2, 1.8)
            # ∫ f·2^(octaves·t/duration) dt
            turns = start * duration / (octaves * math.log(2)) * (2 ** (octaves * t / duration) - 1)
            sound = np.sin(2 * math.pi * turns + phase)
            sound = sound[::-1] if kind == "falling chirp" else sound
        case "tremolo":
            beat = rng.uniform(6.0, 9.0)
            swing = 0.5 - 0.5 * np.cos(2 * math.pi * beat * t + rng.uniform(0, 2 * math.pi))
            sound = swing * np.sin(2 * math.pi * _between(rng, 400, 1500) * t + phase)
        case "chord":
            root = _between(rng, 250, 600)
            upper = root * rng.uniform(2.3, 3.2)
            sound = 0.5 * (np.sin(2 * math.pi * root * t + phase) + np.sin(2 * math.pi * upper * t + 2 * phase))
        case "noise":
            sound = rng.normal(size=length) / 3
        case _:
            sound = np.sin(2 * math.pi * _between(rng, *PITCHES[kind]) * t + phase)
    fade = int(0.01 * SAMPLE_RATE)
    ramp = 0.5 - 0.5 * np.cos(math.pi * np.arange(fade) / fade)
    sound = sound.copy()
    sound[:fade] *= ramp
    sound[-fade:] *= ramp[::-1]
    wave = np.zeros(SAMPLES, np.float32)
    wave[onset : onset + length] = (sound * rng.uniform(0.4, 0.9)).clip(-0.9, 0.9)
    return wave


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    """A pitch, uniform in octaves."""
    return float(low * (high / low) ** rng.uniform())
