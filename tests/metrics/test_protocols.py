"""Resizing against other programs' arithmetic, written out."""

import numpy as np
import pytest
import torch
from PIL import Image

from denoscope.metrics import FeatureError
from denoscope.metrics.protocols import PROTOCOLS, bilinear_from_corner, preparation

SIZES = [(32, 32), (64, 48), (299, 299), (512, 400)]


@pytest.fixture(params=SIZES, ids=str)
def levels(request: pytest.FixtureRequest) -> torch.Tensor:
    size: tuple[int, int] = request.param
    return torch.randint(0, 256, (3, *size), generator=torch.Generator().manual_seed(0)).float()


def test_tensorflow_1s_bilinear(levels: torch.Tensor) -> None:
    found = bilinear_from_corner(levels, 299, 299).numpy()
    held = levels.double().numpy()
    height, width = held.shape[1:]
    rng = np.random.default_rng(0)
    for row, column in rng.integers(0, 299, (40, 2)):
        y, x = row * height / 299, column * width / 299
        top, left = int(y), int(x)
        below, right = min(top + 1, height - 1), min(left + 1, width - 1)
        part_y, part_x = y - top, x - left
        upper = held[:, top, left] * (1 - part_x) + held[:, top, right] * part_x
        lower = held[:, below, left] * (1 - part_x) + held[:, below, right] * part_x
        np.testing.assert_allclose(found[:, row, column], upper * (1 - part_y) + lower * part_y, atol=5e-3)


def test_clean_is_pillows_bicubic_of_floats(levels: torch.Tensor) -> None:
    found = preparation("clean")(levels.byte()) * 128 + 128
    for channel in range(3):
        one = Image.fromarray(levels[channel].numpy())
        wanted = np.asarray(one.resize((299, 299), Image.Resampling.BICUBIC)).clip(0, 255)
        np.testing.assert_allclose(found[channel], wanted, atol=0.01)


def test_pytorch_fids_bilinear(levels: torch.Tensor) -> None:
    wanted = torch.nn.functional.interpolate(levels[None] / 255, (299, 299), mode="bilinear", align_corners=False)
    np.testing.assert_allclose(preparation("torch")(levels.byte()), 2 * wanted[0] - 1, atol=1e-5)


def test_protocols_differ_where_they_should() -> None:
    small = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    seen = {name: preparation(name) for name in PROTOCOLS}
    grey = {name: one(small) * one.scale + one.offset for name, one in seen.items()}
    assert float((grey["tf1"] - grey["torch"]).abs().mean()) == pytest.approx(37, abs=3)
    assert torch.equal(grey["tf1"], grey["adm"])
    assert float((grey["torchmetrics"] - grey["torch"]).abs().max()) < 1e-3  # nothing is shrunk
    with pytest.raises(FeatureError, match="no protocol 'tf2'"):
        preparation("tf2")  # type: ignore[arg-type]
