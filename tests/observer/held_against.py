"""Holds what the observer saw of one call against float64, place by place, and the pipeline against what it was."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from attention_reference import on_latent_grid
from diffusers import DiffusionPipeline
from family_calls import recorded
from numpy.typing import NDArray
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from denoscope import observe
from denoscope.observer import Observer
from denoscope.observer import observer as observer_module
from denoscope.pipelines import adapter_for
from denoscope.pipelines.adapters import Attends, Branch

Draw = Callable[[], NDArray[np.float32]]
Order = Literal["text", "text, then places", "places, then text", "keys added in front", "answer last"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a family's words and places stand among the queries and keys of its layers.

    ``words`` are columns of the text; ``None`` for a denoiser that reads none. ``row`` is the row of a call that has
    the prompt, ``calls`` how often the denoiser is called in a step, ``turn`` which of these calls is meant, ``text``
    how many columns joint layers have of it, ``patch`` how many latents each way are one of their places.
    """

    words: Mapping[str, list[int]] | None
    row: int = 1
    order: Order = "text"
    calls: int = 1
    turn: int = 0
    text: int = 32
    patch: int = 1

    def parts(self, queries: int, keys: int, latents: int) -> tuple[slice, slice, slice]:
        """The queries that are places, the keys that are text, the keys that are places."""
        places = latents // self.patch**2
        match self.order:
            case "text":  # or, in self-attention, places alone
                return slice(0, queries), slice(0, keys), slice(0, keys)
            case "keys added in front":
                return slice(0, queries), slice(0, keys - queries), slice(keys - queries, keys)
            case "answer last":
                return slice(queries - 1, queries), slice(0, self.text), slice(self.text, keys)
            case "text, then places":
                there = slice(self.text, self.text + places)
                return there, slice(0, self.text), there
            case "places, then text":
                return slice(0, places), slice(places, keys), slice(0, places)

    @property
    def text_first(self) -> bool:
        return self.order in ("text, then places", "keys added in front")


def belongings(pipe: DiffusionPipeline) -> dict[str, object]:
    """All that an observer could leave: attributes, hooks, processors, modes, random numbers' state."""
    found: dict[str, object] = {"pipe": set(vars(pipe))}
    for part, thing in pipe.components.items():
        if isinstance(thing, nn.Module):
            for name, module in thing.named_modules():
                kept = {key: dict(value) if isinstance(value, dict) else value for key, value in vars(module).items()}
                found[f"{part}.{name}"] = kept
        elif hasattr(thing, "__dict__"):
            found[part] = set(vars(thing))
    found["modes"] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    found["watched"] = set(observer_module._watched)
    found["random"] = torch.get_rng_state().tolist()
    return found


def weights(pipe: DiffusionPipeline) -> dict[str, torch.Tensor]:
    parts = {name: part for name, part in pipe.components.items() if isinstance(part, nn.Module)}
    return {f"{part}.{name}": w.clone() for part, module in parts.items() for name, w in module.state_dict().items()}


def check_undisturbed(pipe: DiffusionPipeline, draw: Draw, reads_text: bool) -> None:
    """The same picture to the last bit, and nothing left behind."""
    attention: Attends | None = "cross" if reads_text else None
    with undisturbed(pipe, draw) as drawn, observe(pipe, attention=attention, features=True) as watch:
        drawn.append(draw())
    check_levels(watch)


def check_levels(watch: Observer) -> None:
    """Noise falls from step to step, and features are numbers."""
    rises = np.diff(watch.trace.logsnr)
    assert bool(np.all(rises >= 0))  # Heun's second look is at the same level
    assert len(rises) == 0 or float(rises.sum()) > 0
    for features in watch.features.values():
        assert bool(np.isfinite(features["mean"]).all())


