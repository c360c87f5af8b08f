"""Solvers: each takes one step of the sampling loop. :data:`SOLVERS` gives them by the names that people know."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from denoscope.sampling.loop import Solver
from denoscope.sampling.solvers.corrector import with_langevin
from denoscope.sampling.solvers.multistep import adams, dpmpp_2m, dpmpp_3m, plms
from denoscope.sampling.solvers.single import ddim, ddpm, dpm2, dpmpp_2s, heun
from denoscope.sampling.solvers.unipc import unipc

SOLVERS: Final[MappingProxyType[str, Callable[[], Solver]]] = MappingProxyType(
    {
        "ddpm": ddpm,
        "ddpm_large": lambda: ddpm("fixed_large"),
        "ddim": ddim,
        "euler": ddim,
        "euler_ancestral": lambda: ddim(eta=1.0),
        "heun": heun,
        "dpm2": dpm2,
        "lms": adams,
        "deis": lambda: adams(3, "log", lower_order_final=True),
        "dpmpp_1s": ddim,
        "dpmpp_2s": dpmpp_2s,
        "dpmpp_2m": dpmpp_2m,
        "dpmpp_3m": dpmpp_3m,
        "dpmpp_2m_sde": lambda: dpmpp_2m(eta=1.0),
        "dpmpp_3m_sde": lambda: dpmpp_3m(eta=1.0),
        "unipc": unipc,
        "pndm": plms,
        "predictor_corrector": lambda: with_langevin(ddim(eta=1.0)),
    }
)
"""Solvers with their usual settings, by name."""

__all__ = [
    "SOLVERS",
    "adams",
    "ddim",
    "ddpm",
    "dpm2",
    "dpmpp_2m",
    "dpmpp_2s",
    "dpmpp_3m",
    "heun",
    "plms",
    "unipc",
    "with_langevin",
]
