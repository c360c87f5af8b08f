"""Draws the pictures of the documentation: ``make docs``. The report's needs Chromium and playwright.

python -m docs.make_pictures
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import denoscope
from denoscope.data.worlds.shapes import render, sample_scene
from denoscope.observer import plan_generation, trace_generation, word_maps
from denoscope.pipelines import sampling_defaults
from denoscope.reports.figures.attention_grid import attention_grid
from denoscope.reports.figures.canvas import to_image
from denoscope.training.shapes.denoiser import sample_captioned

IMAGES = Path(__file__).parent / "images"


def grid(pictures: list[NDArray[np.uint8]], columns: int, zoom: int = 2) -> Image.Image:
    """Pictures in rows, a white gap between them."""
    framed = [np.pad(picture, ((0, 4), (0, 4), (0, 0)), constant_values=255) for picture in pictures]
    rows = [np.concatenate(framed[i : i + columns], axis=1) for i in range(0, len(framed), columns)]
    image = Image.fromarray(np.concatenate(rows)[:-4, :-4])
    return image.resize((image.width * zoom, image.height * zoom), Image.Resampling.NEAREST)


def draw_world() -> None:
    """Sixteen scenes."""
    rng = np.random.default_rng(1)
    grid([render(sample_scene(rng)) for _ in range(16)], 8).save(IMAGES / "world.png", optimize=True)


def draw_samples() -> None:
    """Sixteen pictures of the embedded model, captions unseen in its training; the first ones, not the best."""
    pipe = denoscope.load("shapes", "cpu")
    pipe.set_progress_bar_config(disable=True)
    defaults = sampling_defaults(pipe)
    rng = np.random.default_rng(20_000)
    drawn = [sample_captioned(rng, unseen=True) for _ in range(16)]
    pictures = pipe(
        [text for _, text, _ in drawn],
        num_inference_steps=defaults.num_inference_steps,
        guidance_scale=defaults.guidance_scale,
        generator=[torch.Generator().manual_seed(20_000 + i) for i in range(16)],
        output_type="np",
    ).images
    grid(list(np.rint(pictures * 255).astype(np.uint8)), 8).save(IMAGES / "samples.png", optimize=True)
    print("\n".join(text for _, text, _ in drawn))


def draw_attention() -> None:
    """What ``denoscope attention`` draws of the demo's prompt, with its default options."""
    pipe = denoscope.load("shapes", "cpu")
    pipe.set_progress_bar_config(disable=True)
    traced = trace_generation(pipe, plan_generation(pipe, "a red circle above a blue square"), x0=False)
    maps = word_maps(traced.trace).sel(word=["red", "circle", "blue", "square"])
    drawing = attention_grid(maps, traced.picture, [2, 8, 15, 22])
    to_image(drawing).save(IMAGES / "attention-grid.png", optimize=True)


def draw_report() -> None:
    """The top of the report of the demo's trace."""
    import subprocess
    import sys

    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        denoscope_command = Path(sys.executable).parent / "denoscope"
        prompt = "a red circle above a blue square"
        subprocess.run([denoscope_command, "trace", prompt, "--out", run], check=True, stdout=subprocess.DEVNULL)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-background-networking"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto((run / "report.html").as_uri())
            page.wait_for_timeout(1500)
            page.screenshot(path=IMAGES / "report.png")
            browser.close()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_world()
    draw_samples()
    draw_attention()
    draw_report()
