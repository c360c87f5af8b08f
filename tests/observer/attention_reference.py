"""Attention maps the slow way: every probability, from the layers' own inputs and weights, in float64."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from numpy.typing import NDArray
from torch import Tensor, nn


class Recorder:
    """What went into ``to_q`` and ``to_k`` of every cross-attention layer, call by call."""

    def __init__(self, pipe: StableDiffusionPipeline) -> None:
        self.layers = {name: module for name, module in pipe.unet.named_modules() if name.endswith("attn2")}
        self.inputs: dict[tuple[str, str], list[Tensor]] = {}

    def probabilities(self, layer: str, step: int) -> NDArray[np.float64]:
        """``(B, places, tokens)``, the mean over heads."""
        attention = self.layers[layer]
        queries, keys = (
            self._heads(self.inputs[layer, part][step], getattr(attention, part), attention.heads)
            for part in ("to_q", "to_k")
        )
        scores = queries @ keys.transpose(-1, -2) / np.sqrt(queries.shape[-1])
        weights = scores.exp()
        return np.asarray((weights / weights.sum(-1, keepdim=True)).mean(1))

    def _heads(self, states: Tensor, linear: nn.Linear, heads: int) -> Tensor:
        out = states.double() @ linear.weight.detach().double().T
        return out.reshape(len(out), out.shape[1], heads, -1).transpose(1, 2)


@contextmanager
def recorded(pipe: StableDiffusionPipeline) -> Iterator[Recorder]:
    """Record inside the block."""
    recorder = Recorder(pipe)

    def keep(layer: str, part: str) -> torch.utils.hooks.RemovableHandle:
        def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            recorder.inputs.setdefault((layer, part), []).append(args[0].detach().clone())

        handle: torch.utils.hooks.RemovableHandle = getattr(recorder.layers[layer], part).register_forward_pre_hook(
            hook
        )
        return handle

    handles = [keep(layer, part) for layer in recorder.layers for part in ("to_q", "to_k")]
    try:
        yield recorder
    finally:
        for handle in handles:
            handle.remove()


def on_latent_grid(mass: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    """``(places,)`` of some level of the U-Net, repeated to the latent's ``(height, width)``."""
    for level in range(8):
        rows, columns = -(-height // 2**level), -(-width // 2**level)
        if rows * columns == len(mass):
            table = mass.reshape(rows, columns)
            fine: NDArray[np.float64] = table[np.arange(height)[:, None] // 2**level, np.arange(width) // 2**level]
            return fine
    raise AssertionError(f"{len(mass)} places are no level of {height} x {width}")
