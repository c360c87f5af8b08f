"""Read the kind of a sound off its wave, by signal processing alone; and say when it can't be told."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import stft

from denoscope.data.worlds.tones.tones import PITCHES, SAMPLE_RATE

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Traits:
    """What is measured on a wave.

    ``flatness`` in [0, 1]: geometric over arithmetic mean of the power spectrum, 100–3,500 Hz; ``octaves`` the rise of
    the strongest frequency from the first to the last quarter; ``second`` how strong, at the same moment, the strongest
    frequency at least .9 octaves away is relative to the strongest one (median over time); ``swing`` how much of the
    loudness is a periodic change of 5–10 Hz; ``pitch`` in Hz.
    """

    flatness: float
    octaves: float
    second: float
    swing: float
    pitch: float


def read_kind(wave: NDArray[np.floating], sample_rate: int = SAMPLE_RATE) -> str | None:
    """The kind of a sound, one of ``KINDS``; None for silence and what is no kind.

    >>> t = np.arange(3968) / 8000
    >>> read_kind(0.5 * np.sin(2 * np.pi * 700 * t)), read_kind(np.zeros(3968))
    ('middle tone', None)
    """
    traits = measure(wave, sample_rate)
    if traits is None:
        return None
    if traits.flatness > 0.15:
        return "noise"
    if traits.swing > 0.5:
        return "tremolo"
    if traits.second > 0.25:
        return "chord"
    if abs(traits.octaves) > 0.6:
        return "rising chirp" if traits.octaves > 0 else "falling chirp"
    for kind, (low, high) in PITCHES.items():
        if low / 1.2 <= traits.pitch <= high * 1.2:
            return kind
    return None


def measure(wave: NDArray[np.floating], sample_rate: int = SAMPLE_RATE) -> Traits | None:
    """The traits of a wave ``(samples,)``; None for silence or values that are not finite."""
    x = np.asarray(wave, np.float64)
    if not np.isfinite(x).all() or float(np.abs(x).max(initial=0)) < 0.01:
        return None
    frequencies, _, spectrum = stft(x, sample_rate, nperseg=512, noverlap=448, nfft=2048)
    power = np.abs(spectrum[(frequencies >= 100) & (frequencies <= 3500)]) ** 2
    frequencies = frequencies[(frequencies >= 100) & (frequencies <= 3500)]
    loudness = power.sum(0)
    active = np.flatnonzero(loudness > 0.1 * np.quantile(loudness, 0.9))
    first, last = int(active[0]), int(active[-1]) + 1
    power, loudness = power[:, first:last], loudness[first:last]
    mean = power.mean(1)
    flatness = float(np.exp(np.log(mean + 1e-20).mean()) / (mean.mean() + 1e-20))
    ridge = frequencies[power.argmax(0)]
    quarter = max(1, len(ridge) // 4)
    ends = [_weighted_median(ridge[part], loudness[part]) for part in (slice(quarter), slice(-quarter, None))]
    pitch = _weighted_median(ridge, loudness)
    far = np.abs(np.log2(frequencies[:, None] / ridge)) > 0.9
    second = float(np.median(np.sqrt(np.where(far, power, 0).max(0) / power.max(0))))
    return Traits(flatness, float(np.log2(ends[1] / ends[0])), second, _swing(x, sample_rate), pitch)


def _weighted_median(values: Array, weights: Array) -> float:
    order = values.argsort()
    reached = weights[order].cumsum()
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def _swing(wave: Array, sample_rate: int) -> float:
    """Depth of the strongest periodic change of loudness at 5–10 Hz, relative to the mean loudness: 1 is full.

    Measured over the middle of the sound, by fitting sines to the envelope.
    """
    width = int(0.02 * sample_rate)
    envelope = np.sqrt(np.convolve(wave**2, np.ones(width) / width, "same"))
    loud = np.flatnonzero(envelope > 0.1 * envelope.max())
    start, end = int(loud[0]) + width, int(loud[-1]) - width
    if end - start < 0.2 * sample_rate:
        return 0.0
    envelope = envelope[start:end]
    t = np.arange(len(envelope)) / sample_rate
    strongest = 0.0
    for beat in np.arange(5.0, 10.01, 0.25):
        basis = np.stack([np.ones_like(t), np.cos(2 * np.pi * beat * t), np.sin(2 * np.pi * beat * t)], 1)
        fitted = np.linalg.lstsq(basis, envelope, rcond=None)[0]
        strongest = max(strongest, float(np.hypot(fitted[1], fitted[2]) / max(abs(fitted[0]), 1e-9)))
    return strongest