@contextmanager
def undisturbed(
    pipe: DiffusionPipeline, draw: Draw, kept: Callable[[DiffusionPipeline], object] | None = None
) -> Iterator[list[NDArray[np.float32]]]:
    """What is drawn inside, and put into the list, is what is drawn outside; and nothing is left behind.

    ``kept`` tells what must stay, where a pipeline makes some of its :func:`belongings` anew in each call.
    """
    told = kept or belongings
    plain = draw()
    before, state = told(pipe), weights(pipe)
    drawn: list[NDArray[np.float32]] = []
    yield drawn
    (seen,) = drawn
    assert seen.tobytes() == plain.tobytes()
    assert bool(np.isfinite(plain).all())
    assert float(plain.std()) > 0
    assert told(pipe) == before
    after = weights(pipe)
    assert all(torch.equal(state[name], after[name]) for name in state | after)


def check_words(
    pipe: DiffusionPipeline,
    draw: Draw,
    layout: Layout,
    steps: int = 2,
    branch: Branch = "cond",
    prompt: str | None = None,
    kept: Callable[[DiffusionPipeline], object] | None = None,
) -> None:
    """Every word's mass at every place, layer and step, and the mass of all columns of text; undisturbed."""
    layers = dict(adapter_for(pipe).layers(pipe, "cross"))
    assert layers
    with undisturbed(pipe, draw, kept) as drawn, recorded(layers) as reference:  # noqa: SIM117
        with observe(pipe, branch=branch, prompt=prompt, features=True) as watch:
            drawn.append(draw())
    trace = watch.trace
    assert trace.layer.values.tolist() == list(layers)
    assert trace.sizes["step"] == steps
    check_levels(watch)
    assert layout.words is not None
    assert trace.word.values.tolist() == list(layout.words)
    size = trace.sizes["y"], trace.sizes["x"]
    seen = trace.attention.transpose("layer", "step", "word", "y", "x").values
    mass = trace.token_mass.transpose("layer", "step", "token_kind").values
    np.testing.assert_allclose(mass.sum(-1), 1, atol=1e-5)
    of_text = mass[..., trace.token_kind.values != "picture"].sum(-1)
    for place, layer in enumerate(layers):
        for step in range(steps):
            whole = reference.probabilities(layer, step * layout.calls + layout.turn, layout.text_first)
            rows = whole[layout.row].numpy()
            asking, text, _ = layout.parts(len(rows), rows.shape[1], size[0] * size[1])
            told = rows[asking][:, text]
            for word, positions in enumerate(layout.words.values()):
                expected = on_latent_grid(told[:, positions].sum(-1), *size)
                np.testing.assert_allclose(seen[place, step, word], expected, atol=1e-5)
            np.testing.assert_allclose(of_text[place, step], told.sum(-1).mean(), atol=1e-5)
    if layout.words:  # the reference tells words apart
        assert float(seen.std(2).mean()) > 0.1 * float(seen.mean())


def check_places(pipe: DiffusionPipeline, draw: Draw, layout: Layout) -> None:
    """Where the left half of the picture looks, in every layer of the last of two steps."""
    layers = dict(adapter_for(pipe).layers(pipe, "self"))
    with recorded(layers) as reference, observe(pipe, attention="self", region=(0, 0, 0.5, 1)) as watch:
        draw()
    trace = watch.trace
    height, width = trace.sizes["y"], trace.sizes["x"]
    for layer in layers:
        whole = reference.probabilities(layer, layout.calls, layout.text_first)[layout.row].numpy()
        asking, _, places = layout.parts(len(whole), whole.shape[1], height * width)
        rows, count = whole[asking], places.stop - places.start
        columns = next(-(-width // 2**n) for n in range(8) if -(-height // 2**n) * -(-width // 2**n) == count)
        left = [place for place in range(count) if (place % columns + 0.5) / columns < 0.5]
        expected = rows[left][:, places].mean(0)
        seen = trace.self_attention.sel(layer=layer).isel(step=1)
        np.testing.assert_allclose(seen, on_latent_grid(expected, height, width), atol=1e-5)
