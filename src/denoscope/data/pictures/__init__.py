"""Pictures to train on: folders of one's own, Fashion-MNIST, digits. In memory, as uint8."""

from denoscope.data.errors import DataError
from denoscope.data.pictures.folder import load_folder
from denoscope.data.pictures.known import digits, fashion_mnist
from denoscope.data.pictures.pictures import PictureSet, from_model_range, to_model_range

__all__ = ["DataError", "PictureSet", "digits", "fashion_mnist", "from_model_range", "load_folder", "to_model_range"]
