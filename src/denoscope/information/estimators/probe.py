"""The default estimator: what a linear probe, asked about samples it has not seen, says of a word.

I(X; Y) ≥ H(Y) − E[−log q(y | x)] for any q (Barber & Agakov 2003, eq. 3). Here q is a linear probe in two stages,
both fitted without the samples that are asked about, nor any of their contexts or seeds (:mod:`.folds`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from denoscope.information.errors import InformationError
from denoscope.information.estimators.folds import Folds, folds_of

RANK: Final = 128
"""Principal components that features are reduced to, or a third of the smallest training set."""
_RIDGES: Final = (0.03, 0.3)
"""Penalties, as shares of a component's mean sum of squares over the training samples."""
_TEMPERATURES: Final = (0.25, 0.5, 1.0)
"""Factors of the logits; the prior itself is tried too, which is right where the features say nothing."""
_FLOOR: Final = -30.0
"""Least log belief: a finite score whatever happens."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cross-fitted log beliefs ``(N, K)`` in nats, the true ``labels`` ``(N,)`` and the ``prior`` ``(K,)``."""

    log_belief: NDArray[np.float64]
    labels: NDArray[np.int64]
    prior: NDArray[np.float64]

    @property
    def pointwise(self) -> NDArray[np.float64]:
        """log q(y | x) − log p(y) of every sample, nats; its mean is the information."""
        found: NDArray[np.float64] = self.log_belief[np.arange(len(self.labels)), self.labels]
        return found - np.log(self.prior)[self.labels]

    @property
    def information(self) -> float:
        """A lower bound of I(X; Y) in expectation, nats; at most H(Y), below 0 where it did worse than chance."""
        return float(self.pointwise.mean())

    @property
    def entropy(self) -> float:
        """H(Y), nats."""
        return float(-(self.prior * np.log(self.prior)).sum())


def probe(
    features: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    context: NDArray[np.integer],
    seed: NDArray[np.integer],
    values: int | None = None,
) -> Estimate:
    """The probe's beliefs about the labels ``(N,)`` of features ``(N, d)``; the prior is the labels' own frequency.

    Features are scaled to unit variance and reduced to their first principal components; that uses no label, so all
    samples take part. Then, for each block held out: ridge regression on one-hot labels, and linear discriminant
    analysis (pooled covariance, means shrunk by James & Stein's factor) of its held-out outputs, which makes posteriors
    of them: the two together are penalised LDA (Hastie, Buja & Tibshirani 1995). Ridge and temperature are those with
    the best held-out score on the block's own training samples.

    Raises :class:`InformationError` for labels that are no numbers from 0, a value that never occurs, features that are
    not finite, and too few contexts and seeds.

    >>> rng = np.random.default_rng(0)
    >>> labels, context, seed = (a.ravel() for a in np.meshgrid(range(2), range(8), range(16)))
    >>> told = probe(rng.normal(size=(256, 5)) + 6 * labels[:, None], labels, context=context, seed=seed)
    >>> round(told.information, 2), round(told.entropy, 2)
    (0.69, 0.69)
    """
    count = int(labels.max()) + 1 if values is None else values
    prior = _prior(labels, count)
    folds = folds_of(context, seed)
    reduced = components(features, _rank(folds))
    found = _beliefs(reduced, torch.from_numpy(np.asarray(labels, np.int64))[None], prior, folds)
    return Estimate(found[0].double().numpy(), np.asarray(labels, np.int64), prior)


def unlearnt(
    features: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    context: NDArray[np.integer],
    seed: NDArray[np.integer],
) -> float:
    """How much more the probe might find with pictures without end, nats; at least 0.

    A probe that learns from n samples misses about c/n of what it can find, so what it gains from m to n of them tells
    c: (I_n − I_m)/(n/m − 1) is still to come. That says nothing of what no linear probe of these components finds.

    Raises :class:`InformationError` as :func:`probe` does.
    """
    prior = _prior(labels, int(labels.max()) + 1)
    folds = folds_of(context, seed)
    reduced = components(features, _rank(folds))
    asked = torch.from_numpy(np.asarray(labels, np.int64))[None]
    found = []
    for each in (folds, folds.halved()):
        belief = _beliefs(reduced, asked, prior, each)[0].double().numpy()
        found.append(Estimate(belief, np.asarray(labels, np.int64), prior).information)
    ratio = folds.learnt() / folds.halved().learnt()
    return max(0.0, (found[0] - found[1]) / (ratio - 1)) if ratio > 1 else 0.0


