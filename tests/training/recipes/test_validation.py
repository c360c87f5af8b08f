"""The loss by noise level against its closed form; copies told from fresh samples."""

import pytest
import torch
from torch import Tensor, nn

from denoscope.schedules import NoiseSchedule
from denoscope.training.objectives import ddpm
from denoscope.training.recipes.modality import Examples, Modality, labelled
from denoscope.training.recipes.pictures import picture_grid
from denoscope.training.recipes.validation import copies, loss_by_level

MODALITY = Modality(
    shape=(4000,),
    classes=(),
    conditions=labelled(()),
    picture=lambda samples, _, columns: picture_grid(samples, columns),
    write=lambda samples, _, folder: [],
    judge=lambda samples, _: {},
)


class Exact(nn.Module):
    """E[ε | z] of standard normal data: σ·z."""

    def __init__(self, schedule: NoiseSchedule) -> None:
        super().__init__()
        self.sigma = nn.Parameter(schedule.sigma.float())

    def forward(self, z: Tensor, t: Tensor) -> Tensor:
        return self.sigma[t][:, None] * z


def test_loss_by_level_is_the_bayes_loss_of_each_tenth() -> None:
    """E(ε − σz)² = ᾱ for N(0, 1) data."""
    schedule = NoiseSchedule.cosine()
    data = torch.randn(512, 4000, generator=torch.Generator().manual_seed(0))
    found = loss_by_level(ddpm(schedule), Exact(schedule), MODALITY, Examples(data))
    wanted = [float(part.mean()) for part in schedule.alphas_cumprod.chunk(10)]
    assert found == pytest.approx(wanted, abs=0.01)


def test_copies_are_told_from_fresh_samples() -> None:
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(3000, 6, generator=generator)
    training, held_out = Examples(data[:2000]), Examples(data[2000:])
    fresh = copies(torch.randn(1000, 6, generator=generator), training, held_out)
    assert fresh is not None
    assert fresh.share == pytest.approx(0.05, abs=0.03)
    assert fresh.warning is None
    copied = copies(data[[7, 5, 1999]] + 1e-3, training, held_out)
    assert copied is not None
    assert copied.nearest.tolist() == [7, 5, 1999]
    assert copied.share == 1
    assert "memorises" in (copied.warning or "")
    assert copies(data[:3], training, Examples(data[:0])) is None
