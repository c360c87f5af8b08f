"""``denoscope robustness``: how a small change of the text or the latents grows along layers and steps."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from denoscope.cli.manifests import manifest_of
from denoscope.cli.options import OptionError
from denoscope.cli.quiet import quieten_libraries
from denoscope.runs import new_run

if TYPE_CHECKING:
    import xarray as xr

    from denoscope.information.robustness import Direction, Of

EXAMPLES: Final = (
    "Examples:\n\n"
    'denoscope robustness "a red circle above a blue square"\n\n'
    'denoscope robustness "a red circle" --of latent --direction adversarial --draws 4\n\n'
    'denoscope robustness "a dog on a mat" --model ./my-stable-diffusion --layers "up_blocks.*" --json'
)


def robustness(
    prompt: Annotated[str, typer.Argument(help="What the picture should show.")],
    model: Annotated[
        str, typer.Option(help="'shapes' (embedded), 'exact-shapes', a pipeline's folder, or a hub id.")
    ] = "shapes",
    of: Annotated[str, typer.Option(help="What is changed: prompt (the text's embedding) or latent.")] = "prompt",
    direction: Annotated[
        str, typer.Option(help="random, or adversarial: the direction that moves the prediction most.")
    ] = "random",
    size: Annotated[float, typer.Option(help="Length of the change over that of what is changed.")] = 0.01,
    draws: Annotated[int, typer.Option(min=2, help="Directions tried.")] = 8,
    layers: Annotated[
        str | None, typer.Option(metavar="A,B", help="Layers by name or glob; by default the family's usual ones.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the starting noise and the changes.")] = 0,
    num_inference_steps: Annotated[int | None, typer.Option(help="Scheduler steps; by default the model's.")] = None,
    guidance_scale: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; 1 turns it off; by default the model's.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Run folder to write; by default runs/TIME-PROMPT.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Measure how a small change of the text's embedding or of the latents grows along layers and steps.

    Gain: relative change of a layer's output over that of the input, at the latents of one generation. Drift: the
    generation drawn again with the change, its latents compared step by step. Writes a run folder: robustness.nc,
    gains.svg, gains.png and run.json.
    """
    if of not in ("prompt", "latent"):
        raise OptionError(f"--of {of!r} is unknown: give prompt or latent")
    if direction not in ("random", "adversarial"):
        raise OptionError(f"--direction {direction!r} is unknown: give random or adversarial")
    names = [name.strip() for name in layers.split(",") if name.strip()] if layers else []
    started, clock = datetime.now(UTC), time.perf_counter()
    quieten_libraries()
    # Imported here, so that --help and mistakes in the options answer at once.
    from denoscope.information.robustness import robustness as measure
    from denoscope.observer import plan_generation
    from denoscope.observer.tracing import call_arguments
    from denoscope.pipelines import load
    from denoscope.reports.figures.canvas import to_image, to_svg
    from denoscope.reports.figures.robustness import robustness_figure

    with new_run(out, slug=prompt) as run:
        pipe = load(model, device)
        pipe.set_progress_bar_config(disable=True)
        seconds = {"load": time.perf_counter() - clock}
        plan = plan_generation(
            pipe, prompt, seed=seed, steps=num_inference_steps, guidance_scale=guidance_scale, words=None
        )
        clock = time.perf_counter()
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as progress:
            bar = progress.add_task("measuring", total=plan.num_inference_steps)
            found = measure(
                pipe,
                prompt,
                of=cast("Of", of),
                direction=cast("Direction", direction),
                size=size,
                draws=draws,
                layers=names,
                seed=seed,
                guidance_scale=plan.guidance_scale,
                on_step=lambda step: progress.update(bar, completed=step + 1),
                **call_arguments(pipe, plan),
            )
        seconds["measure"] = time.perf_counter() - clock
        run.write_trace(found, "robustness.nc")
        figure = robustness_figure(found)
        (run.folder / "gains.svg").write_text(to_svg(figure), "utf-8", newline="\n")
        to_image(figure).save(run.folder / "gains.png", optimize=True)
        run.finish(
            manifest_of(
                "robustness",
                pipe,
                model,
                arguments={
                    "prompt": prompt,
                    "of": of,
                    "direction": direction,
                    "size": size,
                    "draws": draws,
                    "layers": names,
                    "num_inference_steps": plan.num_inference_steps,
                    "guidance_scale": plan.guidance_scale,
                },
                seed=seed,
                started=started,
                seconds=seconds,
                words=[],
            )
        )
    _tell(run.final, found, as_json)


def _tell(folder: Path, found: "xr.Dataset", as_json: bool) -> None:
    from denoscope.information.robustness import by_part

    rows = by_part(found)
    if as_json:
        typer.echo(json.dumps({"run": str(folder), "parts": [row._asdict() for row in rows]}, allow_nan=False))
        return
    table = Table("part", "gain, mean over steps", "greatest", "at log-SNR")
    for row in rows:
        interval = f"{row.mean:.2f} ({row.low:.2f} to {row.high:.2f})"
        table.add_row(escape(row.part), interval, f"{row.greatest:.2f}", f"{row.at:.2f}")
    Console(width=100).print(table)
    typer.echo(str(folder))
