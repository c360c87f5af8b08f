"""One look for all figures: colours that colour-blind readers can tell apart, on a transparent ground."""

from plotly import graph_objects as go

WORD_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
"""Okabe and Ito's palette without yellow and black, which vanish on light or dark."""

ON_DARK = {
    "#0072B2": "#6C92F0",
    "#D55E00": "#F08A45",
    "#009E73": "#2FC596",
    "#CC79A7": "#E3A0C6",
    "#56B4E9": "#8AD4F7",
    "#8C8C8C": "#ABABAB",
}
"""What replaces a colour of the palette on a dark ground, where it would be too dim; same hue, more light."""

DASHES = ("solid", "dash", "dot", "dashdot")
"""Line styles, for when the words outnumber the colours."""

TOKEN_COLOURS = {
    "bos": "#8C8C8C",
    "words": "#0072B2",
    "eos": "#E69F00",
    "padding": "#56B4E9",
    "image": "#009E73",
    "picture": "#D9D9D9",
}

TOKEN_NAMES = {
    "bos": "BOS",
    "words": "prompt words",
    "eos": "EOS",
    "padding": "padding",
    "image": "image embeddings",
    "picture": "the picture itself",
}

MAP_COLOURS = (
    "#440154", "#482878", "#3E4989", "#31688E", "#26828E",
    "#1F9E89", "#35B779", "#6DCD59", "#B4DE2C", "#FDE725",
)  # fmt: skip
"""Viridis at ten even places: even to the eye, also without colour vision and in grey."""

INK = "#6B7280"
GRID = "rgba(128,128,128,0.22)"


def word_line(index: int) -> tuple[str, str]:
    """Colour and dash of the n-th word's line.

    >>> word_line(0), word_line(7)
    (('#0072B2', 'solid'), ('#0072B2', 'dash'))
    """
    return WORD_COLOURS[index % len(WORD_COLOURS)], DASHES[index // len(WORD_COLOURS) % len(DASHES)]


def colour_scale() -> list[list[float | str]]:
    """The colours of maps as a plotly colour scale from 0 to 1."""
    last = len(MAP_COLOURS) - 1
    return [[index / last, colour] for index, colour in enumerate(MAP_COLOURS)]


def plain_figure(height: int = 280) -> go.Figure:
    """An empty figure in the common style; a mid-grey ink that reads on light and dark."""
    axis = {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": GRID,
        "fixedrange": True,
    }
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 58, "r": 14, "t": 32, "b": 48},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12, "color": INK},
        hovermode="x unified",
        hoverlabel={"font": {"size": 12}},
        dragmode=False,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom", "yref": "container"},
        xaxis=axis,
        yaxis=axis | {"ticks": "", "automargin": True},
    )
    return figure
