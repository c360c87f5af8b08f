"""Pictures as a modality."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from denoscope.data.pictures import PictureSet, digits, fashion_mnist, from_model_range, load_folder
from denoscope.data.pictures.known import FASHION_FOLDER
from denoscope.training.draws import Draws
from denoscope.training.recipes.captions import STATES, CaptionEncoder
from denoscope.training.recipes.config import PictureData
from denoscope.training.recipes.modality import Conditions, Details, Examples, Modality, labelled, unlabelled

SHOWN_CAPTIONS: Final = 64
"""How many of the training captions are kept with a model, to draw samples of."""


def open_pictures(data: PictureData) -> tuple[Examples, Modality, list[str]]:
    """The pictures of a recipe, as uint8 ``(N, C, H, W)``; and what was skipped, a sentence each.

    Raises :class:`DataError` for a folder or file that can't be read.
    """
    found = _read(data)
    if found.captions is not None and data.text_encoder is not None:
        return _captioned(data, found, CaptionEncoder.load(data.text_encoder))
    classes = found.classes if data.classes and found.labels is not None else ()
    conditions = {"class_labels": found.labels} if classes and found.labels is not None else {}
    skipped = [f"{name}: {reason}" for name, reason in found.skipped]
    shape = tuple(found.pictures.shape[1:])
    return Examples(found.pictures, conditions), picture_modality(data, shape, classes), skipped


def picture_modality(data: PictureData, shape: tuple[int, ...], classes: tuple[str, ...]) -> Modality:
    """How pictures are shown and written; needs no data."""
    return Modality(
        shape=shape,
        classes=classes,
        conditions=labelled(classes),
        picture=lambda samples, _, columns: picture_grid(samples, columns),
        write=_write,
        judge=lambda samples, _: {},
        value_range=1.0,
        label_dropout=data.label_dropout,
        untold=unlabelled(classes),
        augment=_flip if data.flip else None,
    )


def caption_modality(data: PictureData, shape: tuple[int, ...], details: Details, encoder: CaptionEncoder) -> Modality:
    """Pictures told in words; samples that aren't told any get the training captions in ``details`` in turn."""
    captions = [str(caption) for caption in details["captions"]]

    def conditions(seeds: Sequence[int], labels: Tensor | None) -> Conditions:
        return encoder.tell([captions[index % len(captions)] for index in range(len(seeds))])

    return replace(
        picture_modality(data, shape, ()),
        conditions=conditions,
        untold=encoder.untold,
        tell=encoder.tell,
        context_width=encoder.width,
        save_parts=encoder.save,
        details=details,
    )


def _captioned(data: PictureData, found: PictureSet, encoder: CaptionEncoder) -> tuple[Examples, Modality, list[str]]:
    captions = found.captions or ()
    kinds = list(dict.fromkeys(captions))
    rows = {caption: row for row, caption in enumerate(kinds)}
    conditions = {STATES: torch.tensor([rows[caption] for caption in captions])}
    details: Details = {"captions": kinds[:SHOWN_CAPTIONS]}
    modality = caption_modality(data, tuple(found.pictures.shape[1:]), details, encoder)
    examples = Examples(found.pictures, conditions, {STATES: encoder.states(kinds)})
    return examples, modality, [f"{name}: {reason}" for name, reason in found.skipped]


def picture_grid(samples: Tensor, columns: int | None = None, gap: int = 2) -> Image.Image:
    """Pictures ``(n, C, H, W)`` in [−1, 1] side by side, in about a square, small ones enlarged by whole numbers.

    >>> picture_grid(torch.zeros(5, 1, 64, 64)).size
    (200, 134)
    """
    pixels = from_model_range(samples.cpu()).permute(0, 2, 3, 1).numpy()
    pixels = np.repeat(pixels, 3, axis=3) if pixels.shape[3] == 1 else pixels
    factor = max(1, 48 // max(pixels.shape[1:3]))
    pixels = pixels.repeat(factor, axis=1).repeat(factor, axis=2)
    n, height, width = pixels.shape[:3]
    columns = columns or math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), 255, np.uint8)
    for index, picture in enumerate(pixels):
        top, left = gap + index // columns * (height + gap), gap + index % columns * (width + gap)
        sheet[top : top + height, left : left + width] = picture
    return Image.fromarray(sheet)


def _write(samples: Tensor, conditions: Conditions, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for index, picture in enumerate(from_model_range(samples.cpu()).permute(0, 2, 3, 1).numpy()):
        paths.append(folder / f"{index:05d}.png")
        Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture).save(paths[-1])
    return paths


def _flip(clean: Tensor, draws: Draws) -> Tensor:
    mirrored = (draws.uniform() < 0.5).to(clean.device)
    return torch.where(mirrored[:, None, None, None], clean.flip(-1), clean)


def _read(data: PictureData) -> PictureSet:
    if data.kind == "digits":
        return digits()
    if data.kind == "fashion-mnist":
        return fashion_mnist("train", data.folder or FASHION_FOLDER)
    assert data.folder is not None  # the recipe's own check
    assert data.size is not None
    return load_folder(data.folder, data.size, data.channels, bad_files=data.bad_files, captions=data.captions)
