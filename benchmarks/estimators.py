"""Examine the estimators on distributions whose mutual information is known.

    python -m benchmarks.estimators            a table, and JSON with --json

Labelled ones stand for the population experiment: K values, contexts × seeds, features of Gaussians; their truth is an
average of exact posteriors over 400,000 draws. Continuous ones have closed forms (Czyż et al. 2023 use the same kinds).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, logsumexp

from denoscope.information.dynamics.resampling import cluster_weights
from denoscope.information.estimators import (
    cca_information,
    critic_information,
    cross_check,
    ksg_information,
    probe,
    unlearnt,
)

Array = NDArray[np.float64]
SIZES: Final = {256: 20, 1024: 20, 5120: 8}
"""Samples, and how often each distribution is drawn anew."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """``means`` ``(K, d)`` of Gaussian classes (one covariance); effects of context and seed besides."""

    name: str
    means: Array
    clusters: float = 0.0
    noise: float = 0.0
    """Share of labels that are drawn anew, which features can't know."""

    def draw(self, count: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64] | Array]:
        values, dims = self.means.shape
        contexts = 4 if count < 1000 else 8 if count < 5000 else 16
        seeds = count // contexts // values
        context, label, seed = (
            a.ravel() for a in np.meshgrid(range(contexts), range(values), range(seeds), indexing="ij")
        )
        shown = np.where(rng.random(len(label)) < self.noise, rng.integers(values, size=len(label)), label)
        x = self.means[shown] + rng.normal(size=(len(label), dims))
        x += self.clusters * (rng.normal(size=(contexts, dims))[context] + rng.normal(size=(seeds, dims))[seed])
        return {"x": x, "label": label, "context": context, "seed": seed}

    def truth(self) -> float:
        """Of the features without the effects of clusters, which only take information away."""
        rng = np.random.default_rng(0)
        values = len(self.means)
        total = 0.0
        for _ in range(40):
            label = rng.integers(values, size=10_000)
            shown = np.where(rng.random(10_000) < self.noise, rng.integers(values, size=10_000), label)
            x = self.means[shown] + rng.normal(size=(10_000, self.means.shape[1]))
            logits = x @ self.means.T - np.square(self.means).sum(1) / 2
            posterior = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
            posterior = (1 - self.noise) * posterior + self.noise / values
            total += float(np.log(posterior[np.arange(10_000), label] * values).mean())
        return total / 40


@dataclass(frozen=True, slots=True)
class Continuous:
    name: str
    draw: Callable[[int, np.random.Generator], tuple[Array, Array]]
    truth: float


def _means(values: int, dims: int, spread: float, seed: int = 0, active: int | None = None) -> Array:
    found = np.zeros((values, dims))
    width = dims if active is None else active
    found[:, :width] = np.random.default_rng(seed).normal(size=(values, width)) * spread / width**0.5
    return found


LABELLED: Final = (
    Labelled("2 classes in 2 dimensions", _means(2, 2, 1.5)),
    Labelled("4 classes in 8 dimensions", _means(4, 8, 2.0)),
    Labelled("8 classes in 32 dimensions", _means(8, 32, 2.5)),
    Labelled("8 classes in 320 dimensions", _means(8, 320, 3.6)),
    Labelled("8 classes apart in 320", _means(8, 320, 12.0)),
    Labelled("8 classes in 3 of 320", _means(8, 320, 3.0, active=3)),
    Labelled("a fifth of the labels noise", _means(4, 16, 6.0), noise=0.2),
    Labelled("nothing, strong clusters", np.zeros((8, 64)), clusters=2.0),
    Labelled("nothing, 320 dimensions", np.zeros((8, 320))),
)


