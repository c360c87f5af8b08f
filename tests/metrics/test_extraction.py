"""One pass over pictures: what is seen, what the cache spares, what an interruption leaves."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from denoscope.data.worlds.shapes import render, sample_scene
from denoscope.metrics import FeatureError, frechet_distance
from denoscope.metrics import extraction as extraction_module
from denoscope.metrics.extraction import Extractor, extract
from denoscope.metrics.extractors.inception import Inception, load_inception
from denoscope.metrics.extractors.known import extractor
from denoscope.metrics.image_sets import Pixels, open_images
from denoscope.metrics.statistics_file import check_same_kind, load_statistics, save_statistics


class Counted:
    """Means of colours, and how many pictures were asked for."""

    def __init__(self, fails_after: int = 10**9) -> None:
        self.seen = 0
        self.fails_after = fails_after

    def forward(self, x: Tensor) -> Mapping[str, Tensor]:
        self.seen += len(x)
        if self.seen > self.fails_after:
            raise KeyboardInterrupt
        return {"pool": x.mean((2, 3))}

    @property
    def extractor(self) -> Extractor:
        return Extractor("means", {"version": "1"}, prepare, self.forward, batch=2)


def prepare(pixels: Pixels) -> Tensor:
    return torch.from_numpy(np.array(pixels)).permute(2, 0, 1).float()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    made = tmp_path / "pictures"
    made.mkdir()
    for number in range(7):
        Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(made / f"{number}.png")
    (made / "3.png").write_bytes(b"broken")
    (made / "7.png").write_bytes((made / "0.png").read_bytes())
    return made


def test_what_is_seen(folder: Path) -> None:
    counted = Counted()
    with open_images(folder) as images:
        found = extract(images, {"means": (counted.extractor, ["pool"])})
        few = extract(images, {"means": (counted.extractor, ["pool"])}, most=2)
    assert found.names == ("0.png", "1.png", "2.png", "4.png", "5.png", "6.png", "7.png")
    assert found.problems == (("3.png", "it is no picture that can be read"),)
    assert (found.digests[0], few.names) == (found.digests[-1], ("0.png", "1.png"))
    wanted = [np.asarray(Image.open(folder / name)).mean((0, 1)) for name in found.names]
    np.testing.assert_allclose(found.features["means"]["pool"], wanted, rtol=1e-6)
    assert found.features["levels"]["pool"][0, :2].tolist() == [4, 4]
    assert counted.seen == 6 + 2  # the copy is seen once


def test_the_cache_spares_what_it_holds(folder: Path, tmp_path: Path) -> None:
    counted = Counted()
    with open_images(folder) as images:
        first, again = (
            extract(images, {"means": (counted.extractor, ["pool"])}, cache=tmp_path / "cache") for _ in range(2)
        )
    assert counted.seen == 6
    np.testing.assert_array_equal(first.features["means"]["pool"], again.features["means"]["pool"])
    (folder / "1.png").write_bytes((folder / "2.png").read_bytes())
    Image.new("RGB", (4, 4), (9, 9, 9)).save(folder / "5.png")
    with open_images(folder) as images:
        changed = extract(images, {"means": (counted.extractor, ["pool"])}, cache=tmp_path / "cache")
        other = Extractor("means", {"version": "2"}, prepare, counted.forward)
        extract(images, {"means": (other, ["pool"])}, cache=tmp_path / "cache")
    assert changed.features["means"]["pool"][4].tolist() == [9, 9, 9]
    assert counted.seen == 6 + 1 + 5  # one new picture, then another extractor


def test_an_interrupted_pass_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, going = Counted(fails_after=4), Counted()
    with open_images(folder) as images:
        with pytest.raises(KeyboardInterrupt):
            extract(images, {"means": (stopped.extractor, ["pool"])}, cache=tmp_path / "cache")
        found = extract(images, {"means": (going.extractor, ["pool"])}, cache=tmp_path / "cache")
    assert (len(found), going.seen) == (7, 2)
    assert not list((tmp_path / "cache").rglob("*.part"))
    monkeypatch.setattr(extraction_module, "PART", 2)
    with open_images(folder) as images:
        extract(images, {"means": (Counted().extractor, ["pool"])}, cache=tmp_path / "small")
    assert len(list((tmp_path / "small").rglob("means*/*/*.safetensors"))) == 3


def test_bad_files(folder: Path, tmp_path: Path) -> None:
    with open_images(folder) as images, pytest.raises(FeatureError, match=r"'3.png' can't be read"):
        extract(images, {"means": (Counted().extractor, ["pool"])}, bad_files="fail")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"")
    with open_images(tmp_path / "bad") as images, pytest.raises(FeatureError, match="the file is empty"):
        extract(images, {"means": (Counted().extractor, ["pool"])})


def test_statistics_come_back(folder: Path, tmp_path: Path) -> None:
    with open_images(folder) as images:
        found = extract(images, {"means": (Counted().extractor, ["pool"])})
    back = load_statistics(save_statistics(found, tmp_path / "held.safetensors"))
    assert (back.names, back.digests, back.problems, back.digest) == (
        found.names,
        found.digests,
        found.problems,
        found.digest,
    )
    np.testing.assert_array_equal(back.features["means"]["pool"], found.features["means"]["pool"])
    check_same_kind(found, back)
    back.identities["means"]["version"] = "2"
    with pytest.raises(FeatureError, match="differ in version: 1 and 2"):
        check_same_kind(found, back)
    (tmp_path / "other.safetensors").write_bytes(b"nothing")
    with pytest.raises(FeatureError, match="can't be read as statistics"):
        load_statistics(tmp_path / "other.safetensors")


def test_features_do_not_depend_on_the_batch() -> None:
    net = Inception()
    with torch.inference_mode():
        x = torch.randn(3, 3, 299, 299, generator=torch.Generator().manual_seed(0))
        whole, apart = net(x), net(x[1:2])
    assert {name: tuple(one.shape) for name, one in whole.items()} == {
        "pool": (3, 2048),
        "logits": (3, 1008),
        "spatial": (3, 2023),
    }
    for name, one in whole.items():
        assert torch.allclose(one[1], apart[name][0], rtol=1e-4, atol=1e-6)


def test_weights_of_inception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Inception()
    assert (
        sum(value.numel() for value in net.parameters()) == 23_834_568 + 8 * 2049
    )  # torchvision's, with eight more classes
    torch.save(net.state_dict(), tmp_path / "own.pth")
    loaded, digest = load_inception(tmp_path / "own.pth")
    assert torch.equal(loaded.fc.weight, net.fc.weight)
    assert len(digest) == 64
    monkeypatch.setenv("DENOSCOPE_INCEPTION", str(tmp_path / "own.pth"))
    assert load_inception()[1] == digest
    monkeypatch.setenv("DENOSCOPE_INCEPTION", str(tmp_path / "none.pth"))
    with pytest.raises(FeatureError, match=r"there are no weights of Inception at .*none\.pth: put https"):
        load_inception()
    torch.save({"fc.weight": torch.zeros(2)}, tmp_path / "else.pth")
    with pytest.raises(FeatureError, match="holds no weights of this Inception"):
        load_inception(tmp_path / "else.pth")


def test_shapes_features_tell_worlds_apart(tmp_path: Path) -> None:
    """Two draws of the world are near each other; one colour alone, or blur, is far."""
    rng = np.random.default_rng(1)
    found = {}
    for name in ("one", "two", "blurred"):
        (tmp_path / name).mkdir()
        for number in range(150):
            pixels = render(sample_scene(rng))
            if name == "blurred":
                pixels = np.asarray(Image.fromarray(pixels).resize((16, 16)).resize((64, 64)))
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
        with open_images(tmp_path / name) as images:
            seen = extract(images, {"shapes": (extractor("shapes"), ["pool", "logits"])})
        found[name] = seen.features["shapes"]["pool"]
    assert frechet_distance(found["one"], found["blurred"]) > 3 * frechet_distance(found["one"], found["two"])


def test_a_function_of_ones_own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_features.py").write_text(
        "import numpy as np\ndef corners(pictures):\n    return np.stack([p[0, 0] for p in pictures])\n"
        "def wrong(pictures):\n    return [1.0]\n"
    )
    monkeypatch.chdir(tmp_path)
    with open_images(folder) as images:
        found = extract(images, {"own": (extractor("python:own_features:corners"), ["pool"])})
        with pytest.raises(FeatureError, match=r"gave \(1,\) for 1 pictures"):
            extract(images, {"own": (extractor("python:own_features:wrong"), ["pool"])})
    assert found.features["own"]["pool"][0].tolist() == np.asarray(Image.open(folder / "0.png"))[0, 0].tolist()
    for name, told in (("python:own_features:none", "can't be loaded"), ("python:x", "names no function")):
        with pytest.raises(FeatureError, match=told):
            extractor(name)
    with pytest.raises(FeatureError, match="no features 'resnet'; known are inception"):
        extractor("resnet")
