"""How each tiny family is called, and what its layers' attention is, computed the slow way in float64."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from diffusers import DiffusionPipeline
from diffusers.models.embeddings import apply_rotary_emb
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

PROMPT = "a red circle above a crimson square"
CLIP = {"a": [1], "red": [2], "circle": [3], "above": [4], "a#2": [5], "crimson": [6, 7, 8, 9, 10], "square": [11]}
T5 = {"a": [0], "red": [1], "circle": [2], "above": [3], "a#2": [4], "crimson": [5, 6], "square": [7]}
CHAT = {"a": [3], "red": [4], "circle": [5], "above": [6], "a#2": [7], "crimson": [8, 9, 10, 11], "square": [12]}
"""Columns of the words, counted by hand: CLIP begins with a token of its own, a chat with "<|im_start|>user\\n"."""


def shifted(positions: dict[str, list[int]], by: int) -> dict[str, list[int]]:
    return {word: [by + position for position in places] for word, places in positions.items()}


def joined(one: dict[str, list[int]], other: dict[str, list[int]]) -> dict[str, list[int]]:
    return {word: one[word] + other[word] for word in one}


TEXT: dict[str, dict[str, list[int]]] = {
    "sd": CLIP,
    "sdxl": CLIP,
    "sdxl-refiner": CLIP,
    "sd3": joined(CLIP, shifted(T5, 32)),
    "sd3-without-t5": CLIP,
    "sd3.5": joined(CLIP, shifted(T5, 32)),
    "flux": T5,
    "flux2": CHAT,
    "pixart-alpha": T5,
    "pixart-sigma": T5,
    "unclip": shifted(CLIP, 4),
    "kandinsky-prior": CLIP,
    "kandinsky-decoder": {},
    "instruct-pix2pix": CLIP,
    "pag": CLIP,
}
"""Families that read text."""


def call(
    name: str,
    pipe: DiffusionPipeline,
    steps: int = 2,
    seed: int = 0,
    size: tuple[int, int] = (16, 24),
    more: Mapping[str, object] | None = None,
) -> NDArray[np.float32]:
    """Draw; ``size`` is height and width in pixels, which are latents here; ``more`` are arguments of the pipeline."""
    height, width = size
    settings: dict[str, object] = {"num_inference_steps": steps, "generator": torch.Generator().manual_seed(seed)}
    pixels = np.random.default_rng(0).integers(0, 255, (*size, 3), dtype=np.uint8)
    match name:
        case "ddpm":
            settings |= {"batch_size": 1}
        case "dit":
            settings |= {"class_labels": [3]}
        case "kandinsky-prior":
            settings |= {"prompt": PROMPT}
        case "kandinsky-decoder":
            told = torch.randn(1, 32, generator=torch.Generator().manual_seed(3))
            settings |= {
                "image_embeds": told,
                "negative_image_embeds": torch.zeros(1, 32),
                "height": height,
                "width": width,
            }
        case "unclip":
            names = ("prior", "decoder", "super_res")
            settings = {f"{part}_num_inference_steps": steps for part in names} | {"generator": settings["generator"]}
            settings |= {"prompt": PROMPT}
        case "sdxl-refiner":
            settings |= {
                "prompt": PROMPT,
                "image": Image.fromarray(pixels),
                "strength": 0.9,
                "num_inference_steps": steps + 1,
            }
        case "instruct-pix2pix":
            settings |= {"prompt": PROMPT, "image": Image.fromarray(pixels)}
        case _:
            settings |= {"prompt": PROMPT, "height": height, "width": width}
    if name.startswith("pixart"):
        settings |= {"use_resolution_binning": False}
    if name == "flux2":
        settings |= {"guidance_scale": 3.0, "text_encoder_out_layers": (1, 2, 3)}
    kind = "pt" if name == "kandinsky-prior" else "np"
    made = pipe(**(settings | dict(more or {})), output_type=kind)
    return np.asarray(made.image_embeds if name == "kandinsky-prior" else made.images)


class Recorder:
    """What went into the projections of every attention layer, call by call."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        self.layers = layers
        self.calls: dict[str, list[dict[str, object]]] = {name: [] for name in layers}
        self._exact: dict[str, nn.Module] = {}

    def probabilities(self, layer: str, number: int, text_first: bool) -> Tensor:
        """``(B, queries, keys)`` float64, mean over heads, of the layer's call of this number."""
        attention, seen = self.layers[layer], self.calls[layer][number]
        with torch.no_grad():
            if layer not in self._exact:
                self._exact[layer] = copy.deepcopy(attention).double()
            exact = self._exact[layer]
            query, key = (self._rows(exact, seen, part, text_first) for part in ("q", "k"))
            turned = seen.get("image_rotary_emb")
            if turned is not None:
                cosines = tuple(part.double() for part in turned)  # type: ignore[attr-defined]
                query, key = (apply_rotary_emb(part, cosines, sequence_dim=2) for part in (query, key))
            scores = query @ key.transpose(-1, -2) / np.sqrt(query.shape[-1])
            mask = seen.get("attention_mask")
            if isinstance(mask, Tensor):
                held = attention.prepare_attention_mask(mask, seen["keys"], len(query))  # type: ignore[operator]
                scores = (
                    scores + held.view(len(query), attention.heads, -1, held.shape[-1])[..., : key.shape[2]].double()
                )
            weights = scores.exp()
            found: Tensor = (weights / weights.sum(-1, keepdim=True)).mean(1)
            return found

    def _rows(self, exact: nn.Module, seen: dict[str, object], part: str, text_first: bool) -> Tensor:
        heads = exact.heads
        if "to_qkv_mlp_proj" in seen:  # one projection for everything
            whole = exact.to_qkv_mlp_proj(seen["to_qkv_mlp_proj"].double())  # type: ignore[operator,attr-defined]
            inner = int(exact.inner_dim)  # type: ignore[arg-type]
            own = whole[..., :inner] if part == "q" else whole[..., inner : 2 * inner]
            return self._normed(exact, f"norm_{part}", own.unflatten(-1, (heads, -1)).transpose(1, 2))
        found = {}
        for name, norm in ((f"to_{part}", f"norm_{part}"), (f"add_{part}_proj", f"norm_added_{part}")):
            if name in seen:
                out = getattr(exact, name)(seen[name].double())  # type: ignore[attr-defined]
                found[name] = self._normed(exact, norm, out.unflatten(-1, (heads, -1)).transpose(1, 2))
        rows = [found[f"to_{part}"], *([found[f"add_{part}_proj"]] if f"add_{part}_proj" in found else [])]
        return torch.cat(rows[::-1] if text_first else rows, dim=2)

    def _normed(self, exact: nn.Module, norm: str, rows: Tensor) -> Tensor:
        module = getattr(exact, norm, None)
        return rows if module is None else module(rows)


@contextmanager
def recorded(layers: dict[str, nn.Module]) -> Iterator[Recorder]:
    """Record inside the block."""
    recorder = Recorder(layers)
    handles = []
    for name, layer in layers.items():

        def begin(_module: nn.Module, args: object, kwargs: dict[str, object], name: str = name) -> None:
            kept: dict[str, object] = {
                key: kwargs[key] for key in ("image_rotary_emb", "attention_mask") if key in kwargs
            }
            recorder.calls[name].append(kept)

        handles.append(layer.register_forward_pre_hook(begin, with_kwargs=True))
        for part in ("to_q", "to_k", "add_q_proj", "add_k_proj", "to_qkv_mlp_proj"):
            linear = getattr(layer, part, None)
            if isinstance(linear, nn.Module):

                def keep(_module: nn.Module, args: tuple[Tensor, ...], name: str = name, part: str = part) -> None:
                    recorder.calls[name][-1][part] = args[0].detach().clone()
                    if part == "to_k":
                        recorder.calls[name][-1]["keys"] = args[0].shape[1]

                handles.append(linear.register_forward_pre_hook(keep))
    try:
        yield recorder
    finally:
        for handle in handles:
            handle.remove()
