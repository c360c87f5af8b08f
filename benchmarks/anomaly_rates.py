"""How often healthy experiments raise an anomaly, and how often injected faults are found.

    python -m benchmarks.anomaly_rates --runs 200

Experiments are simulated with effects of context and seed, curves over 25 steps, four layers and eight values. Healthy
ones: labels shuffled (nothing is known), and monotone curves. Faults: a layer and all after it at a tenth; what is
known falling at half time and coming back; a substitute that is heard late; a word's embedding swapped after a step, so
that what was known goes and doesn't come back while the layers before the swap keep it.
"""

import json
from typing import Annotated, Final, Literal

import numpy as np
import typer
import xarray as xr

from denoscope.information.dynamics.anomalies import Kind, anomalies

Fault = Literal["nothing known", "healthy", "collapse", "oscillation", "delay", "swap"]
EXPECTED: Final[dict[Fault, Kind | None]] = {
    "nothing known": None,
    "healthy": None,
    "collapse": "information collapse",
    "oscillation": "oscillating lock-in",
    "delay": "delayed response",
    "swap": "information collapse",
}
_LOGSNR: Final = np.linspace(-8, 6, 25)
_LAYERS: Final = ("down", "middle", "up", "last")


def simulated(fault: Fault, seed: int, values: int = 8, contexts: int = 8, seeds: int = 16) -> xr.Dataset:
    """One slot's log beliefs ``(1, 1, layer, step, sample, value)`` as an experiment writes them."""
    rng = np.random.default_rng(seed)
    context, label, number = (
        a.ravel() for a in np.meshgrid(range(contexts), range(values), range(seeds), indexing="ij")
    )
    count = len(label)
    late = np.zeros(values)
    if fault == "delay":
        late[int(rng.integers(values))] = 3.0
    late += 0.15 * rng.normal(size=values)
    known = 1 / (1 + np.exp(-(_LOGSNR[:, None] + 2 - late[label][None]) * 1.2))  # (step, sample)
    strength = np.repeat(6 * known[None], len(_LAYERS), axis=0) * np.array([0.5, 0.4, 0.8, 1.0])[:, None, None]
    if fault == "nothing known":
        strength[:] = 0
    if fault == "collapse":
        strength[2:] *= 0.1
    if fault == "swap":
        strength[2:, 12:] *= 0.1
    if fault == "oscillation":
        strength[:, 11:15] *= 0.2
    # Samples are easier or harder by context and seed, alike in all layers and steps, and by themselves.
    ease = 0.8 * rng.normal(size=contexts)[context] + 0.8 * rng.normal(size=seeds)[number]
    own = rng.normal(size=(len(_LAYERS), 1, count, values)) + 0.5 * rng.normal(size=(len(_LAYERS), 25, count, values))
    logits = own * np.sqrt(np.maximum(strength, 0))[..., None] * 0.5
    true = np.eye(values)[label]
    lift = strength * np.exp(0.25 * ease)
    logits = logits + lift[..., None] * true
    if fault == "nothing known":
        logits = 0.05 * (own + ease[:, None])
    beliefs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return xr.Dataset(
        {
            "log_belief": (
                ("slot", "branch", "layer", "step", "sample", "value"),
                beliefs[None, None].astype(np.float32),
            ),
            "label": (("slot", "sample"), label[None]),
            "prior": (("slot", "value"), np.full((1, values), 1 / values)),
            "null_max": (("slot", "draw"), 0.02 * rng.random((1, 100))),
        },
        {
            "slot": ["colour"],
            "branch": ["uncond"],
            "layer": list(_LAYERS),
            "step": list(range(25)),
            "value": [f"word {value}" for value in range(values)],
            "logsnr": ("step", _LOGSNR),
            "context": ("sample", context),
            "seed": ("sample", number),
        },
    )


def rate(fault: Fault, runs: int) -> float:
    """The share of runs in which the expected kind is raised, or anything where nothing is expected."""
    hits = 0
    for seed in range(runs):
        kinds = {found.kind for found in anomalies([simulated(fault, seed)], draws=300)}
        expected = EXPECTED[fault]
        hits += bool(kinds) if expected is None else expected in kinds
    return hits / runs


def main(runs: Annotated[int, typer.Option(min=1)] = 200) -> None:
    """Print the rates as JSON."""
    print(json.dumps({"runs": runs} | {fault: rate(fault, runs) for fault in EXPECTED}, indent=2))


if __name__ == "__main__":
    typer.run(main)
