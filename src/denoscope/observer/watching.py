"""``denoscope.observe``, the door to the observer."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from diffusers import DiffusionPipeline
from numpy.typing import ArrayLike

from denoscope.observer.debugging import Tell
from denoscope.observer.observer import Observer
from denoscope.observer.raw import RawType
from denoscope.observer.regions import Region
from denoscope.pipelines.adapters import Attends, Branch


def observe(
    pipe: DiffusionPipeline,
    *,
    attention: Attends | None = "cross",
    guidance: bool = True,
    x0: bool = True,
    words: Sequence[str] | None = None,
    layers: str = "*",
    branch: Branch = "cond",
    region: Region | None = None,
    heads: bool = False,
    features: bool | Sequence[str] = False,
    feature_grid: int = 4,
    feature_weights: Mapping[str, ArrayLike] | None = None,
    raw_features: Path | str | None = None,
    raw_dtype: RawType = "float16",
    keep_steps: bool = True,
    prompt: str | None = None,
    debug: bool | Tell = False,
) -> Observer:
    """Watch the next call of a diffusers pipeline. The picture, the random numbers, processors and hooks stay the same.

        with denoscope.observe(pipe, words=["dog"]) as watch:
            image = pipe("a dog on a mat", generator=generator).images[0]
        watch.trace.attention.sel(word="dog").mean("layer")  # (step, y, x)

    ``attention="cross"`` records how much each picture location attends to each word, mean over heads.
    ``attention="self"`` records where the locations of ``region`` (left, top, right, bottom as shares of the picture;
    all of it by default) look on average, as ``self_attention``. ``branch`` is the branch of guidance that is read:
    "cond" is the one with the prompt, and "uncond" has the negative prompt's words. ``guidance`` records
    ‖ε_cond − ε_uncond‖² summed over channels, ``x0`` the predicted clean latent of each step under guidance. ``words``
    limits the words, ``layers`` the layers (a glob on dotted names); ``heads`` keeps the words' maps of each head
    apart, along an axis ``head`` (NaN beyond a layer's number of heads).

    ``features`` names layers whose output is pooled into ``watch.features`` (dotted names, globs, or True for the
    family's usual ones), means over ``feature_grid``² cells among it. ``feature_weights`` are maps ``(y, x)`` of any
    size, at least 0, by name: means over places, weighted by each, are ``weighted`` there. ``raw_features`` is a new or
    empty folder to which those outputs are written whole, as ``raw_dtype``, and which ``watch.raw`` maps after the
    block; it appears when the block has ended well.

    ``keep_steps=False`` keeps means over steps instead of every step, and no ``x0``, so that memory does not grow with
    their number; features keep theirs, some numbers a channel. ``prompt`` tells the words when the pipeline is called
    with ``prompt_embeds``. ``debug`` prints a line for each run of a watched layer to the standard error stream, or
    calls a function with its :class:`~denoscope.observer.LayerReport`; devices are waited for meanwhile.

    Raises :class:`ObserveError` here when no layer matches, ``words`` are not in ``prompt``, the denoiser is compiled,
    or the folder is taken; on entering when the pipeline is being observed already, and from ``trace`` when the call
    could not be observed as asked; :class:`ModelError` for a pipeline without an adapter.
    """
    return Observer(
        pipe,
        attention=attention,
        guidance=guidance,
        x0=x0,
        words=words,
        layers=layers,
        branch=branch,
        region=region,
        heads=heads,
        features=features,
        feature_grid=feature_grid,
        feature_weights=feature_weights,
        raw_features=raw_features,
        raw_dtype=raw_dtype,
        keep_steps=keep_steps,
        prompt=prompt,
        debug=debug,
    )
