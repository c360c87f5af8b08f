"""Are generated sounds read back with their label? ``python -m benchmarks.tones_quality [MODEL] [-n 400] [--json]``.

MODEL was made by ``denoscope train tones``. Without it, the world's own sounds are read, as they are and after the way
to a spectrogram and back: no model can do better.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from denoscope.data.sounds import LogMel
from denoscope.data.worlds.shapes.judging import wilson
from denoscope.data.worlds.tones import KINDS, SAMPLE_RATE, read_kind, tones
from denoscope.training.recipes import load_trained


def rates(waves: Iterable[Tensor], labels: Iterable[int]) -> dict[str, tuple[float, float, float]]:
    """How many of each kind are read as that kind, and of all: value, low, high (Wilson, 95 %)."""
    right: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for wave, label in zip(waves, labels, strict=True):
        right[KINDS[label]].append(read_kind(wave.numpy(), SAMPLE_RATE) == KINDS[label])
    right["all"] = [one for kind in KINDS for one in right[kind]]
    found = {kind: wilson(sum(ones), len(ones)) for kind, ones in right.items() if ones}
    return {kind: (rate.value, rate.low, rate.high) for kind, rate in found.items()}


def decoded(scale: LogMel, spectrograms: Tensor, size: int = 50) -> Tensor:
    """Waves of spectrograms, some at a time: the way back takes memory."""
    parts = (spectrograms[start : start + size] for start in range(0, len(spectrograms), size))
    return torch.cat([scale.decode(part) for part in parts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("-n", type=int, default=400)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--guidance", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    scale = LogMel()
    if options.model is None:
        found = tones(options.n, seed=10**6)
        assert found.labels is not None
        labels = found.labels.tolist()
        results = {"as they are": rates(found.waves, labels)}
        back = decoded(scale, scale.encode(found.waves))
        results["to a spectrogram and back"] = rates(back, labels)
    else:
        trained = load_trained(options.model)
        told = trained.modality.labels(options.n)
        assert told is not None
        drawn, _ = trained.sample(
            range(10**7, 10**7 + options.n), told, steps=options.steps, guidance_scale=options.guidance
        )
        waves = decoded(scale, drawn)
        results = {"generated": rates(waves, told.tolist())}
    if options.json:
        print(json.dumps(results))
        return
    for name, table in results.items():
        print(f"{name} (n={options.n})")
        for kind, (value, low, high) in table.items():
            print(f"  {kind:14} {value:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