def null_information(
    features: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    context: NDArray[np.integer],
    seed: NDArray[np.integer],
    draws: int = 200,
    rng_seed: int = 0,
) -> NDArray[np.float64]:
    """The probe's information for ``draws`` shuffles of the labels within (context, seed): ``(draws,)``, nats.

    Samples of one context and seed are exchangeable when the word moves nothing. The same ``rng_seed`` shuffles alike
    whatever the features, so a maximum over cells can be taken draw by draw.

    Raises :class:`InformationError` as :func:`probe` does.
    """
    prior = _prior(labels, int(labels.max()) + 1)
    folds = folds_of(context, seed)
    reduced = components(features, _rank(folds))
    found = []
    for some in np.array_split(shuffles(labels, context, seed, draws, rng_seed), max(1, draws // 100)):
        asked = torch.from_numpy(some)
        beliefs = _beliefs(reduced, asked, prior, folds)
        own = beliefs.gather(2, asked[..., None])[..., 0] - torch.from_numpy(np.log(prior)).float()[asked]
        found.append(own.double().mean(1).numpy())
    return np.concatenate(found)


def shuffles(
    labels: NDArray[np.integer], context: NDArray[np.integer], seed: NDArray[np.integer], draws: int, rng_seed: int = 0
) -> NDArray[np.int64]:
    """Labels shuffled within each (context, seed): ``(draws, N)``.

    >>> shuffles(np.array([0, 1, 0]), np.array([0, 0, 1]), np.array([0, 0, 0]), 2)[:, 2].tolist()
    [0, 0]
    """
    rng = np.random.default_rng(rng_seed)
    block = np.unique(np.stack([context, seed]), axis=1, return_inverse=True)[1].ravel()
    order = np.argsort(block, kind="stable")
    # Sorting random keys within blocks shuffles all blocks of a draw at once.
    mixed = np.lexsort((rng.random((draws, len(labels))), np.broadcast_to(block, (draws, len(labels)))), axis=1)
    found = np.empty((draws, len(labels)), dtype=np.int64)
    found[:, order] = np.asarray(labels, dtype=np.int64)[mixed]
    return found


def components(features: NDArray[np.floating], rank: int) -> Tensor:
    """Principal components of features scaled to unit variance: ``(N, r)`` float32, one as their mean square in sum.

    r is ``rank``, or what the features have. By a randomised range finder with two power iterations (Halko, Martinsson
    & Tropp 2011, alg. 4.4), seeded. Constant features say nothing and go.

    Raises :class:`InformationError` for features that are not finite.
    """
    held = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    if held.dim() != 2 or not bool(held.isfinite().all()):
        raise InformationError(
            "features must be finite numbers, one row a sample: a layer may have overflowed, try float32"
        )
    held = held - held.mean(0)
    scale = held.square().mean(0).sqrt()
    held = held[:, scale > 1e-6 * scale.max()]
    if held.shape[1] == 0:
        return held.new_zeros(len(held), 1)
    held = held / held.square().mean(0).sqrt()
    rank = max(1, min(rank, *held.shape))
    start = torch.randn(held.shape[1], min(rank + 16, held.shape[1]), generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(held @ start).Q
    for _ in range(2):
        basis = torch.linalg.qr(held @ (held.T @ basis)).Q
    small = basis.T @ held
    values, vectors = torch.linalg.eigh(small @ small.T)
    found = (basis @ vectors.flip(1)[:, :rank]) * values.flip(0)[:rank].clamp(min=0).sqrt()
    return found / found.square().sum(1).mean().sqrt()


def _rank(folds: Folds) -> int:
    """Of N training samples, a third as many components: more would fit them by chance."""
    return min(RANK, min(sum(len(folds.blocks[other]) for other in learnt) for learnt in folds.training) // 3)


def _prior(labels: NDArray[np.integer], values: int) -> NDArray[np.float64]:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0 or labels.max() >= values:
        raise InformationError(f"labels must be whole numbers from 0 to {values - 1}, one a sample")
    counts = np.bincount(labels, minlength=values)
    if (counts == 0).any():
        raise InformationError(f"value {int(counts.argmin())} has no sample: every substitute needs pictures")
    return np.asarray(counts / counts.sum(), dtype=np.float64)


def _beliefs(reduced: Tensor, labels: Tensor, prior: NDArray[np.float64], folds: Folds) -> Tensor:
    """Log beliefs ``(P, N, K)`` for P sets of labels ``(P, N)`` of the same features."""
    log_prior = torch.from_numpy(np.log(prior)).float()
    logits = [
        _discriminants(output, labels, len(prior), folds) for output in _ridge(reduced, labels, len(prior), folds)
    ]
    found = log_prior.expand(*labels.shape, len(prior)).clone()
    # Shuffled labels mostly shrink to nothing, which is the prior at any penalty and temperature.
    says = torch.stack([logit.abs().amax((1, 2)) for logit in logits]).amax(0) > 0
    if bool(says.any()):
        found[says] = _tempered([logit[says] for logit in logits], labels[says], log_prior, folds)
    return found


def _tempered(logits: Sequence[Tensor], labels: Tensor, log_prior: Tensor, folds: Folds) -> Tensor:
    """Log beliefs with the penalty and temperature that do best on each block's own training samples."""
    kept = [(factor * logit + log_prior).log_softmax(-1) for logit in logits for factor in _TEMPERATURES]
    kept.append(log_prior.expand_as(kept[0]))
    scores = torch.stack([belief.gather(2, labels[..., None])[..., 0] for belief in kept])
    found = torch.empty_like(kept[0])
    for block, learnt in zip(folds.blocks, folds.training, strict=True):
        if not len(block):
            continue
        training = np.concatenate([folds.blocks[other] for other in learnt])
        best = scores[:, :, training].mean(2).argmax(0)
        for number, belief in enumerate(kept):
            chosen = (best == number).nonzero()[:, 0]
            found[chosen[:, None], block] = belief[chosen[:, None], block]
    return found.clamp(min=_FLOOR).log_softmax(-1) if bool((found < _FLOOR).any()) else found


def _ridge(reduced: Tensor, labels: Tensor, values: int, folds: Folds) -> list[Tensor]:
    """Held-out outputs ``(P, N, K−1)`` for each penalty. One-hot outputs sum to zero, so the last is left out."""
    sets, count = labels.shape
    hot = _one_hot(labels, values)[..., :-1]
    hot = (hot - hot.mean(1, keepdim=True)).permute(1, 0, 2).reshape(count, -1)  # (N, P·(K−1))
    squares = [reduced[block].T @ reduced[block] for block in folds.blocks]
    products = [reduced[block].T @ hot[block] for block in folds.blocks]
    outputs = [torch.zeros(count, hot.shape[1]) for _ in _RIDGES]
    for block, learnt in zip(folds.blocks, folds.training, strict=True):
        if not len(block):
            continue
        eigenvalues, vectors = torch.linalg.eigh(_total(squares, learnt))
        inside = vectors.T @ _total(products, learnt)
        turned = reduced[block] @ vectors
        for output, penalty in zip(outputs, _RIDGES, strict=True):
            output[block] = turned @ (inside / (eigenvalues + penalty * eigenvalues.mean()).clamp(min=1e-9)[:, None])
    return [output.reshape(count, sets, values - 1).transpose(0, 1) for output in outputs]


def _discriminants(outputs: Tensor, labels: Tensor, values: int, folds: Folds) -> Tensor:
    """Log likelihood ratios ``(P, N, K)`` of Gaussian classes with one covariance, up to a constant a sample."""
    sets, count, dims = outputs.shape
    hot = _one_hot(labels, values)
    # In float64, or what is left of the squares when means are taken off, which may be next to nothing, isn't positive.
    exact = [outputs[:, block].double() for block in folds.blocks]
    sums = [hot[:, block].double().transpose(1, 2) @ held for block, held in zip(folds.blocks, exact, strict=True)]
    squares = [held.transpose(1, 2) @ held for held in exact]
    numbers = [hot[:, block].sum(1) for block in folds.blocks]
    found = torch.zeros(sets, count, values)
    for block, learnt in zip(folds.blocks, folds.training, strict=True):
        if not len(block):
            continue
        number = _total(numbers, learnt)[..., None].double().clamp(min=1)
        total = number.sum(1, keepdim=True)
        total_sum = _total(sums, learnt)
        means, centre = total_sum / number, total_sum.sum(1, keepdim=True) / total
        within = _total(squares, learnt) - (number * means).transpose(1, 2) @ means
        covariance = within / (total - values).clamp(min=1)
        size = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
        # The last shares keep features that say all, or nothing at all, from dividing by zero.
        scale = (_total(squares, learnt).diagonal(dim1=1, dim2=2).sum(1)[:, None, None] / total).clamp(min=0)
        covariance = covariance + (1e-4 * size + 1e-6 * scale + 1e-12) * torch.eye(dims, dtype=torch.float64)
        whiten = torch.linalg.inv(torch.linalg.cholesky(covariance)).transpose(1, 2).float()
        apart = ((means - centre) @ whiten.double()).float()
        # Under no effect n·D² is K−1 dimensions times K−1 degrees of freedom: shrink by that (James & Stein 1961).
        spread = (number.float() * apart.square()).sum((1, 2))
        apart = apart * (1 - dims * (values - 1) / spread.clamp(min=1e-9)).clamp(min=0)[:, None, None]
        place = (outputs[:, block] - centre.float()) @ whiten
        found[:, block] = place @ apart.transpose(1, 2) - apart.square().sum(-1)[:, None] / 2
    return found


def _one_hot(labels: Tensor, values: int) -> Tensor:
    """One-hot labels as float32."""
    return torch.nn.functional.one_hot(labels, values).float()


def _total(parts: Sequence[Tensor], numbers: Sequence[int]) -> Tensor:
    total = parts[numbers[0]].clone()
    for number in numbers[1:]:
        total += parts[number]
    return total
