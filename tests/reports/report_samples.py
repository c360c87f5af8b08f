"""A made-up trace whose pictures and maps look like those of a small model, for the tests of reports."""

from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from PIL import Image

from denoscope.reports import ReportImages
from denoscope.reports.facts import Json

LAYERS = [
    f"{side}.attentions.{number}.transformer_blocks.0.attn2"
    for side, number in [
        ("down_blocks.1", 0),
        ("down_blocks.2", 0),
        ("mid_block", 0),
        ("up_blocks.1", 0),
        ("up_blocks.1", 1),
        ("up_blocks.2", 0),
    ]
]
WORDS = ["small", "crimson", "circle", "above", "large", "striped", "blue", "square"]
PROMPT = "a small crimson circle above a large striped blue square"
CENTRES = {"crimson": (0.32, 0.3), "circle": (0.32, 0.3), "small": (0.32, 0.3), "blue": (0.62, 0.72)}


def make_trace(
    prompt: str = PROMPT,
    words: list[str] | None = None,
    steps: int = 25,
    size: int = 16,
    layers: list[str] | None = None,
    attention: bool = True,
    guidance: bool = True,
    zero_snr: bool = False,
    hole: int | None = None,
    information: str = "",
) -> xr.Dataset:
    """A trace in which maps gather as the noise falls.

    ``hole`` is a step that was not observed; ``information`` the quantity of what words add, if they were left out.
    """
    rng = np.random.default_rng(0)
    words = WORDS if words is None else words
    layers = LAYERS if layers is None else layers
    logsnr = np.linspace(-6.2, 7.4, steps) + 1.1 * np.sin(np.linspace(0, 3, steps))
    if zero_snr:
        logsnr[0] = -np.inf
    clean = np.linspace(0, 1, steps)
    y, x = np.mgrid[0:size, 0:size] / (size - 1)
    maps = np.zeros((len(words), steps, len(layers), size, size), np.float32)
    for index, word in enumerate(words):
        cx, cy = CENTRES.get(word.split("#")[0], (0.62, 0.72) if index > 4 else (0.5, 0.5))
        blob = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 0.03)
        for layer in range(len(layers)):
            strength = (0.02 + 0.16 * (layer % 4) / 3) * (0.4 + 0.6 * (index % 3) / 2)
            # Each word is looked at most around its own time.
            when = np.exp(-((clean - 0.25 - 0.08 * index) ** 2) / 0.08)
            base = 0.015 * (1 + index % 3) * (1 + 0.1 * rng.random((steps, 1, 1)))
            maps[index, :, layer] = base + (strength * (0.2 + when) * clean)[:, None, None] * blob
            maps[index, :, layer] += 0.004 * rng.random((steps, size, size))
    coords = {
        "step": np.arange(steps),
        "timestep": ("step", np.linspace(999, 1, steps).astype(np.float32)),
        "sigma": ("step", np.exp(-np.where(np.isfinite(logsnr), logsnr, -7) / 2).astype(np.float32)),
        "logsnr": ("step", logsnr.astype(np.float32)),
        "layer": np.array(layers),
        "y": np.arange(size),
        "x": np.arange(size),
    }
    trace = xr.Dataset(
        {
            "x0": (
                ("step", "channel", "y", "x"),
                rng.standard_normal((steps, 4, size, size)).astype(np.float32),
            )
        },
        coords=coords,
        attrs={"prompt": prompt, "negative_prompt": "", "guidance_scale": 4.0, "denoscope_version": "0.1.0"},
    )
    if attention:
        kinds = np.array(["bos", "words", "eos", "padding"])
        wave = np.stack([0.55 - 0.2 * clean, 0.2 + 0.25 * clean, 0.1 + 0 * clean, 0.15 - 0.05 * clean])
        shares = np.repeat(wave[:, :, None], len(layers), 2).astype(np.float32)
        tokens = [f"{word[:3]}·{word[3:]}</w>" if len(word) > 6 else f"{word}</w>" for word in words]
        trace = trace.assign_coords(word=np.array(words, dtype=str), token_kind=kinds)
        trace = trace.assign_coords(word_tokens=("word", np.array(tokens, dtype=str)))
        trace["attention"] = (("word", "step", "layer", "y", "x"), maps)
        trace["token_mass"] = (("token_kind", "step", "layer"), shares / shares.sum(0))
    if guidance:
        shape = np.exp(-((x - 0.5) ** 2 + (y - 0.5) ** 2) / 0.1)
        pull = 2.5 * np.exp(-((clean - 0.3) ** 2) / 0.06) + 0.15
        noise = 0.8 + 0.4 * rng.random((steps, size, size))
        trace["guidance"] = (("step", "y", "x"), (pull[:, None, None] * shape * noise).astype(np.float32))
    if information:
        rates = maps.mean(2) * np.exp(-((clean - 0.4) ** 2) / 0.05)[:, None, None]
        spans = np.diff(logsnr, prepend=logsnr[0])
        spans[~np.isfinite(spans)] = 0
        trace["information_rate"] = (("word", "step", "y", "x"), rates)
        trace["information_written"] = (("word", "step", "y", "x"), (rates * spans[:, None, None]).cumsum(1))
        trace["information_total"] = ("word", trace["information_written"][:, -1].sum(("y", "x")).values)
        trace["information_gradient"] = (("word", "step"), maps.sum((2, 3, 4)))
        trace.attrs.update(information_quantity=information, information_how="omit")
    if hole is not None:
        for name in ("attention", "guidance", "token_mass"):
            if name in trace:
                trace[name] = trace[name].where(trace["step"] != hole)
    return trace


