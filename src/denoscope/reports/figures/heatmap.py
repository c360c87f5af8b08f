"""Layer by step: where in the network a word holds attention, and when."""

import xarray as xr
from plotly import graph_objects as go

from denoscope.reports import summaries
from denoscope.reports.figures.axis import hover_titles
from denoscope.reports.figures.style import colour_scale, plain_figure


def layer_heatmap(trace: xr.Dataset, word: str) -> go.Figure:
    """Attention mass of one word, layers (in the order of the trace, first on top) by steps.

    Raises ``KeyError`` when the trace has no ``attention`` or no such word.
    """
    values = summaries.word_mass(trace).sel(word=word)
    layers = [str(name) for name in values["layer"].values]
    steps = [int(step) for step in values["step"].values]
    figure = plain_figure(height=max(220, 120 + 22 * len(layers)))
    figure.add_heatmap(
        x=steps,
        y=list(range(len(layers))),
        z=values.values.tolist(),
        text=[hover_titles(trace)] * len(layers),
        customdata=[[name] * len(steps) for name in layers],
        colorscale=colour_scale(),
        hovertemplate="%{customdata}<br>%{text}<br>mass %{z:.3g}<extra></extra>",
        colorbar={"thickness": 10, "outlinewidth": 0, "tickformat": ".2g", "nticks": 5},
        xgap=1,
        ygap=1,
    )
    figure.update_xaxes(title={"text": "step", "standoff": 8}, showgrid=False, ticks="")
    figure.update_yaxes(
        autorange="reversed",
        tickvals=list(range(len(layers))),
        ticktext=summaries.short_layer_names(layers),
        showgrid=False,
    )
    figure.update_layout(hovermode="closest", showlegend=False, margin={"t": 14, "r": 8, "b": 46})
    return figure
