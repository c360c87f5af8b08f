"""The panels of a report: each a figure and two plain paragraphs, or the reason why there is none."""

from collections.abc import Callable
from dataclasses import dataclass

import xarray as xr
from plotly import graph_objects as go

from denoscope.reports import figures


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: ``shows`` says what the figure shows, ``limits`` what it can't tell.

    Without a ``figure``, ``absent`` says why in a sentence.
    """

    name: str
    title: str
    unit: str
    shows: str
    limits: str
    figure: go.Figure | None
    absent: str = ""


NO_ATTENTION = (
    "There are no word maps: no cross-attention was observed in this run. A model without cross-attention, "
    "such as the exact denoiser, has none."
)
NO_TOKENS = "There are no token masses: no cross-attention was observed in this run."
NO_GUIDANCE = (
    "There is no guidance difference: this run used no classifier-free guidance, so the model was never "
    "asked for the unconditional prediction."
)

NO_INFORMATION = (
    "Nobody asked what each word adds: run denoscope trace with --information omit, and every word is left out once "
    "at every step."
)
INFORMATION_LIMITS = {
    "information": (
        "One generation is one draw: the mean of the sums over many pictures is the information, that of one may be "
        "twice or half of it. A word that another implies adds next to nothing. A sum far above the logarithm of how "
        "many words might stand there is the network's own reaction to text that it was never trained on: without the "
        "word the caption may be none."
    ),
    "guidance effort": (
        "Under guidance this is effort, the squared scale times what the word moves, and no information: strong "
        "guidance decides sooner, so that a smaller sum says nothing of less. Trace at guidance 1 for information."
    ),
}

GUIDANCE_LIMITS = (
    "This is the effort of guidance, not information: a large difference does not mean that the prompt "
    "decided something there, and its size depends on the noise level."
)
ATTENTION_LIMITS = (
    "Attention mass is not information: a word can be looked at and change nothing, and a word that is "
    "hardly looked at can act through its neighbours, because the text encoder has mixed them."
)


def has_words(trace: xr.Dataset) -> bool:
    """Whether the trace has a map of at least one word."""
    return "attention" in trace and trace.sizes["word"] > 0


def panels(trace: xr.Dataset, first_word: str | None) -> list[Panel]:
    """All panels of a trace, in the order of the page; the layer map starts with ``first_word``."""
    words = has_words(trace)
    informed = "information_rate" in trace
    quantity = str(trace.attrs.get("information_quantity", "information"))

    def layers(dataset: xr.Dataset) -> go.Figure:
        return figures.layer_heatmap(dataset, first_word or "")

    def made(build: Callable[[xr.Dataset], go.Figure], present: bool) -> go.Figure | None:
        return build(trace) if present else None

    return [
        Panel(
            "mass",
            "Attention on each word",
            "mean over layers and picture",
            "How much of the picture's attention each word holds at each step, from noise (left) to picture "
            "(right). The chosen word is drawn strong.",
            ATTENTION_LIMITS,
            made(figures.mass_curves, words),
            NO_ATTENTION,
        ),
        Panel(
            "spread",
            "Spread of each word's map",
            "normalised entropy",
            "How spread out a word's map is: 1 is evenly over the picture, lower is gathered in one place. "
            "A word whose curve falls has found its place.",
            "A gathered map says where the model looked, not that the word is drawn there, nor that it is "
            "drawn at all. Small differences near 1 mean little.",
            made(figures.spread_curves, words),
            NO_ATTENTION,
        ),
        Panel(
            "layers",
            "Where in the network",
            "attention mass by layer and step",
            "The mass of the chosen word in each cross-attention layer (first layer on top) at each step. "
            "Click a cell to look at that layer and step.",
            "Layers differ in how large and how sharp their maps are by nature; compare a layer with itself "
            "over the steps, or words with each other, rather than layers.",
            made(layers, words),
            NO_ATTENTION,
        ),
        Panel(
            "rate",
            "What each word adds",
            f"{quantity}, nats per unit of log-SNR",
            "How far the prediction moves when the word is left out on the same noisy picture, at each step; the area "
            "under a curve is the word's sum.",
            INFORMATION_LIMITS[quantity],
            made(figures.information_curves, informed),
            NO_INFORMATION,
        ),
        *(
            [
                Panel(
                    "held",
                    "What the picture holds of each word" if quantity == "information" else "Effort so far",
                    f"{quantity}, nats",
                    "The running sum of what each word has added, from noise to picture; where it is level, nothing "
                    "more is decided of that word.",
                    INFORMATION_LIMITS[quantity],
                    made(figures.information_sums, informed),
                )
            ]
            if informed
            else []
        ),
        *(
            [
                Panel(
                    "gradient",
                    "Slope along each word's embedding",
                    "norm of the gradient",
                    "How strongly the denoiser's output leans on the word's columns of text, for small changes.",
                    "A slope at one point, and no information: it may vanish where a word, once left out, would change "
                    "a lot.",
                    made(figures.gradient_curves, True),
                )
            ]
            if "information_gradient" in trace
            else []
        ),
        Panel(
            "tokens",
            "Where all attention goes",
            "share by kind of token",
            "The whole attention of the picture, by kind of token, averaged over layers. Most models rest on "
            "the start token (BOS) or on padding and give the words the rest.",
            "A large share of BOS or padding is no defect: it is how models look at nothing in particular, and "
            "in many of them the padding carries a summary of the prompt.",
            made(figures.token_areas, "token_mass" in trace),
            NO_TOKENS,
        ),
        Panel(
            "guidance",
            "Guidance effort",
            "‖ε(prompt) − ε(no prompt)‖², summed over the latent",
            "How far the prediction with the prompt is from the one without, at each step: how hard guidance pulls.",
            GUIDANCE_LIMITS,
            made(figures.guidance_curve, "guidance" in trace),
            NO_GUIDANCE,
        ),
    ]