def picture(clean: float, side: int = 64) -> NDArray[np.uint8]:
    """A picture of two shapes that comes out of a blur as ``clean`` goes from 0 to 1; (side, side, 3)."""
    y, x = np.mgrid[0:side, 0:side] / (side - 1)
    soft = 0.008 + 0.35 * (1 - clean) ** 2
    circle = 1 / (1 + np.exp((np.hypot(x - 0.32, y - 0.3) - 0.15) / soft))
    square = 1 / (1 + np.exp((np.maximum(abs(x - 0.62), abs(y - 0.72)) - 0.2) / soft))
    stripes = 0.75 + 0.25 * np.sign(np.sin(y * 60)) * clean
    ground = np.array([226, 224, 218.0])
    result = ground + circle[..., None] * (np.array([196, 30, 58]) - ground)
    result += (square * stripes)[..., None] * (np.array([40, 80, 190]) - ground)
    return np.asarray(np.clip(result, 0, 255), np.uint8)


def make_images(folder: Path, steps: int = 25, side: int = 64) -> ReportImages:
    """Write pictures as a run folder has them."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for step in range(steps):
        Image.fromarray(picture(step / max(steps - 1, 1), side)).save(folder / f"images/x0_{step:03d}.png")
    Image.fromarray(picture(1.0, side)).save(folder / "images/final.png")
    return ReportImages.of_folder(folder)


MANIFEST: dict[str, Json] = {
    "schema_version": 1,
    "denoscope_version": "0.1.0",
    "command": "trace",
    "arguments": {"prompt": PROMPT, "steps": 25, "guidance_scale": 4.0, "seed": 7, "negative_prompt": None},
    "versions": {"python": "3.11.9", "torch": "2.13.0", "diffusers": "0.40.1", "transformers": "5.2.0"},
    "model": {
        "name": "shapes",
        "source": "embedded",
        "pipeline": "StableDiffusionPipeline",
        "scheduler": "DDPMScheduler",
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    },
    "seed": 7,
    "device": "cpu",
    "dtype": "float32",
    "started": "2026-12-01T15:30:12Z",
    "seconds": {"load": 1.91, "sample": 6.42, "report": 0.53},
    "words": WORDS,
    "files": {},
}