def _gaussian(covariance: Array, width: int) -> tuple[Callable[[int, np.random.Generator], tuple[Array, Array]], float]:
    factor = np.linalg.cholesky(covariance)

    def draw(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        both = rng.normal(size=(count, len(covariance))) @ factor.T
        return both[:, :width], both[:, width:]

    parts = (covariance[:width, :width], covariance[width:, width:], covariance)
    one, other, whole = (np.linalg.slogdet(part)[1] for part in parts)
    return draw, float(one + other - whole) / 2


def _sparse(dims: int, pairs: int, correlation: float) -> Array:
    covariance = np.eye(2 * dims)
    for index in range(pairs):
        covariance[index, dims + index] = covariance[dims + index, index] = correlation
    return covariance


def _additive(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    x = rng.random((count, 1))
    return x, x + rng.uniform(-0.1, 0.1, size=(count, 1))


def _spiral(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    x, y = _gaussian(_sparse(3, 2, 0.8), 3)[0](count, rng)
    angle = np.linalg.norm(x, axis=1)  # a turn by an angle of the radius is one to one, so information stays
    turned = x.copy()
    turned[:, 0] = np.cos(angle) * x[:, 0] - np.sin(angle) * x[:, 1]
    turned[:, 1] = np.sin(angle) * x[:, 0] + np.cos(angle) * x[:, 1]
    return turned, y


def _student(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    both = rng.normal(size=(count, 10)) / np.sqrt(rng.chisquare(2, size=(count, 1)) / 2)
    return both[:, :5], both[:, 5:]


def _student_truth(df: float, one: int, other: int) -> float:
    """Arellano-Valle, Contreras-Reyes & Genton (2013), independent dispersion."""

    def term(v: float) -> float:
        return float(gammaln(v / 2) - v / 2 * digamma(v / 2))

    return term(df) + term(df + one + other) - term(df + one) - term(df + other)


CONTINUOUS: Final = (
    Continuous("Gaussian 1 × 1, ρ = .75", *_gaussian(_sparse(1, 1, 0.75), 1)),
    Continuous("Gaussian 50 × 50, dense ρ = .5", *_gaussian(np.full((100, 100), 0.5) + 0.5 * np.eye(100), 50)),
    Continuous("Gaussian 25 × 25, two pairs ρ = .8", *_gaussian(_sparse(25, 2, 0.8), 25)),
    Continuous("additive noise of .1", _additive, 0.1 - float(np.log(0.2))),
    Continuous("spiral 3 × 3", _spiral, -float(np.log(1 - 0.64))),
    Continuous("Student t 5 × 5, 2 degrees", _student, _student_truth(2, 5, 5)),
    Continuous("independent 5 × 5", *_gaussian(np.eye(10), 5)),
)


def examine_labelled(one: Labelled, count: int, repeats: int, checks: bool = True) -> list[dict[str, object]]:
    rows: dict[str, list[float]] = {"probe": [], "nwj": [], "infonce": [], "smile": [], "cca": [], "ksg": []}
    truth, covered = one.truth(), 0
    for repeat in range(repeats):
        drawn = one.draw(count, np.random.default_rng(repeat))
        x, label = np.asarray(drawn["x"], dtype=np.float64), np.asarray(drawn["label"], dtype=np.int64)
        context, seed = (np.asarray(drawn[name], dtype=np.int64) for name in ("context", "seed"))
        found = probe(x, label, context=context, seed=seed)
        rows["probe"].append(found.information)
        means = cluster_weights(context, seed, 500) @ found.pointwise
        low, high = np.quantile(means, [0.05, 0.95])
        more = unlearnt(x, label, context=context, seed=seed)
        covered += bool(low - 0.02 <= truth <= high + more + 0.02)
        if checks and repeat < 3:
            for name in list(rows)[1:]:
                check = cross_check(name)
                assert check is not None
                rows[name].append(check(x, label))
    return [
        _row(
            one.name,
            name,
            count,
            values,
            truth,
            covered / repeats if name == "probe" else None,
            float(np.log(len(one.means))),
        )
        for name, values in rows.items()
        if values
    ]


def examine_continuous(one: Continuous, count: int) -> list[dict[str, object]]:
    rows: dict[str, list[float]] = {"nwj": [], "infonce": [], "smile": [], "cca": [], "ksg": []}
    for repeat in range(3):
        x, y = one.draw(count, np.random.default_rng(repeat))
        rows["nwj"].append(critic_information(x, y, "nwj").information)
        rows["infonce"].append(critic_information(x, y, "infonce").information)
        rows["smile"].append(critic_information(x, y, "smile").information)
        rows["cca"].append(cca_information(x, y))
        rows["ksg"].append(ksg_information(x, y))
    return [_row(one.name, name, count, values, one.truth, None, None) for name, values in rows.items()]


def _row(
    name: str,
    estimator: str,
    count: int,
    values: list[float],
    truth: float,
    coverage: float | None,
    entropy: float | None,
) -> dict[str, object]:
    assert np.isfinite(values).all()
    assert entropy is None or max(values) <= entropy + 1e-6
    return {
        "distribution": name,
        "estimator": estimator,
        "n": count,
        "truth": round(truth, 3),
        "mean": round(float(np.mean(values)), 3),
        "bias": round(float(np.mean(values)) - truth, 3),
        "sd": round(float(np.std(values, ddof=1)), 3),
        "coverage": coverage,
        "repeats": len(values),
    }


def main(
    sizes: Annotated[str, typer.Option(help="Numbers of samples.")] = "256,1024,5120",
    probe_only: Annotated[bool, typer.Option("--probe-only", help="Leave the other estimators out.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print bias, standard deviation and the coverage of the probe's 90 % interval (widened by .02 nats)."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for count in (int(size) for size in sizes.split(",")):
        for labelled in LABELLED:
            rows += examine_labelled(labelled, count, SIZES.get(count, 10), not probe_only)
        for continuous in () if probe_only else CONTINUOUS:
            rows += examine_continuous(continuous, count)
    if as_json:
        print(json.dumps(rows))
        return
    print("| distribution | estimator | n | truth | bias | sd | coverage |\n|---|---|---|---|---|---|---|")
    for row in rows:
        coverage = "" if row["coverage"] is None else f"{row['coverage']:.2f}"
        print(
            f"| {row['distribution']} | {row['estimator']} | {row['n']} | {row['truth']:.2f} | {row['bias']:+.3f} "
            f"| {row['sd']:.3f} | {coverage} |"
        )


if __name__ == "__main__":
    typer.run(main)
