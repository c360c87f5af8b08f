"""The extractor of grey pictures: deterministic, whatever the batch; the distance in LPIPS' form."""

import numpy as np
import pytest
import torch

from denoscope.data.pictures import fashion_mnist
from denoscope.data.pictures.known import FASHION_FOLDER
from denoscope.metrics.extractors.fashion import FashionExtractor
from denoscope.metrics.frechet import FeatureError


@pytest.fixture(scope="module")
def extractor() -> FashionExtractor:
    return FashionExtractor.load()


def noise(n: int) -> torch.Tensor:
    return torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_features_do_not_depend_on_the_batch(extractor: FashionExtractor) -> None:
    pictures = noise(300)
    alone = np.concatenate([extractor.features(pictures[index : index + 1]) for index in (0, 1, 299)])
    np.testing.assert_allclose(extractor.features(pictures)[[0, 1, 299]], alone, rtol=1e-5, atol=1e-6)


def test_perceptual_distance_by_hand(extractor: FashionExtractor) -> None:
    a, b = noise(4), noise(8)[4:]
    found = extractor.perceptual_distance(a, b)
    maps = [extractor.net.maps(x.float() / 127.5 - 1) for x in (a, b)]
    wanted = np.zeros(4)
    for x, y in zip(*maps, strict=True):
        x, y = x.double().numpy(), y.double().numpy()
        x, y = (z / np.maximum(np.sqrt((z**2).sum(1, keepdims=True)), 1e-12) for z in (x, y))
        wanted += ((x - y) ** 2).sum(1).mean((1, 2))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert extractor.perceptual_distance(a, a).max() == 0


def test_other_pictures_are_refused(extractor: FashionExtractor) -> None:
    for wrong in (noise(2).float(), noise(2)[:, :, 1:], noise(2).expand(2, 3, 28, 28)):
        with pytest.raises(FeatureError, match="takes uint8 pictures"):
            extractor.features(wrong)


@pytest.mark.skipif(not FASHION_FOLDER.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_it_knows_its_classes(extractor: FashionExtractor) -> None:
    found = fashion_mnist("test")
    assert found.labels is not None
    right = torch.eq(extractor.labels(found.pictures), found.labels)
    assert float(right.double().mean()) > 0.92
