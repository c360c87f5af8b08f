"""Samplers: one loop, many solvers, on any grid of noise levels and any denoiser."""

from denoscope.sampling.levels import Grid, Level
from denoscope.sampling.loop import Denoise, Known, Record, SamplingError, Solver, Step, sample
from denoscope.sampling.noise import NoiseSource
from denoscope.sampling.solvers import SOLVERS

__all__ = [
    "SOLVERS",
    "Denoise",
    "Grid",
    "Known",
    "Level",
    "NoiseSource",
    "Record",
    "SamplingError",
    "Solver",
    "Step",
    "sample",
]
