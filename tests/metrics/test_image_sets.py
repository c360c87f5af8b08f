"""Sets of pictures of every kind of file, and what is wrong with files."""

import os
import struct
import tarfile
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from denoscope.data.errors import DataError
from denoscope.metrics.image_sets import MOST_PIXELS, ImageSet, decode, decoded, open_images

Pixels = NDArray[np.uint8]


def png(pixels: NDArray[np.integer], **told: object) -> bytes:
    held = BytesIO()
    Image.fromarray(pixels).save(held, "PNG", **told)
    return held.getvalue()


@pytest.fixture
def noise() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def read(images: ImageSet) -> dict[str, Pixels | str]:
    seen = decoded(images, range(len(images)))
    return {images.names[one.number]: one.problem if one.pixels is None else one.pixels for one in seen}


def test_folder_zip_tar_and_array_hold_the_same(noise: Pixels, tmp_path: Path) -> None:
    pictures = {f"{name}.png": np.roll(noise, shift, 0) for shift, name in enumerate(("a", "b", "sub/c"))}
    folder = tmp_path / "folder"
    for name, pixels in pictures.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png(pixels))
    (folder / ".hidden.png").write_bytes(png(noise))
    (folder / "notes.txt").write_text("no picture")
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr("__MACOSX/a.png", b"")
        for name in pictures:
            archive.write(folder / name, name)
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as tape:
        tape.add(folder, ".", filter=lambda item: None if "hidden" in item.name else item)
    for path in (folder, tmp_path / "set.zip"):
        with open_images(path) as images:
            found = read(images)
        assert list(found) == list(pictures)
        for name, pixels in pictures.items():
            np.testing.assert_array_equal(found[name], pixels)
    with open_images(tmp_path / "set.tar.gz") as images:
        for got, pixels in zip(read(images).values(), pictures.values(), strict=True):
            np.testing.assert_array_equal(got, pixels)
    np.savez(tmp_path / "set.npz", np.stack(list(pictures.values())))
    with open_images(tmp_path / "set.npz") as images:
        for got, pixels in zip(read(images).values(), pictures.values(), strict=True):
            np.testing.assert_array_equal(got, pixels)


def test_modes(noise: Pixels) -> None:
    grey = noise[..., 0]
    np.testing.assert_array_equal(decode(png(grey)), np.repeat(grey[..., None], 3, 2))
    deep = (grey.astype(np.uint16) << 8) | 255
    wide = np.abs(decode(png(deep)).astype(int) - np.repeat(grey[..., None], 3, 2))
    assert wide.max() <= 1
    clear = np.concatenate([noise, np.zeros((5, 7, 1), np.uint8)], 2)
    np.testing.assert_array_equal(decode(png(clear)), 255)
    np.testing.assert_array_equal(decode(png(clear), background=(1, 2, 3)), np.broadcast_to([1, 2, 3], (5, 7, 3)))
    held = BytesIO()
    palette = Image.fromarray(noise).quantize(16)
    palette.save(held, "PNG")
    np.testing.assert_array_equal(decode(held.getvalue()), np.asarray(palette.convert("RGB")))
    held = BytesIO()
    Image.new("CMYK", (4, 4), (0, 255, 255, 0)).save(held, "JPEG", quality=95)
    assert np.abs(decode(held.getvalue()).astype(int) - [255, 0, 0]).max() < 12


def test_upright_by_exif(noise: Pixels) -> None:
    image = Image.fromarray(noise)
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    held = BytesIO()
    image.save(held, "PNG", exif=exif)
    np.testing.assert_array_equal(decode(held.getvalue()), np.rot90(noise, -1))


def bomb(width: int, height: int) -> bytes:
    """A PNG that says that it is large; nothing of it need be there."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_three_hundred_hostile_files(noise: Pixels, tmp_path: Path) -> None:
    """None crashes or hangs the reading, each is told by its name, and the good ones are all read."""
    rng = np.random.default_rng(1)
    whole = png(np.tile(noise, (8, 8, 1)))
    jpeg = BytesIO()
    Image.fromarray(np.tile(noise, (8, 8, 1))).save(jpeg, "JPEG")
    bad, good = set(), set()
    for number in range(60):
        for name, data in (
            (f"{number}-cut.png", whole[: int(rng.integers(0, len(whole) - 40))]),
            (f"{number}-empty.jpg", b""),
            (f"{number}-noise.webp", rng.bytes(int(rng.integers(1, 400)))),
            (f"{number}-bomb.png", bomb(11_000 + number, 11_000)),
        ):
            (tmp_path / name).write_bytes(data)
            bad.add(name)
    for number in range(20):
        names = f"{number}\nnew line.png", f"{number} 🎨 émoji.PNG", f"{number}-wrong ending.bmp"
        for name, data in zip(names, (whole, whole, jpeg.getvalue()), strict=True):
            (tmp_path / name).write_bytes(data)
            good.add(name)
    loop = tmp_path / "loop"
    loop.mkdir()
    (loop / "again").symlink_to(tmp_path)
    (tmp_path / "self.png").symlink_to(tmp_path / "self.png")
    (tmp_path / "nowhere.png").symlink_to(tmp_path / "gone.png")
    os.mkfifo(tmp_path / "pipe.png")
    bad |= {"self.png", "nowhere.png", "pipe.png"}
    with open_images(tmp_path) as images:
        found = read(images)
    assert len(found) == 303
    assert {name for name, got in found.items() if isinstance(got, str)} == bad
    assert {name for name, got in found.items() if not isinstance(got, str)} == good
    assert all(found[name] for name in bad)
    assert f"more than {MOST_PIXELS:,}" in str(found["0-bomb.png"])
    assert found["pipe.png"] == "it is no regular file"


def test_a_file_that_may_not_be_read(noise: Pixels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(png(noise))
    plain = Path.read_bytes

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path)) if path.name == "a.png" else AssertionError

    with open_images(tmp_path) as images:
        monkeypatch.setattr(Path, "read_bytes", refused)
        (one,) = decoded(images, [0])
        monkeypatch.setattr(Path, "read_bytes", plain)
    assert "Permission denied" in one.problem


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("none", "there is no folder or file"),
        ("empty", "holds no pictures"),
        ("text.zip", "is no folder, ZIP, TAR or NPZ file"),
        ("floats.npy", "float64, and (N, H, W, 3) uint8 is needed"),
        ("pickle.npy", "can't be read as an array"),
    ],
)
def test_what_is_no_set(made: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no archive")
    np.save(tmp_path / "floats.npy", np.zeros((2, 4, 4, 3)))
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError) as caught, open_images(tmp_path / made):
        pass
    assert told in str(caught.value)
