"""``denoscope dynamics``: when, where and how strongly a model knows the words of a prompt."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from denoscope.cli.dynamics_result import tell, write_results
from denoscope.cli.manifests import manifest_of
from denoscope.cli.options import OptionError
from denoscope.cli.quiet import quieten_libraries
from denoscope.runs.resumable import begin_run, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelerate import PartialState
    from diffusers import DiffusionPipeline

    from denoscope.information.population import ExperimentPlan
    from denoscope.information.wording.template import Template

EXAMPLES: Final = (
    "Examples:\n\n"
    'denoscope dynamics --template "a {colour} {shape}" --slot colour=red,green,blue,yellow '
    "--slot shape=circle,square,triangle,cross\n\n"
    'denoscope dynamics --template "a {size} {colour} {shape} above a blue square" --slot colour=red,green,cyan,pink '
    "--context size=small,large --context shape=circle,cross,triangle --seeds 32 --out colour-run\n\n"
    'denoscope dynamics --from-prompt "a small red circle" --out slots.yaml\n\n'
    "denoscope dynamics --file slots.yaml\n\n"
    "denoscope dynamics --resume colour-run\n\n"
    'accelerate launch -m denoscope dynamics --template "a {colour} circle" --slot colour=red,blue'
)
_PARTS: Final = "features"


def dynamics(
    template: Annotated[
        str | None, typer.Option(help="The prompt with fields in braces, such as 'a {colour} {shape}'.")
    ] = None,
    slot: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=A,B,…", help="A field to measure, and its substitutes; may be given again."),
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=A,B,…", help="A field that only varies, and its values; may be given again."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Template, slots and contexts from a YAML file.")] = None,
    from_prompt: Annotated[
        str | None, typer.Option(help="Propose slots and substitutes for a prompt, write them to --out, and stop.")
    ] = None,
    model: Annotated[str, typer.Option(help="'shapes' (embedded), a pipeline's folder, or a hub id.")] = "shapes",
    contexts: Annotated[int, typer.Option(min=1, help="How many contexts a slot is measured in.")] = 8,
    seeds: Annotated[int, typer.Option(min=2, help="Pictures of each prompt; all prompts have the same seeds.")] = 16,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="The first seed; it also decides the contexts.")] = 0,
    layers: Annotated[
        str | None, typer.Option(metavar="A,B", help="Layers by name or glob; by default the family's usual ones.")
    ] = None,
    grid: Annotated[int, typer.Option(min=1, help="Cells a side that a layer's map is reduced to.")] = 2,
    estimator: Annotated[
        str, typer.Option(help="probe; or nwj, infonce, smile, cca, ksg to have that beside it.")
    ] = "probe",
    permutations: Annotated[int, typer.Option(min=0, help="Shuffles of the labels for the null band; 0: none.")] = 200,
    negative_prompt: Annotated[str, typer.Option(help="What the pictures should not show.")] = "",
    num_inference_steps: Annotated[int | None, typer.Option(help="Scheduler steps; by default the model's.")] = None,
    guidance_scale: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; by default the model's.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pictures of a prompt drawn at once.")] = 16,
    keep_features: Annotated[bool, typer.Option("--keep-features", help="Keep the pooled features on disk.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with a run that was stopped, as it was planned.")] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what the run would cost, and stop.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Run folder to write; by default runs/TIME-TEMPLATE.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Measure what a model knows of a word, at every step and layer, over a population of prompts.

    Every slot's word is replaced by each of its substitutes, in several contexts and with the same seeds; a probe then
    tells the words apart by the features of pictures it has not seen. "written" is what the picture so far holds (the
    branch without the prompt), "injected" what the prompt's branch carries.

    Writes a run folder: dynamics.nc (information, intervals, decision times), beliefs.nc (every picture's log beliefs),
    layers.nc (what layers share), atlas.nc (every channel at every step), anomalies.json, curves.svg and run.json. A
    run that was stopped goes on with --resume; all that decides its numbers is in its plan, so other options say
    nothing then.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    quieten_libraries()
    # Imported here, so that --help and mistakes in the options answer at once.
    from denoscope.information.wording.template import load_template

    if from_prompt is not None:
        _propose(from_prompt, model, device, out, as_json)
        return
    if resume is not None and (template or slot or context or file or out):
        raise OptionError("--resume goes on with a run as it was planned: give it without template, slots or --out")
    asked = None
    if resume is None:
        asked = load_template(file) if file is not None else _template(template, slot or [], context or [])
        if file is not None and (template or slot or context):
            raise OptionError(
                "--file holds template, slots and contexts: give it without --template, --slot, --context"
            )
    from accelerate import PartialState

    from denoscope.information.estimators import cross_check
    from denoscope.information.population import ExperimentPlan, draw_population, estimate_cost
    from denoscope.pipelines import load, model_sha256
    from denoscope.pipelines.loading import pick_device

    cross_check(estimator)  # a name that is none is told before anything is drawn
    # Without being told, it takes two processes without CUDA for one each.
    state = PartialState(cpu=pick_device(device).type == "cpu")
    plan = ExperimentPlan.read(resume) if resume is not None else None
    pipe = load(model if plan is None else plan.model, device)
    pipe.set_progress_bar_config(disable=True)
    if plan is None:
        assert asked is not None
        plan = _plan(
            pipe,
            asked,
            model=model,
            context_count=contexts,
            seeds=seeds,
            seed=seed,
            layers=tuple(name.strip() for name in layers.split(",")) if layers else (),
            grid=grid,
            negative_prompt=negative_prompt,
            num_inference_steps=num_inference_steps,
            guidance_scale=guidance_scale,
            batch=batch,
            estimator=estimator,
            permutations=permutations,
        )
    elif plan.model_sha256 != model_sha256(pipe):
        raise OptionError(f"the model {plan.model!r} is another than the run {resume} began with: begin a new run")
    population = plan.population()
    seconds = {"load": time.perf_counter() - clock}
    console = Console(stderr=True)
    main = state.is_main_process
    if main:
        for warning in population.warnings():
            console.print(f"warning: {warning}", style="yellow", markup=False)
    cost = estimate_cost(pipe, population, plan.settings(), state.num_processes)
    if main:
        console.print(f"{len(population.prompts)} prompts, {population.samples:,} pictures: {cost}", markup=False)
    if estimate:
        if main and as_json:
            told = {
                "prompts": len(population.prompts),
                "calls": cost.calls,
                "seconds": cost.seconds,
                "bytes": cost.bytes,
            }
            typer.echo(json.dumps(told))
        return
    folder = _shared(state, lambda: _open_folder(plan, resume, out))
    clock = time.perf_counter()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=as_json or not main) as progress:
            bar = progress.add_task(
                "drawing", total=len(population.prompts[state.process_index :: state.num_processes])
            )
            draw_population(
                pipe,
                population,
                plan.settings(),
                folder / _PARTS,
                rank=state.process_index,
                ranks=state.num_processes,
                on_prompt=lambda _: progress.advance(bar),
            )
        state.wait_for_everyone()
        if not main:
            return
        seconds["draw"] = time.perf_counter() - clock
        clock = time.perf_counter()
        with Progress(*columns, console=console, transient=True, disable=as_json) as progress:
            found = write_results(
                folder,
                folder / _PARTS,
                population,
                plan.estimator,
                plan.permutations,
                seed=plan.seed,
                progress=progress,
            )
    except KeyboardInterrupt:
        console.print(f"stopped; go on with: denoscope dynamics --resume {folder}", markup=False)
        raise
    seconds["measure"] = time.perf_counter() - clock
    if not keep_features:
        for path in (folder / _PARTS).iterdir():
            path.unlink()
        (folder / _PARTS).rmdir()
    manifest = manifest_of(
        "dynamics",
        pipe,
        plan.model,
        arguments={
            "template": plan.template,
            "slots": [f"{name}={','.join(values)}" for name, values in plan.slots.items()],
            "contexts": [f"{name}={','.join(values)}" for name, values in plan.contexts.items()],
            "context_count": plan.context_count,
            "seeds": plan.seeds,
            "layers": list(plan.layers),
            "grid": plan.grid,
            "estimator": plan.estimator,
            "permutations": plan.permutations,
            "negative_prompt": plan.negative_prompt,
            "num_inference_steps": plan.num_inference_steps,
            "guidance_scale": plan.guidance_scale,
            "batch": plan.batch,
        },
        seed=plan.seed,
        started=started,
        seconds=seconds,
        words=list(plan.slots),
    ).with_files(folder)
    manifest.write(folder)
    tell(folder, found, population.warnings(), manifest, as_json)


def _template(text: str | None, slots: list[str], contexts: list[str]) -> "Template":
    from denoscope.information.wording.template import Template, parse_slot

    if text is None:
        raise OptionError("give --template with at least one --slot, or --file, --from-prompt, or --resume")
    return Template(text, dict(map(parse_slot, slots)), dict(map(parse_slot, contexts)))


def _plan(
    pipe: "DiffusionPipeline",
    template: "Template",
    *,
    model: str,
    context_count: int,
    seeds: int,
    seed: int,
    layers: tuple[str, ...],
    grid: int,
    negative_prompt: str,
    num_inference_steps: int | None,
    guidance_scale: float | None,
    batch: int,
    estimator: str,
    permutations: int,
) -> "ExperimentPlan":
    """The plan with the model's defaults filled in, and all that can be checked before drawing checked."""
    from denoscope.information.population import ExperimentPlan
    from denoscope.observer import plan_generation
    from denoscope.pipelines import model_sha256

    values = {**template.slots, **template.contexts}
    first = template.prompt(**{name: each[0] for name, each in values.items()})
    generation = plan_generation(
        pipe,
        first,
        negative_prompt=negative_prompt,
        steps=num_inference_steps,
        guidance_scale=guidance_scale,
    )
    return ExperimentPlan(
        model=model,
        model_sha256=model_sha256(pipe),
        template=template.text,
        slots={name: tuple(each) for name, each in template.slots.items()},
        contexts={name: tuple(each) for name, each in template.contexts.items()},
        context_count=context_count,
        seeds=seeds,
        seed=seed,
        num_inference_steps=generation.num_inference_steps,
        guidance_scale=generation.guidance_scale,
        negative_prompt=negative_prompt,
        layers=layers,
        grid=grid,
        batch=min(batch, seeds),
        estimator=estimator,
        permutations=permutations,
    )


