"""Sound files: any rate, any number of channels; bad files are told. By the package soundfile, an extra."""

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly
from torch import Tensor

from denoscope.data.errors import DataError
from denoscope.data.folders import classes_of, read_files
from denoscope.data.sounds.sounds import SoundSet

SUFFIXES: Final = frozenset({".wav", ".flac", ".ogg", ".aiff", ".aif", ".mp3"})


def load_sounds(
    folder: Path,
    sample_rate: int,
    samples: int,
    *,
    bad_files: Literal["skip", "fail"] = "skip",
    progress: Callable[[int, int], None] | None = None,
) -> SoundSet:
    """Read every sound under ``folder``, in the order of their names, as ``(N, samples)`` at ``sample_rate`` Hz.

    Channels are averaged, other rates resampled (polyphase filter), longer sounds cut at their end and shorter ones
    padded with silence. Subfolders are classes, if all sounds lie in subfolders. Files that can't be read, hold no
    sound, or values that are not finite, are skipped and told.

    Raises :class:`DataError` when there is no such folder, fewer than two sounds can be read, soundfile is missing, or,
    with ``bad_files="fail"``, at the first file that can't be used.
    """
    if sample_rate < 1 or samples < 1:
        raise DataError(f"the sample rate and the length must be positive, not {sample_rate} and {samples}")
    soundfile = _soundfile()
    found = read_files(
        folder,
        SUFFIXES,
        lambda path: _read(soundfile, path, sample_rate, samples),
        (OSError, ValueError, RuntimeError),  # soundfile's own errors are RuntimeErrors
        kind="sounds",
        bad_files=bad_files,
        progress=progress,
    )
    classes, labels = classes_of(found.paths)
    names = tuple(path.as_posix() for path in found.paths)
    waves = torch.from_numpy(np.stack(found.items))
    return SoundSet(waves, sample_rate, names, labels, classes, tuple(found.skipped))


def write_wave(path: Path, wave: Tensor, sample_rate: int) -> None:
    """Write ``(samples,)`` in [−1, 1] as 16-bit WAV; what is beyond is clipped.

    Raises :class:`DataError` when soundfile is missing or the wave is not finite.
    """
    if not bool(torch.isfinite(wave).all()):
        raise DataError(f"{path}: a wave that is not finite can't be written")
    _soundfile().write(str(path), wave.detach().cpu().clamp(-1, 1).numpy(), sample_rate, subtype="PCM_16")


def _read(soundfile: ModuleType, path: Path, sample_rate: int, samples: int) -> NDArray[np.float32]:
    found, rate = soundfile.read(str(path), dtype="float64", always_2d=True)
    wave = np.asarray(found, np.float64).mean(1)
    if len(wave) == 0:
        raise ValueError("it holds no sound")
    if not np.isfinite(wave).all():
        raise ValueError("it holds values that are not finite")
    if rate != sample_rate:
        common = math.gcd(int(rate), sample_rate)
        wave = resample_poly(wave, sample_rate // common, int(rate) // common)
    wave = wave[:samples]
    return np.pad(wave, (0, samples - len(wave))).clip(-1, 1).astype(np.float32)


def _soundfile() -> ModuleType:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package is there, the library libsndfile is not
        raise DataError(f"sounds need the package soundfile ({error}): pip install 'denoscope[audio]'") from error
    module: ModuleType = soundfile
    return module
