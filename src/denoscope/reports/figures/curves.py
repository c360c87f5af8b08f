"""Curves over log-SNR: one function per question, each from a trace to a plotly figure."""

import xarray as xr
from plotly import graph_objects as go

from denoscope.reports import summaries
from denoscope.reports.figures.axis import StepAxis, add_step_axis, hover_titles, step_axis
from denoscope.reports.figures.style import TOKEN_COLOURS, TOKEN_NAMES, WORD_COLOURS, plain_figure, word_line


def guidance_curve(trace: xr.Dataset) -> go.Figure:
    """Guidance effort of each step: ||eps_cond - eps_uncond||^2 summed over the latent.

    Raises ``KeyError`` when the trace has no ``guidance``.
    """
    figure = plain_figure()
    axis = step_axis(trace)
    values = summaries.guidance_effort(trace).values.tolist()
    _add_heading(figure, trace, axis, values)
    _add_line(figure, axis, values, "guidance effort", (WORD_COLOURS[0], "solid"))
    add_step_axis(figure, axis)
    figure.update_yaxes(rangemode="tozero", exponentformat="power")
    figure.update_layout(showlegend=False, margin={"b": 30})
    return figure


def mass_curves(trace: xr.Dataset) -> go.Figure:
    """Attention mass of each word at each step: its map averaged over layers and picture, in [0, 1].

    Raises ``KeyError`` when the trace has no ``attention``.
    """
    return _word_figure(trace, summaries.word_mass(trace).mean("layer"))


def spread_curves(trace: xr.Dataset) -> go.Figure:
    """How spread out each word's map is at each step: normalised entropy, 0 a point, 1 everywhere alike.

    Raises ``KeyError`` when the trace has no ``attention``.
    """
    return _word_figure(trace, summaries.spread(summaries.word_maps(trace)), from_zero=False)


def token_areas(trace: xr.Dataset) -> go.Figure:
    """Where all attention goes at each step, by kind of token, stacked to 1.

    Raises ``KeyError`` when the trace has no ``token_mass``.
    """
    figure = plain_figure()
    axis = step_axis(trace)
    shares = summaries.token_shares(trace)
    _add_heading(figure, trace, axis, shares.isel(token_kind=0).values.tolist())
    for kind in shares["token_kind"].values.tolist():
        colour = TOKEN_COLOURS.get(kind, WORD_COLOURS[-1])
        name = TOKEN_NAMES.get(kind, kind)
        _add_line(figure, axis, shares.sel(token_kind=kind).values.tolist(), name, (colour, "solid"))
        figure.data[-1].update(stackgroup="one", stackgaps="interpolate", mode="lines", line={"width": 0.5})
    add_step_axis(figure, axis)
    figure.update_yaxes(range=[0, 1])
    return figure


def information_curves(trace: xr.Dataset) -> go.Figure:
    """What each word adds to the prediction at each step: nats per unit of log-SNR, summed over places.

    Raises ``KeyError`` when the trace has no ``information_rate``.
    """
    return _word_figure(trace, summaries.information_rates(trace))


def information_sums(trace: xr.Dataset) -> go.Figure:
    """The running sum of what each word has added, nats: at guidance 1 what the picture holds of it already.

    Raises ``KeyError`` when the trace has no ``information_written``.
    """
    return _word_figure(trace, summaries.information_so_far(trace))


def gradient_curves(trace: xr.Dataset) -> go.Figure:
    """Norm of the gradient of the denoiser's output along each word's embedding, at each step.

    Raises ``KeyError`` when the trace has no ``information_gradient``.
    """
    return _word_figure(trace, trace["information_gradient"].transpose("word", "step"))


def _word_figure(trace: xr.Dataset, values: xr.DataArray, from_zero: bool = True) -> go.Figure:
    figure = plain_figure()
    axis = step_axis(trace)
    if values.sizes["word"]:
        _add_heading(figure, trace, axis, values.isel(word=0).values.tolist())
    for index, word in enumerate(values["word"].values.tolist()):
        _add_line(figure, axis, values.isel(word=index).values.tolist(), word, word_line(index))
    add_step_axis(figure, axis)
    if from_zero:
        figure.update_yaxes(rangemode="tozero")
    else:
        # Maps are mostly wide: what tells them apart is behind the nines.
        figure.for_each_trace(lambda line: line.update(hovertemplate="%{y:.4f}") if line.name else None)
    return figure


def _add_line(figure: go.Figure, axis: StepAxis, values: list[float], name: str, line: tuple[str, str]) -> None:
    colour, dash = line
    figure.add_scatter(
        x=axis.positions.tolist(),
        y=values,
        name=plain_text(name),
        mode="lines+markers",
        line={"color": colour, "dash": dash, "width": 2},
        marker={"size": 4},
        customdata=list(range(len(values))),
        hovertemplate="%{y:.3g}",
    )


def _add_heading(figure: go.Figure, trace: xr.Dataset, axis: StepAxis, values: list[float]) -> None:
    # The shared tool tip names only the position; an unseen line adds the step and the timestep to it.
    figure.add_scatter(
        x=axis.positions.tolist(),
        y=values,
        text=hover_titles(trace),
        mode="markers",
        marker={"color": "rgba(0,0,0,0)"},
        showlegend=False,
        customdata=list(range(len(values))),
        hovertemplate="%{text}<extra></extra>",
    )
    figure.update_xaxes(hoverformat=".2f")


def plain_text(text: str) -> str:
    """Text as plotly shows it literally: plotly reads a few HTML tags and ``$…$`` in labels.

    >>> plain_text("<b>$x$</b>")
    '&lt;b&gt;&#36;x&#36;&lt;/b&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("$", "&#36;")
