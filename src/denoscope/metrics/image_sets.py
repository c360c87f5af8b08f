"""Sets of pictures to measure: folders, ZIP and TAR archives, arrays; read one by one, whatever is in them."""

import os
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from denoscope.data.errors import DataError
from denoscope.data.pictures.folder import SUFFIXES, plain

Pixels = NDArray[np.uint8]
MOST_PIXELS: Final = 100_000_000
MOST_BYTES: Final = 1 << 29
"""A file larger than this, or one that unpacks to more pixels, is not read."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """Pictures by number. ``names`` are those in the folder or archive; ``fetch(i)`` gives the bytes of a file.

    A set from an array gives pixels ``(H, W, 3)`` uint8 at once. ``fetch`` may be called from several threads.
    """

    origin: str
    names: tuple[str, ...]
    fetch: Callable[[int], bytes | Pixels]

    def __len__(self) -> int:
        """How many files there are, readable or not."""
        return len(self.names)


class Decoded(NamedTuple):
    """A picture ``(H, W, 3)`` uint8, or ``None`` and the reason; ``digest`` is of the bytes, if there are any."""

    number: int
    digest: str
    pixels: Pixels | None
    problem: str = ""


@contextmanager
def open_images(path: Path) -> Iterator[ImageSet]:
    """The pictures of a folder (with its subfolders), a ``.zip`` or ``.tar``, or an ``.npz`` or ``.npy`` of uint8.

    In the order of their names. Files of other kinds, hidden files and what is no regular file are not seen; links to
    folders aren't followed. Suffixes count in any case. An array is ``(N, H, W, 3)``, or grey without the last axis.

    Raises :class:`~denoscope.data.errors.DataError` in one sentence for what is none of these, or holds no pictures.
    """
    if path.is_dir():
        yield _checked(path, _folder(path))
    elif not path.is_file():
        raise DataError(f"there is no folder or file {str(path)!r}")
    elif path.suffix.lower() in {".npz", ".npy"}:
        yield _checked(path, _array(path))
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield _checked(path, _zip(path, archive))
    elif tarfile.is_tarfile(path):
        with tarfile.open(path) as tape:
            yield _checked(path, _tar(path, tape))
    else:
        raise DataError(f"{str(path)!r} is no folder, ZIP, TAR or NPZ file")


def decoded(
    images: ImageSet,
    numbers: Sequence[int],
    *,
    background: tuple[int, int, int] = (255, 255, 255),
    known: Callable[[str], bool] | None = None,
    workers: int = 4,
) -> Iterator[Decoded]:
    """Read and decode the pictures of these numbers, in their order, by several threads, few of them ahead.

    Any mode becomes RGB: palettes, grey, 16 bits, CMYK; what is transparent shows ``background``; EXIF says which way
    is up. A file that can't be decoded, or unpacks to more than :data:`MOST_PIXELS`, has its reason for ``problem``. A
    file for whose digest ``known`` says yes is not decoded: its pixels are ``None`` without a problem.
    """

    def one(number: int) -> Decoded:
        try:
            held = images.fetch(number)
        except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, tarfile.TarError) as error:
            return Decoded(number, "", None, _reason(error))
        if isinstance(held, np.ndarray):
            digest = sha256(repr(held.shape).encode() + held.tobytes()).hexdigest()
            return Decoded(number, digest, None if known and known(digest) else held)
        digest = sha256(held).hexdigest()
        if known and known(digest):
            return Decoded(number, digest, None)
        try:
            return Decoded(number, digest, decode(held, background))
        except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError) as error:
            return Decoded(number, digest, None, _reason(error))

    with ThreadPoolExecutor(workers) as pool:
        asked = iter(numbers)
        waiting = [pool.submit(one, number) for number in islice(asked, 4 * workers)]
        while waiting:
            found = waiting.pop(0).result()
            waiting += [pool.submit(one, number) for number in islice(asked, 1)]
            yield found


def decode(data: bytes, background: tuple[int, int, int] = (255, 255, 255)) -> Pixels:
    """The pixels ``(H, W, 3)`` uint8 of a file's bytes; see :func:`decoded`.

    Raises what Pillow raises, and ``ValueError`` for an empty file or more than :data:`MOST_PIXELS`.
    """
    if not data:
        raise ValueError("the file is empty")
    with Image.open(BytesIO(data)) as opened:
        width, height = opened.size
        if width * height > MOST_PIXELS:
            raise ValueError(f"it unpacks to {width} × {height} pixels, more than {MOST_PIXELS:,}")
        return np.asarray(plain(opened, 3, background), np.uint8)


def _checked(path: Path, images: ImageSet) -> ImageSet:
    if not images.names:
        raise DataError(f"{str(path)!r} holds no pictures ({', '.join(sorted(SUFFIXES))})")
    return images


def _reason(error: BaseException) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "it is no picture that can be read" if text.startswith("cannot identify image") else text


def _folder(path: Path) -> ImageSet:
    found = []
    for folder, inside, files in os.walk(path, followlinks=False):
        inside[:] = [name for name in inside if not name.startswith(".")]
        for name in files:
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                found.append(Path(folder, name).relative_to(path))
    names = sorted(found, key=lambda inside: inside.as_posix())

    def fetch(number: int) -> bytes:
        file = path / names[number]
        told = file.stat()
        if not stat.S_ISREG(told.st_mode):  # a pipe would wait for a writer without end
            raise OSError("it is no regular file")
        if told.st_size > MOST_BYTES:
            raise OSError(f"it has {told.st_size:,} bytes, more than {MOST_BYTES:,}")
        return file.read_bytes()

    return ImageSet(str(path), tuple(name.as_posix() for name in names), fetch)


def _zip(path: Path, archive: zipfile.ZipFile) -> ImageSet:
    members = sorted((item for item in archive.infolist() if _is_picture(item.filename)), key=lambda m: m.filename)

    def fetch(number: int) -> bytes:
        if members[number].file_size > MOST_BYTES:
            raise OSError(f"it unpacks to {members[number].file_size:,} bytes, more than {MOST_BYTES:,}")
        return archive.read(members[number])

    return ImageSet(str(path), tuple(member.filename for member in members), fetch)


def _tar(path: Path, tape: tarfile.TarFile) -> ImageSet:
    members = sorted((item for item in tape if item.isfile() and _is_picture(item.name)), key=lambda m: m.name)
    lock = threading.Lock()

    def fetch(number: int) -> bytes:
        if members[number].size > MOST_BYTES:
            raise OSError(f"it has {members[number].size:,} bytes, more than {MOST_BYTES:,}")
        with lock:
            held = tape.extractfile(members[number])
            assert held is not None
            return held.read()

    return ImageSet(str(path), tuple(member.name for member in members), fetch)


def _is_picture(name: str) -> bool:
    inside = Path(name)
    return inside.suffix.lower() in SUFFIXES and not any(part.startswith((".", "__MACOSX")) for part in inside.parts)


def _array(path: Path) -> ImageSet:
    try:
        held = np.load(path, allow_pickle=False)
        if not isinstance(held, np.ndarray):
            names = held.files
            if not names:
                raise DataError(f"{str(path)!r} holds no array")
            with held:
                held = held["arr_0" if "arr_0" in names else names[0]]
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{str(path)!r} can't be read as an array ({_reason(error)})") from error
    if held.ndim == 3:
        held = held[..., None]
    if held.ndim != 4 or held.shape[3] not in (1, 3) or held.dtype != np.uint8:
        raise DataError(f"{str(path)!r} holds {held.shape} {held.dtype}, and (N, H, W, 3) uint8 is needed")
    pixels: Pixels = held if held.shape[3] == 3 else np.repeat(held, 3, 3)
    width = len(str(len(pixels)))
    return ImageSet(str(path), tuple(f"{number:0{width}d}" for number in range(len(pixels))), lambda i: pixels[i])