def _open_folder(plan: "ExperimentPlan", resume: Path | None, out: Path | None) -> Path:
    folder = resume or begin_run(out, plan.template)
    if resume is not None and is_whole(folder):
        raise OptionError(f"{folder} is finished already: look at it, or begin a new run")
    if resume is None:
        plan.write(folder)
    (folder / _PARTS).mkdir(exist_ok=True)
    return folder


def _shared(state: "PartialState", make: "Callable[[], Path]") -> Path:
    """What the main process made, told to all."""
    held: list[Path | None] = [make() if state.is_main_process else None]
    if state.num_processes > 1:
        from accelerate.utils import broadcast_object_list

        held = broadcast_object_list(held)
    assert held[0] is not None
    return held[0]


def _propose(prompt: str, model: str, device: str, out: Path | None, as_json: bool) -> None:
    """Slots and substitutes for a prompt, as a file that the user edits."""
    from denoscope.information.wording.calibration import calibrate
    from denoscope.information.wording.proposals import propose
    from denoscope.information.wording.template import save_template
    from denoscope.pipelines import load

    path = out or Path("slots.yaml")
    if path.exists():
        raise OptionError(f"{path} exists already: choose another --out")
    pipe = load(model, device)
    template, warnings = propose(pipe, prompt), calibrate(pipe, prompt).warnings
    save_template(path, template)
    if as_json:
        slots = {name: list(values) for name, values in template.slots.items()}
        told = {"file": str(path), "template": template.text, "slots": slots, "warnings": list(warnings)}
        typer.echo(json.dumps(told))
        return
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    for name, values in template.slots.items():
        typer.echo(f"{name}: {', '.join(values)}", err=True)
    typer.echo(f"edit {path}, then: denoscope dynamics --file {path}")
