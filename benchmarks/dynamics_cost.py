"""What ``denoscope dynamics`` costs beside drawing the same pictures plainly.

    python -m benchmarks.dynamics_cost [--layers "down_blocks.*,mid_block,up_blocks.*"]

Draws the 1,024 pictures of an eight-valued slot of the embedded model (8 contexts, 16 seeds) and measures them, with
the plain call of every eighth prompt taking turns with the watched one. Prints processor seconds, their ratio, what was
estimated before, and the process's greatest memory, as JSON.
"""

import json
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

import torch
import typer

import denoscope
from denoscope.data.worlds.shapes.scenes import SHAPES, SIZES, VALUES
from denoscope.information.dynamics import anomalies, transfer
from denoscope.information.population import (
    Parts,
    Settings,
    atlas,
    call_pipeline,
    draw_prompt,
    estimate_cost,
    measure_slot,
    plan_population,
    summarise,
    write_part,
)
from denoscope.information.wording.template import Template
from denoscope.pipelines.decoding import decode_latents


def main(
    layers: Annotated[str, typer.Option(help="Layers by commas; the family's usual ones if empty.")] = "",
    permutations: Annotated[int, typer.Option(min=0)] = 200,
) -> None:
    """Measure, and print JSON."""
    torch.set_num_threads(1)
    pipe = denoscope.load("shapes", "cpu")
    pipe.set_progress_bar_config(disable=True)
    template = Template("a {size} {colour} {shape}", {"colour": VALUES["colour"]}, {"size": SIZES, "shape": SHAPES})
    population = plan_population(template)
    settings = Settings(25, 1.5, layers=tuple(layers.split(",")) if layers else ())
    estimated = estimate_cost(pipe, population, settings)
    plain, watched = [], 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, prompt in enumerate(population.prompts):
            if number % 8 == 0:
                begun = time.process_time()
                decode_latents(pipe, call_pipeline(pipe, prompt, population.seeds, settings))
                plain.append(time.process_time() - begun)
            begun = time.process_time()
            write_part(folder, number, draw_prompt(pipe, prompt, population.seeds, settings))
            watched += time.process_time() - begun
        size = sum(path.stat().st_size for path in folder.iterdir())
        begun = time.process_time()
        parts = Parts.open(folder, len(population.prompts))
        beliefs = [measure_slot(parts, population, arm, permutations=permutations) for arm in population.arms]
        summarise(beliefs)
        anomalies(beliefs)
        transfer(beliefs[0], [12, 24])
        atlas(parts, population)
        measured = time.process_time() - begun
    whole = statistics.median(plain) * len(population.prompts)
    print(
        json.dumps(
            {
                "pictures": population.samples,
                "layers": list(parts.layers),
                "plain_seconds": whole,
                "watched_seconds": watched,
                "measured_seconds": measured,
                "ratio": (watched + measured) / whole,
                "estimated_seconds": estimated.seconds,
                "estimated_bytes_over_written": estimated.bytes / size,
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    typer.run(main)
