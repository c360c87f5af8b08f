"""Sets of pictures that packages ship."""

import gzip
import math
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from denoscope.data.errors import DataError
from denoscope.data.pictures.pictures import PictureSet

FASHION_FOLDER: Final = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package ``dataset-fashion-mnist`` puts its files."""

FASHION_CLASSES: Final = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_IDX_UINT8: Final = 0x08


def fashion_mnist(part: Literal["train", "test"] = "train", folder: Path = FASHION_FOLDER) -> PictureSet:
    """Fashion-MNIST (Xiao et al. 2017): 60,000 or 10,000 grey pictures of 28×28 in ten classes.

    Reads the four ``.gz`` files of the original distribution in ``folder``.

    Raises :class:`DataError` naming the file that is missing or damaged, and where to get it.
    """
    prefix = "train" if part == "train" else "t10k"
    pictures = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")
    names = tuple(f"{part}/{index:05d}" for index in range(len(pictures)))
    return PictureSet(torch.from_numpy(pictures)[:, None], names, torch.from_numpy(labels).long(), FASHION_CLASSES)


def digits() -> PictureSet:
    """scikit-learn's digits: 1,797 grey pictures of 8×8 in ten classes.

    >>> tuple(digits().pictures.shape)
    (1797, 1, 8, 8)
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    pictures = torch.from_numpy(np.rint(found.images * (255 / 16)).astype(np.uint8))[:, None]
    names = tuple(f"digits/{index:04d}" for index in range(len(pictures)))
    classes = tuple(str(digit) for digit in range(10))
    return PictureSet(pictures, names, torch.from_numpy(found.target.astype(np.int64)), classes)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of a gzipped IDX file of bytes (LeCun's format): magic, number of axes, their lengths, data.

    Raises :class:`DataError` naming the file, when it is missing, no such file, or shorter than it says.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing: install Debian's package dataset-fashion-mnist, or give the folder of its files"
        ) from None
    except (OSError, EOFError) as error:
        raise DataError(f"{path} is damaged or no gzip file ({error})") from error
    if len(content) < 4 or content[:3] != bytes((0, 0, _IDX_UINT8)):
        raise DataError(f"{path} is no IDX file of bytes")
    axes = content[3]
    start = 4 + 4 * axes
    shape = tuple(int(length) for length in np.frombuffer(content[4:start], ">u4"))
    if len(shape) != axes or len(content) - start != math.prod(shape):
        raise DataError(f"{path} holds {len(content) - start} bytes where its header says {shape}")
    return np.frombuffer(content[start:], np.uint8).reshape(shape).copy()
