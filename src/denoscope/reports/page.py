"""The report of a trace: one HTML file that works offline and asks no server for anything."""

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import xarray as xr
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from denoscope.reports import summaries
from denoscope.reports.arrays import encode_bytes
from denoscope.reports.data import PICTURE_BUDGET, first_choice, page_data, safe_json
from denoscope.reports.errors import ReportError
from denoscope.reports.facts import Manifest, facts, guidance_scale
from denoscope.reports.figures.style import word_line
from denoscope.reports.panels import NO_ATTENTION, NO_GUIDANCE, has_words, panels
from denoscope.reports.pictures import ReportImages, embed_one, embed_steps
from denoscope.reports.prompt import split_prompt

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("data.js", "stage.js", "charts.js", "print.js", "report.js")


@dataclass(frozen=True, slots=True)
class WordRow:
    """One row of the table of words; numbers as text, a dash where nothing was observed."""

    label: str
    colour: str
    tokens: str
    mass: str
    top_step: str
    last_spread: str
    total: str
    half: str


def render_report(trace: xr.Dataset, manifest: Manifest, images: ReportImages) -> str:
    """Make the report of a trace.

    Args:
        trace: ``attention (word, step, layer, y, x)``, ``token_mass (token_kind, step, layer)`` and
            ``guidance (step, y, x)``, each of which may be absent, with ``timestep``, ``sigma`` and ``logsnr``
            along ``step``; attributes ``prompt``, ``negative_prompt``, ``guidance_scale``.
        manifest: the run's manifest as plain JSON values (``run.json``, or a pydantic dump in JSON mode).
        images: the pictures to embed.

    Returns:
        The HTML, about 2 MB and at most 6 MB: maps and pictures are made coarser rather than the file larger.

    Raises:
        ReportError: the trace has no steps, or a picture file can't be read.
    """
    if trace.sizes.get("step", 0) == 0:
        raise ReportError("The trace has no steps, so there is nothing to report.")
    prompt = str(trace.attrs.get("prompt", ""))
    first = first_choice(trace)
    words = [str(word) for word in trace["word"].values] if has_words(trace) else []
    pieces, missing = split_prompt(prompt, words)
    shown = panels(trace, None if first is None else words[first])
    pictures = embed_steps(images.x0, PICTURE_BUDGET)
    data = page_data(trace, shown, pictures, first)
    script = _script()
    plotly, plotly_hash = _plotly()
    template = _environment().get_template("report.html")
    return template.render(
        prompt=prompt,
        pieces=pieces,
        missing=missing,
        words=_word_rows(trace) if words else [],
        layers=list(zip(data_layers(trace), summaries.short_layer_names(data_layers(trace)), strict=True)),
        has_guidance="guidance" in trace,
        quantity=str(trace.attrs.get("information_quantity", "")) if words and "information_rate" in trace else "",
        guidance_scale=guidance_scale(trace),
        no_attention=NO_ATTENTION,
        no_guidance=NO_GUIDANCE,
        panels=shown,
        facts=facts(trace, manifest),
        step_count=trace.sizes["step"],
        has_pictures=bool(pictures.sources),
        final=embed_one(images.final) if images.final is not None else None,
        factors=data["factors"],
        grid=data["grid"],
        css=Markup(_asset("report.css")),  # Our own files, not input.
        script=Markup(script),
        data=Markup(safe_json(data)),  # safe_json has escaped it.
        plotly=Markup(plotly),  # Base64.
        script_hashes=[_csp_hash(script), plotly_hash],
    )


def write_report(run_dir: Path) -> Path:
    """Make ``report.html`` in a folder with ``run.json``, ``trace.nc`` and ``images/``; returns its path.

    An existing report is replaced whole or not at all. Raises :class:`ReportError` in a sentence when the
    folder has no trace or manifest, or they can't be read.
    """
    try:
        manifest = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
        with xr.open_dataset(run_dir / "trace.nc", engine="h5netcdf") as opened:
            trace = opened.load()
    except (OSError, ValueError) as error:
        raise ReportError(f"{run_dir} can't be reported: {error}.") from error
    if not isinstance(manifest, dict):
        raise ReportError(f"{run_dir} can't be reported: run.json is no manifest.")
    html = render_report(trace, manifest, ReportImages.of_folder(run_dir))
    path = run_dir / "report.html"
    temporary = path.with_name(f".report.{os.getpid()}.html")
    try:
        # "replace": a prompt from a terminal may hold half characters that no file can.
        temporary.write_text(html, encoding="utf-8", errors="replace", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def data_layers(trace: xr.Dataset) -> list[str]:
    """Full names of the layers that have word maps."""
    return [str(layer) for layer in trace["layer"].values] if has_words(trace) else []


def _word_rows(trace: xr.Dataset) -> list[WordRow]:
    mass = summaries.word_mass(trace).mean("layer")
    spread = summaries.spread(summaries.word_maps(trace))
    tokens = trace["word_tokens"].values.tolist() if "word_tokens" in trace else [""] * trace.sizes["word"]
    efforts = summaries.word_effort(trace)
    rows = []
    for index, word in enumerate(trace["word"].values.tolist()):
        curve = mass.isel(word=index)
        seen = bool(curve.notnull().any())
        rows.append(
            WordRow(
                label=str(word),
                colour=word_line(index)[0],
                tokens=str(tokens[index]),
                mass=_number(float(curve.mean())),
                top_step=str(int(curve["step"].values[int(curve.argmax("step"))])) if seen else "–",
                last_spread=_number(float(spread.isel(word=index, step=-1)), ".4f"),
                total=_number(efforts[index].total) if efforts else "–",
                half=_number(efforts[index].half) if efforts else "–",
            )
        )
    return rows


def _number(value: float | None, digits: str = ".3g") -> str:
    return "–" if value is None or value != value else f"{value:{digits}}"


def _asset(name: str) -> str:
    # Browsers hash a script with LF line ends, whatever a checkout on Windows made of the file.
    return (ASSETS / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _script() -> str:
    return '(() => {\n"use strict";\n' + "\n".join(_asset(name) for name in SCRIPTS) + "})();\n"


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _plotly() -> tuple[str, str]:
    """The plotly library, 4.8 MB compressed to 2, and the hash under which the page may run it."""
    source: str = get_plotlyjs()
    return encode_bytes(source.encode()), _csp_hash(source)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("denoscope.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
