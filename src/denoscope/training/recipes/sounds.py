"""Sounds as a modality: log-mel spectrograms, which are pictures to a network."""

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from denoscope.data.sounds import LogMel, SoundSet, load_sounds, write_wave
from denoscope.data.worlds.tones import SAMPLE_RATE, read_kind, tones
from denoscope.training.recipes.config import SoundData
from denoscope.training.recipes.modality import Conditions, Examples, Modality, labelled, unlabelled
from denoscope.training.recipes.pictures import picture_grid


def open_sounds(data: SoundData) -> tuple[Examples, Modality, list[str]]:
    """The spectrograms of a recipe's sounds, float32 ``(N, 1, bands, frames)``; and what was skipped.

    Raises :class:`DataError` for a folder or file that can't be read.
    """
    scale = spectrograms_of(data)
    found = _read(data, scale)
    classes = found.classes if data.classes and found.labels is not None else ()
    conditions = {"class_labels": found.labels} if classes and found.labels is not None else {}
    spectrograms = torch.cat([scale.encode(part) for part in _parts(found.waves)])
    skipped = [f"{name}: {reason}" for name, reason in found.skipped]
    return Examples(spectrograms, conditions), sound_modality(data, tuple(spectrograms.shape[1:]), classes), skipped


def sound_modality(data: SoundData, shape: tuple[int, ...], classes: tuple[str, ...]) -> Modality:
    """How sounds are shown (low frequencies at the bottom), written as WAV, and judged (tones, by the checker)."""
    scale = spectrograms_of(data)

    def write(samples: Tensor, conditions: Conditions, folder: Path) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{index:05d}.wav" for index in range(len(samples))]
        for path, wave in zip(paths, _waves(scale, samples), strict=True):
            write_wave(path, wave, scale.sample_rate)
        return paths

    def judge(samples: Tensor, conditions: Conditions) -> dict[str, float]:
        labels = conditions.get("class_labels")
        if data.kind != "tones" or labels is None:
            return {}
        kinds = [read_kind(wave.numpy(), scale.sample_rate) for wave in _waves(scale, samples)]
        right = [kind == classes[int(label)] for kind, label in zip(kinds, labels, strict=True)]
        return {"label_read_back": sum(right) / len(right)}

    def picture(samples: Tensor, conditions: Conditions, columns: int | None) -> Image.Image:
        return picture_grid(samples.flip(2), columns)

    return Modality(
        shape=shape,
        classes=classes,
        conditions=labelled(classes),
        picture=picture,
        write=write,
        judge=judge,
        value_range=1.0,
        label_dropout=data.label_dropout,
        untold=unlabelled(classes),
    )


def spectrograms_of(data: SoundData) -> LogMel:
    """The scale of the recipe's spectrograms.

    Raises :class:`DataError` when its values don't fit together.
    """
    rate = SAMPLE_RATE if data.kind == "tones" else data.sample_rate
    return LogMel(rate, data.n_fft, data.hop_length, data.n_mels, data.f_min, min(data.f_max, rate / 2))


def _read(data: SoundData, scale: LogMel) -> SoundSet:
    if data.kind == "tones":
        return tones(data.examples, data.seed)
    assert data.folder is not None  # the recipe's own check
    return load_sounds(data.folder, scale.sample_rate, scale.samples(data.frames), bad_files=data.bad_files)


def _waves(scale: LogMel, samples: Tensor) -> Tensor:
    return torch.cat([scale.decode(part) for part in _parts(samples)])


def _parts(tensor: Tensor, size: int = 64) -> list[Tensor]:
    return [tensor[start : start + size] for start in range(0, len(tensor), size)]
