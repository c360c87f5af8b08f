"""Data of any modality, by a recipe's ``data`` group."""

from pathlib import Path

from denoscope.training.recipes.captions import CaptionEncoder
from denoscope.training.recipes.config import MoleculeData, PictureData, Recipe, SoundData
from denoscope.training.recipes.modality import Details, Examples, Modality
from denoscope.training.recipes.molecules import molecule_modality, open_molecules
from denoscope.training.recipes.pictures import caption_modality, open_pictures, picture_modality
from denoscope.training.recipes.sounds import open_sounds, sound_modality


def open_data(recipe: Recipe) -> tuple[Examples, Modality, list[str]]:
    """All examples, their modality, and what was skipped, a sentence each.

    Raises :class:`DataError` for data that can't be read.
    """
    match recipe.data:
        case PictureData():
            return open_pictures(recipe.data)
        case SoundData():
            return open_sounds(recipe.data)
        case MoleculeData():
            return open_molecules(recipe.data)


def modality_of(
    recipe: Recipe, shape: tuple[int, ...], classes: tuple[str, ...], details: Details, folder: Path
) -> Modality:
    """The modality of a trained model in ``folder``, without its data."""
    match recipe.data:
        case PictureData() if recipe.data.captions is not None:
            return caption_modality(recipe.data, shape, details, CaptionEncoder.load(folder))
        case PictureData():
            return picture_modality(recipe.data, shape, classes)
        case SoundData():
            return sound_modality(recipe.data, shape, classes)
        case MoleculeData():
            return molecule_modality(shape, details)
