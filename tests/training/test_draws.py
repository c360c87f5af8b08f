"""What a step draws: by row, whatever the split; each epoch every example once."""

import pytest
import torch

from denoscope.training.draws import Draws, step_seed


def test_rows_draw_the_same_in_any_split() -> None:
    like = torch.zeros(12, 2, 3)
    whole = Draws.of(12, seed=5, step=9)
    noise, levels, chances = whole.noise(like), whole.stratified(), whole.uniform()
    again = whole.noise(like)
    assert not torch.equal(noise, again)  # a second draw is another one
    for size in (1, 5, 12):
        parts = [Draws(5, 9, range(start, min(start + size, 12)), 12) for start in range(0, 12, size)]
        assert torch.equal(torch.cat([part.noise(like[part.rows.start : part.rows.stop]) for part in parts]), noise)
        assert torch.equal(torch.cat([part.stratified() for part in parts]), levels)
        assert torch.equal(torch.cat([part.uniform() for part in parts]), chances)
        assert torch.equal(torch.cat([part.noise(like[part.rows.start : part.rows.stop]) for part in parts]), again)


def test_steps_rows_and_seeds_draw_differently() -> None:
    like = torch.zeros(2, 4)
    drawn = [Draws.of(2, seed, step).noise(like) for seed in (0, 1) for step in (0, 1)]
    rows = torch.cat(drawn)
    assert len({tuple(row.tolist()) for row in rows}) == len(rows)
    assert len({step_seed(0, step) for step in range(1000)}) == 1000


def test_noise_is_standard_normal() -> None:
    noise = Draws.of(400).noise(torch.zeros(400, 500))
    assert float(noise.mean()) == pytest.approx(0, abs=0.01)
    assert float(noise.std()) == pytest.approx(1, abs=0.01)
    assert float((noise[:-1] * noise[1:]).mean()) == pytest.approx(0, abs=0.01)  # rows are independent


@pytest.mark.parametrize(("examples", "batch"), [(10, 3), (10, 10), (4, 9)])
def test_every_epoch_has_every_example_once(examples: int, batch: int) -> None:
    drawn = torch.cat([Draws.of(batch, seed=2, step=step).indices(examples) for step in range(3 * examples)])
    epochs = drawn[: len(drawn) // examples * examples].reshape(-1, examples)
    assert bool((epochs.sort(1).values == torch.arange(examples)).all())
    assert len({tuple(epoch.tolist()) for epoch in epochs}) > 1


def test_noise_for_another_number_of_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="2 streams of noise for 3 samples"):
        Draws.of(2).noise(torch.zeros(3, 1))
