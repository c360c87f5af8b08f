"""Estimators with a trained critic: NWJ, InfoNCE and SMILE, made so that they can't explode.

A critic f(x, y) is fitted on a third of the samples, stopped by a second third, and reported on the last, in turn, so
that every sample is reported on once. The constant critic, which says 0, is among those that early stopping picks from.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from denoscope.information.errors import InformationError

Bound = Literal["nwj", "infonce", "smile"]
_STEPS: Final = 200
_EVERY: Final = 10
_HIDDEN: Final = 64
_CLIP: Final = 5.0
"""SMILE's τ (Song & Ermon 2020, eq. 10)."""


@dataclass(frozen=True, slots=True)
class CriticEstimate:
    """``information`` on samples that the critic has not seen and ``train`` on those it was fitted on, nats.

    Much more on the latter says that there are too few samples for this critic.
    """

    information: float
    train: float


class _Critic(nn.Module):
    """Separable: f(x, y) = g(x)·h(y), so all pairs cost one product."""

    def __init__(self, width: int, other: int, generator: torch.Generator) -> None:
        super().__init__()
        self.x = nn.Sequential(nn.Linear(width, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 16))
        self.y = nn.Sequential(nn.Linear(other, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 16))
        for parameter in self.parameters():
            bound = (3 / max(parameter.shape[-1], 1)) ** 0.5 if parameter.dim() == 2 else 0.0
            with torch.no_grad():
                parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """All pairs: ``(N, d)`` and ``(M, e)`` to ``(N, M)``."""
        scores: Tensor = self.x(x) @ self.y(y).T
        return scores


def critic_information(
    x: NDArray[np.floating], y: NDArray[np.floating], bound: Bound = "nwj", seed: int = 0
) -> CriticEstimate:
    """A variational lower bound of I(X; Y) of x ``(N, d)`` and y ``(N, e)``, nats; finite whatever the samples.

    ``nwj`` is E_p[f] − e⁻¹·E_q[e^f] (Nguyen, Wainwright & Jordan 2010) with f normalised by itself, f = 1 + s − log
    mean e^s over the report's own pairs, where it equals Donsker & Varadhan's bound and can't overflow. ``infonce`` is
    at most log N (van den Oord et al. 2018); ``smile`` clips e^f in the partition to e^±5. For labels give their
    one-hot rows: the partition is then over the values themselves, the exact marginal.

    Raises :class:`InformationError` for another bound, sizes that differ, or fewer than twelve samples.
    """
    if bound not in ("nwj", "infonce", "smile"):
        raise InformationError(f"there is no bound {bound!r}: nwj, infonce, smile")
    if len(x) != len(y) or len(x) < 12:
        raise InformationError(f"a critic needs twelve samples or more of both, not {len(x)} and {len(y)}")
    sides = [_scaled(x), _scaled(y)]
    order = np.random.default_rng(seed).permutation(len(x))
    thirds = np.array_split(order, 3)
    found: list[float] = []
    train: list[float] = []
    for turn in range(3):
        parts = [torch.from_numpy(thirds[(turn + shift) % 3]) for shift in range(3)]
        critic = _fit(sides, parts[0], parts[1], bound, torch.Generator().manual_seed(seed + turn))
        for kept, rows in ((found, parts[2]), (train, parts[0])):
            value = 0.0 if critic is None else float(_value(critic, sides[0][rows], sides[1][rows], bound))
            kept.append(value)
    return CriticEstimate(float(np.mean(found)), float(np.mean(train)))


def _fit(
    sides: list[Tensor], learnt: Tensor, checked: Tensor, bound: Bound, generator: torch.Generator
) -> _Critic | None:
    """The critic that does best on ``checked``; ``None`` where none does better than the constant one."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the user's generator before they are drawn anew
        critic = _Critic(sides[0].shape[1], sides[1].shape[1], generator)
    optimizer = torch.optim.AdamW(critic.parameters(), lr=2e-3, weight_decay=1e-2)
    best, kept = 0.0, None
    with torch.enable_grad():
        for step in range(1, _STEPS + 1):
            batch = learnt[torch.randperm(len(learnt), generator=generator)[:256]]
            loss = -_value(critic, sides[0][batch], sides[1][batch], "nwj" if bound == "smile" else bound)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
            optimizer.step()
            if step % _EVERY == 0:
                with torch.no_grad():
                    value = float(_value(critic, sides[0][checked], sides[1][checked], bound))
                if value > best:
                    best, kept = value, {name: held.clone() for name, held in critic.state_dict().items()}
    if kept is None:
        return None
    critic.load_state_dict(kept)
    return critic.requires_grad_(False)


def _value(critic: _Critic, x: Tensor, y: Tensor, bound: Bound) -> Tensor:
    scores = critic(x, y).clamp(-40, 40)
    own, count = scores.diagonal(), len(scores)
    log_count = float(np.log(count))
    if bound == "infonce":
        return (own - scores.logsumexp(1) + log_count).mean()
    others = scores if bound == "nwj" else scores.clamp(-_CLIP, _CLIP)
    # Pairs of other rows alone: x with its own y is not drawn from the product of the marginals.
    apart = others.masked_fill(torch.eye(count, dtype=torch.bool), -torch.inf)
    return own.mean() - (apart.logsumexp((0, 1)) - float(np.log(count * (count - 1))))


def _scaled(side: NDArray[np.floating]) -> Tensor:
    held = torch.from_numpy(np.asarray(side, dtype=np.float32))
    if held.dim() != 2 or not bool(held.isfinite().all()):
        raise InformationError("features must be finite numbers, one row a sample: a layer may have overflowed")
    return (held - held.mean(0)) / held.std(0).clamp(min=1e-6)
