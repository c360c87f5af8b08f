"""What a denoiser may predict, and how one prediction follows from another.

All functions take the noise level as a number or one number a sample, ``(B,)``, and samples ``(B, …)``. They
compute in float32 at least, whatever the samples' dtype, and return the samples' dtype.
"""

from typing import Final, Literal, get_args

import torch
from torch import Tensor

PredictionType = Literal["epsilon", "sample", "v_prediction", "flow_prediction"]
"""diffusers' names: the noise ε, the clean sample x0, v = α·ε − σ·x0 (Salimans & Ho 2022), or ε − x0."""

_TYPES: Final[tuple[str, ...]] = get_args(PredictionType)


def q_sample(clean: Tensor, noise: Tensor, alpha: Tensor | float, sigma: Tensor | float) -> Tensor:
    """The noisy sample z = α·x0 + σ·ε (Ho et al. 2020, eq. 4): shape and dtype of ``clean``.

    >>> q_sample(torch.ones(1, 2), torch.zeros(1, 2), 0.6, 0.8)
    tensor([[0.6000, 0.6000]])
    """
    work = _work_dtype(clean)
    mixed = _spread(alpha, clean) * clean.to(work) + _spread(sigma, clean) * noise.to(work)
    return mixed.to(clean.dtype)


def convert_prediction(
    prediction: Tensor,
    from_: PredictionType,
    to: PredictionType,
    z: Tensor,
    alpha: Tensor | float,
    sigma: Tensor | float,
) -> Tensor:
    """Say a prediction in other words, given the noisy sample ``z``: shape and dtype of ``prediction``.

    Holds for any α and σ, not only where α² + σ² = 1.

    Raises :class:`ValueError` for an unknown name, and where one does not follow from the other: from ε
    nothing can be told about x0 when no signal is left (α = 0), and from x0 nothing about ε when there is no
    noise (σ = 0).

    >>> z, v = torch.tensor([[1.0]]), torch.tensor([[0.5]])
    >>> convert_prediction(v, "v_prediction", "sample", z, alpha=0.6, sigma=0.8)
    tensor([[0.2000]])
    """
    for name in (from_, to):
        if name not in _TYPES:
            raise ValueError(f"unknown prediction type {name!r}; known are {', '.join(_TYPES)}")
    if from_ == to:
        return prediction
    if from_ == "epsilon" and _any_zero(alpha):
        raise ValueError(f"{to} does not follow from epsilon where no signal is left (alpha = 0)")
    if from_ == "sample" and _any_zero(sigma):
        raise ValueError(f"{to} does not follow from sample where there is no noise (sigma = 0)")
    given, noisy = prediction.to(_work_dtype(prediction)), z.to(_work_dtype(z))
    a, s = _spread(alpha, prediction), _spread(sigma, prediction)
    match from_:
        case "epsilon":
            clean, noise = (noisy - s * given) / a, given
        case "sample":
            clean, noise = given, (noisy - a * given) / s
        case "v_prediction":
            power = a**2 + s**2
            clean, noise = (a * noisy - s * given) / power, (s * noisy + a * given) / power
        case "flow_prediction":
            clean, noise = (noisy - s * given) / (a + s), (noisy + a * given) / (a + s)
    match to:
        case "epsilon":
            result = noise
        case "sample":
            result = clean
        case "v_prediction":
            result = a * noise - s * clean
        case "flow_prediction":
            result = noise - clean
    return result.to(prediction.dtype)


def min_snr_weight(logsnr: Tensor, gamma: float, prediction_type: PredictionType) -> Tensor:
    """The weight of a sample's squared error, so that it counts as min(SNR, γ) on x0 (Hang et al. 2023).

    Shape and dtype of ``logsnr``; finite also at ±inf. For ε that is min(1, γ/SNR), for v min(SNR,
    γ)/(SNR+1).

    Raises :class:`ValueError` for an unknown prediction type or γ not positive.

    >>> min_snr_weight(torch.tensor([-torch.inf, 0.0, torch.inf]), 5.0, "v_prediction")
    tensor([0.0000, 0.5000, 0.0000])
    """
    if not gamma > 0:
        raise ValueError(f"gamma must be positive, not {gamma!r}")
    snr = logsnr.exp()
    match prediction_type:
        case "sample":
            return snr.clamp(max=gamma)
        case "epsilon":
            return (gamma / snr).clamp(max=1)
        case "v_prediction":
            return snr.clamp(max=gamma) / (snr + 1)
        case "flow_prediction":
            # x0 is off by σ/(α+σ) of what ε − x0 is off.
            return snr.clamp(max=gamma) / (snr.sqrt() + 1) ** 2
        case _:
            raise ValueError(f"unknown prediction type {prediction_type!r}; known are {', '.join(_TYPES)}")


def sigmoid_weight(logsnr: Tensor, bias: float = 2.0) -> Tensor:
    """The weight sigmoid(bias − logsnr) for the squared error of a v-prediction (Hoogeboom et al. 2024, "SiD2").

    Shape and dtype of ``logsnr``. It leaves the noisy end alone, where content is decided, and fades out the clean end,
    where an error on v is σ times smaller on the picture. Min-SNR does the opposite at the noisy end: at logsnr −4 it
    multiplies the v-loss by .018, this by .998.

    >>> sigmoid_weight(torch.tensor([-4.0, 2.0, 8.0]))
    tensor([0.9975, 0.5000, 0.0025])
    """
    return torch.sigmoid(bias - logsnr)


def _work_dtype(sample: Tensor) -> torch.dtype:
    return torch.promote_types(sample.dtype, torch.float32)


def _spread(level: Tensor | float, sample: Tensor) -> Tensor:
    """A number, or ``(B,)``, as something that multiplies ``(B, …)``."""
    tensor = torch.as_tensor(level, dtype=torch.float64).to(_work_dtype(sample)).to(sample.device)
    return tensor.reshape(-1, *[1] * (sample.dim() - 1)) if tensor.dim() else tensor


def _any_zero(level: Tensor | float) -> bool:
    return bool((level == 0).any()) if isinstance(level, Tensor) else level == 0
