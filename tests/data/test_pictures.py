"""Sets of pictures: what is read, how it is turned, what is skipped and what is refused."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from denoscope.data.pictures import DataError, PictureSet, digits, fashion_mnist, load_folder
from denoscope.data.pictures.folder import read_captions, read_picture
from denoscope.data.pictures.known import FASHION_FOLDER, read_idx


def write(path: Path, array: object, mode: str | None = None, **settings: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = array if isinstance(array, Image.Image) else Image.fromarray(np.asarray(array))
    (image.convert(mode) if mode else image).save(path, **settings)  # type: ignore[arg-type]


def gradient(height: int = 8, width: int = 8) -> np.ndarray:
    ramp = np.linspace(0, 255, width).astype(np.uint8)
    return np.stack(
        [np.tile(ramp, (height, 1)), np.full((height, width), 40, np.uint8), np.tile(ramp[::-1], (height, 1))], -1
    )


def test_every_mode_shows_the_same_picture(tmp_path: Path) -> None:
    write(tmp_path / "rgb.png", gradient())
    write(tmp_path / "opaque.png", np.dstack([gradient(), np.full((8, 8), 255, np.uint8)]))
    write(tmp_path / "upper.PNG", gradient())
    found = load_folder(tmp_path, 8)
    assert found.names == ("opaque.png", "rgb.png", "upper.PNG")
    for picture in found.pictures:
        assert np.array_equal(picture.permute(1, 2, 0).numpy(), gradient())
    grey = np.linspace(0, 255, 64).astype(np.uint8).reshape(8, 8)
    write(tmp_path / "grey.png", grey)
    write(tmp_path / "deep.png", Image.fromarray(grey.astype(np.uint16) * 257))
    for name in ("grey.png", "deep.png"):
        assert np.array_equal(read_picture(tmp_path / name, 8, 8, 1)[..., 0], grey)
        assert np.array_equal(read_picture(tmp_path / name, 8, 8, 3), np.stack([grey] * 3, -1))


def test_what_is_transparent_shows_the_background(tmp_path: Path) -> None:
    clear = np.dstack([gradient(), np.zeros((8, 8), np.uint8)])
    write(tmp_path / "clear.png", clear)
    assert (read_picture(tmp_path / "clear.png", 8, 8, 3) == 255).all()
    assert (read_picture(tmp_path / "clear.png", 8, 8, 3, (0, 10, 20)) == (0, 10, 20)).all()
    palette = Image.fromarray(gradient()).convert("P", palette=Image.Palette.ADAPTIVE)
    palette.save(tmp_path / "palette.gif", transparency=palette.getpixel((0, 0)))
    assert tuple(read_picture(tmp_path / "palette.gif", 8, 8, 3, (1, 2, 3))[0, 0]) == (1, 2, 3)


def test_pictures_are_turned_and_cut_around_their_middle(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° clockwise
    write(tmp_path / "turned.png", gradient(8, 16), exif=exif)
    assert np.array_equal(read_picture(tmp_path / "turned.png", 16, 8, 3), np.rot90(gradient(8, 16), -1))
    wide = np.zeros((8, 24, 3), np.uint8)
    wide[:, 8:16] = 200
    write(tmp_path / "wide.png", wide)
    assert (read_picture(tmp_path / "wide.png", 8, 8, 3) == 200).all()
    assert read_picture(tmp_path / "wide.png", 5, 30, 3).shape == (5, 30, 3)


def test_bad_files_are_skipped_and_told_or_fail(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        write(tmp_path / name, gradient())
    (tmp_path / "cut.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "notes.txt").write_text("not asked for")
    (tmp_path / ".hidden.png").write_text("not asked for")
    found = load_folder(tmp_path, 8)
    assert found.names == ("a.png", "b.png")
    assert [name for name, _ in found.skipped] == ["cut.png", "text.jpg"]
    assert all(reason for _, reason in found.skipped)
    with pytest.raises(DataError, match=r"cut\.png can't be read"):
        load_folder(tmp_path, 8, bad_files="fail")


def test_too_few_pictures(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder"):
        load_folder(tmp_path / "none", 8)
    with pytest.raises(DataError, match="holds 0 pictures"):
        load_folder(tmp_path, 8)
    write(tmp_path / "only.png", gradient())
    (tmp_path / "bad.png").write_text("no picture")
    with pytest.raises(DataError, match=r"holds 1 pictures .* 1 were skipped, the first one bad\.png"):
        load_folder(tmp_path, 8)


def test_subfolders_are_classes_if_all_pictures_lie_in_one(tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/2.png", "ant/1.png"):
        write(tmp_path / name, gradient())
    found = load_folder(tmp_path, 4)
    assert found.classes == ("ant", "cat")
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 1]
    write(tmp_path / "outside.png", gradient())
    assert load_folder(tmp_path, 4).labels is None


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_captions(tmp_path: Path, kind: str) -> None:
    for name in ("a.png", "sub/b.png", "c.png"):
        write(tmp_path / name, gradient())
    table = tmp_path / f"metadata.{kind}"
    rows = [("a.png", 'a "red", bus'), ("sub/b.png", "zwei Bären"), ("gone.png", "not there")]
    if kind == "csv":
        table.write_text(
            "\ufefffile_name,text\n" + "\n".join(f'{n},"{t.replace(chr(34), chr(34) * 2)}"' for n, t in rows)
        )
    else:
        table.write_text("\n\n".join(json.dumps({"file_name": n, "text": t}) for n, t in rows))
    found = load_folder(tmp_path, 8, captions=table)
    assert found.names == ("a.png", "sub/b.png")
    assert found.captions == ('a "red", bus', "zwei Bären")
    assert [name for name, _ in found.skipped] == ["c.png"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "file,text\na,b\n", "line 2: file_name and text"),
        ("x.jsonl", '{"file_name": "a", "text": "b"}\n{oops', "line 2: no JSON"),
        ("x.jsonl", "[1]", "line 1: a JSON object"),
        ("x.jsonl", '{"file_name": "a", "text": 3}', "line 1: file_name and text"),
    ],
)
def test_wrong_captions_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_captions(tmp_path / name)
    with pytest.raises(DataError, match="can't be read"):
        read_captions(tmp_path / "none.csv")


def idx(array: np.ndarray) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes())


def test_fashion_mnist_from_its_files(tmp_path: Path) -> None:
    pictures = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(idx(pictures))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(np.array([0, 9, 3])))
    found = fashion_mnist("test", tmp_path)
    assert np.array_equal(found.pictures[:, 0].numpy(), pictures)
    assert found.labels is not None
    assert [found.classes[label] for label in found.labels.tolist()] == ["T-shirt", "ankle boot", "dress"]
    with pytest.raises(DataError, match="install Debian's package dataset-fashion-mnist"):
        fashion_mnist("train", tmp_path)


def test_damaged_idx_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    whole = idx(np.zeros((2, 3)))
    path.write_bytes(whole[:-6])
    with pytest.raises(DataError, match="damaged"):
        read_idx(path)
    path.write_bytes(gzip.compress(gzip.decompress(whole)[:-1]))
    with pytest.raises(DataError, match=r"5 bytes where its header says \(2, 3\)"):
        read_idx(path)
    path.write_bytes(gzip.compress(b"hello world"))
    with pytest.raises(DataError, match="no IDX file"):
        read_idx(path)


@pytest.mark.skipif(not FASHION_FOLDER.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist() -> None:
    found = fashion_mnist()
    assert tuple(found.pictures.shape) == (60_000, 1, 28, 28)
    assert found.labels is not None
    assert found.labels.bincount().tolist() == [6000] * 10


def test_digits() -> None:
    found = digits()
    assert found.labels is not None
    assert (int(found.pictures.min()), int(found.pictures.max())) == (0, 255)
    assert found.labels[:10].tolist() == list(range(10))


def test_what_does_not_fit_together_is_refused() -> None:
    pictures = torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
    names = ("a", "b", "c")
    with pytest.raises(DataError, match="2 names for 3"):
        PictureSet(pictures, names[:2])
    with pytest.raises(DataError, match="1 picture can't be learnt from"):
        PictureSet(pictures[:1], names[:1])
    with pytest.raises(DataError, match="number 2 classes"):
        PictureSet(pictures, names, torch.tensor([0, 1, 2]), ("x", "y"))
    with pytest.raises(DataError, match="uint8"):
        PictureSet(pictures.float(), names)
