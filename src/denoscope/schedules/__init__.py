"""Noise schedules and what can be derived from them.

Everywhere in denoscope a noisy sample is ``z = α·x0 + σ·ε``, with ``α² + σ² = 1`` for the discrete diffusion
schedules (α² is diffusers' ``alphas_cumprod``), and the noise level is told by ``logsnr = log(α²/σ²)``.
"""

from denoscope.schedules.continuous import ContinuousSchedule, Family
from denoscope.schedules.learned import LearnedSchedule
from denoscope.schedules.noise import NoiseSchedule
from denoscope.schedules.prediction import PredictionType, convert_prediction, min_snr_weight, q_sample, sigmoid_weight
from denoscope.schedules.schedulers import NoiseLevels, logsnr_of, prediction_type_of, signal_and_noise

__all__ = [
    "ContinuousSchedule",
    "Family",
    "LearnedSchedule",
    "NoiseLevels",
    "NoiseSchedule",
    "PredictionType",
    "convert_prediction",
    "logsnr_of",
    "min_snr_weight",
    "prediction_type_of",
    "q_sample",
    "sigmoid_weight",
    "signal_and_noise",
]
