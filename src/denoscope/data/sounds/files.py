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
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder")
    if sample_rate < 1 or samples < 1:
        raise DataError(f"the sample rate and the length must be positive, not {sample_rate} and {samples}")
    soundfile = _soundfile()
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and _shown(path, folder))
    waves: list[NDArray[np.float32]] = []
    kept: list[Path] = []
    skipped: list[tuple[str, str]] = []
    for number, path in enumerate(paths):
        try:
            waves.append(_read(soundfile, path, sample_rate, samples))
            kept.append(path.relative_to(folder))
        except (OSError, ValueError, RuntimeError) as error:  # soundfile's own errors are RuntimeErrors
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            if bad_files == "fail":
                raise DataError(f"{path} can't be read ({reason})") from error
            skipped.append((path.relative_to(folder).as_posix(), reason))
        if progress is not None:
            progress(number + 1, len(paths))
    if len(waves) < 2:
        why = f"; {len(skipped)} were skipped, the first one {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        raise DataError(f"{folder} holds {len(waves)} sounds that can be read, at least two are needed{why}")
    classes: tuple[str, ...] = ()
    labels: Tensor | None = None
    if all(len(path.parts) > 1 for path in kept):
        classes = tuple(sorted({path.parts[0] for path in kept}))
        labels = torch.tensor([classes.index(path.parts[0]) for path in kept])
    names = tuple(path.as_posix() for path in kept)
    return SoundSet(torch.from_numpy(np.stack(waves)), sample_rate, names, labels, classes, tuple(skipped))


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


def _shown(path: Path, folder: Path) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
