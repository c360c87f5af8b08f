"""What may be left out of a run of the embedded model, at what loss.

    python -m benchmarks.budget [--run RUN]

Draws captions of the shapes world in every setting of ``denoscope.information.budget`` and prints a row each: denoiser
rows and MACs a picture, PSNR to a run of four times the steps with the same seeds, share of pictures that show what the
caption says (both with 90 % intervals), and whether no other setting is cheaper and nearer. ``--run`` is a run of
``denoscope dynamics``: economies then begin where its last word is decided, and steps are re-spaced by its curves.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
import xarray as xr
from diffusers import DPMSolverMultistepScheduler
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import denoscope
from denoscope.data.worlds.shapes.captions import describe, parse
from denoscope.data.worlds.shapes.judging import judge
from denoscope.data.worlds.shapes.scenes import sample_scene
from denoscope.information.budget import Setting, measure, spaced_by_information, usual_settings
from denoscope.schedules import logsnr_of


def shows(prompt: str, pictures: Sequence[NDArray[np.uint8]]) -> list[bool]:
    """Whether pictures show all that a caption says."""
    meaning = parse(prompt)
    return [judge(picture, meaning).whole for picture in pictures]


def main(
    run: Annotated[Path | None, typer.Option(help="A run of 'denoscope dynamics' on shapes.")] = None,
    captions: Annotated[int, typer.Option(min=1)] = 16,
    seeds: Annotated[int, typer.Option(min=1)] = 4,
    steps: Annotated[int, typer.Option(min=4)] = 25,
    t50: Annotated[float, typer.Option(help="Decision time, log-SNR, without --run.")] = -1.0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    pipe = denoscope.load("shapes", "cpu")
    pipe.set_progress_bar_config(disable=True)
    scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)
    scheduler.set_timesteps(steps)
    logsnr = logsnr_of(scheduler, scheduler.timesteps).logsnr.numpy()
    more: list[Setting] = []
    if run is not None:
        with xr.open_dataset(run / "dynamics.nc", engine="h5netcdf") as found:
            written = found.sel(branch="uncond").load()
        t50 = float(written["t50"].min("layer").max("slot"))
        curve = written["curve"].max("layer").sum("slot")
        known = np.interp(logsnr, written["logsnr"].values, curve.values)
        timesteps = scheduler.timesteps.numpy().astype(np.float64)
        for count in (steps * 3 // 5, steps * 2 // 5):
            spaced = spaced_by_information(known, timesteps, count)
            more.append(Setting("re-spaced", f"{count} steps by information", count, timesteps=spaced))
    rng = np.random.default_rng(0)
    prompts = list(dict.fromkeys(describe(sample_scene(rng), rng)[0] for _ in range(captions)))
    table = measure(
        pipe,
        [*usual_settings(steps, logsnr, t50), *more],
        prompts,
        range(seeds),
        steps=steps,
        guidance_scale=1.5,
        judge=shows,
    )
    told = {"captions": len(prompts), "seeds": seeds, "pictures": len(prompts) * seeds, "steps": steps, "t50": t50}
    if as_json:
        names = [str(name) for name in table["setting"].values]
        print(json.dumps(told | {"settings": names} | {str(key): held.values.tolist() for key, held in table.items()}))
        return
    shown = Table("setting", "rows", "GMACs", "PSNR, dB", "right", "front", title=json.dumps(told))
    for number, name in enumerate(table["setting"].values):
        row = {str(key): float(held.values[number]) for key, held in table.items()}
        shown.add_row(
            str(name),
            f"{row['calls']:.0f}",
            f"{row['macs'] / 1e9:.2f}",
            f"{row['psnr']:.1f} ({row['psnr_low']:.1f} to {row['psnr_high']:.1f})",
            f"{row['accuracy']:.2f} ({row['accuracy_low']:.2f} to {row['accuracy_high']:.2f})",
            "yes" if row["front"] else "",
        )
    Console(width=120).print(shown)


if __name__ == "__main__":
    typer.run(main)
