"""Classifier-free guidance of denoisers."""

import math

from torch import Tensor

from denoscope.sampling.levels import Level
from denoscope.sampling.loop import Denoise
from denoscope.schedules import PredictionType, convert_prediction


def guided(
    conditional: Denoise,
    unconditional: Denoise,
    scale: float,
    *,
    interval: tuple[float, float] = (-math.inf, math.inf),
    rescale: float = 0.0,
    rescaled: PredictionType = "v_prediction",
) -> Denoise:
    """u + scale·(c − u) (Ho & Salimans 2022): scale 1 is off, and then only the conditional denoiser is called.

    Guidance acts where logsnr lies in ``interval`` (Kynkäänniemi et al. 2024); else the conditional one is taken.
    ``rescale`` in [0, 1] mixes in the prediction with its standard deviation brought back to the conditional one's (Lin
    et al. 2023, eq. 15 and 16), per sample, of the type of prediction ``rescaled``.

    Raises :class:`ValueError` when ``rescale`` is not in [0, 1].

    >>> from denoscope.sampling import Level
    >>> import torch
    >>> told, untold = (lambda z, level: z + 1), (lambda z, level: z)
    >>> guided(told, untold, 3.0)(torch.zeros(1, 1), Level(0.6, 0.8))
    tensor([[3.]])
    """
    if not 0 <= rescale <= 1:
        raise ValueError(f"rescale must be in [0, 1], not {rescale!r}")

    def denoise(z: Tensor, level: Level) -> Tensor:
        c = conditional(z, level)
        if scale == 1 or not interval[0] <= level.logsnr <= interval[1]:
            return c
        u = unconditional(z, level)
        mixed = u + scale * (c - u)
        if rescale == 0:
            return mixed
        c_said, said = (convert_prediction(x0, "sample", rescaled, z, level.alpha, level.sigma) for x0 in (c, mixed))
        wanted, found = _std(c_said), _std(said)
        # A prediction without any spread has none to bring back.
        factor = (wanted / found.clamp(min=1e-12)).where(found > 1e-12, wanted.new_ones(()))
        said = said * (rescale * factor + (1 - rescale))
        return convert_prediction(said, rescaled, "sample", z, level.alpha, level.sigma)

    return denoise


def _std(sample: Tensor) -> Tensor:
    return sample.flatten(1).std(1).reshape(-1, *[1] * (sample.dim() - 1))
