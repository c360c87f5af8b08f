"""What ``denoscope evaluate`` is given, opened: pictures, prompts, networks."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.progress import Progress

from denoscope.cli.options import OptionError

if TYPE_CHECKING:
    from denoscope.metrics.extraction import Extracted, Extractor
    from denoscope.metrics.extraction import Features as FeatureRows
    from denoscope.metrics.image_sets import ImageSet
    from denoscope.metrics.protocols import Protocol


def usual_cache() -> Path:
    """``denoscope`` in the user's folder for caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "denoscope"


def parse_colour(text: str) -> tuple[int, int, int]:
    """``255,255,255``; raises :class:`OptionError` for anything else.

    >>> parse_colour("0, 128, 255")
    (0, 128, 255)
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and int(part) < 256 for part in parts):
        raise OptionError(f"--background {text!r} is no colour: give red, green and blue from 0 to 255")
    red, green, blue = map(int, parts)
    return red, green, blue


def parse_protocol(text: str) -> "Protocol":
    """The name of a protocol; raises :class:`OptionError` for an unknown one."""
    from denoscope.metrics.protocols import PROTOCOLS

    if text not in PROTOCOLS:
        raise OptionError(f"--protocol {text!r} is unknown: give {', '.join(PROTOCOLS)}")
    return cast("Protocol", text)


def parse_weights(given: Sequence[str], features: str) -> dict[str, Path]:
    """Paths of weights by extractor; one without a name is for ``features``.

    >>> parse_weights(["a.pth", "clip=clip-folder"], "inception")["clip"].name
    'clip-folder'
    """
    found = {}
    for text in given:
        name, separator, path = text.partition("=")
        known = bool(separator) and name in ("inception", "clip", "dinov2", "shapes", "fashion")
        found[name if known else features] = Path(path if known else text)
    return found


def is_statistics(path: Path) -> bool:
    """Whether a path is a file of ``denoscope evaluate stats``, by its ending."""
    return path.suffix == ".safetensors"


def extractors_of(
    wanted: Mapping[str, Sequence[str]], protocol: "Protocol", weights: Mapping[str, Path], device: str
) -> "dict[str, tuple[Extractor, Sequence[str]]]":
    """Each network with the outputs that metrics take of it."""
    from denoscope.metrics.extractors.known import extractor

    return {
        name: (extractor(name, protocol=protocol, weights=weights.get(name), device=device), outputs)
        for name, outputs in wanted.items()
    }


@contextmanager
def progress_bar(label: str, quiet: bool) -> "Iterator[Progress]":
    """A bar with one task, on the error stream; none where nobody looks."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        bar.add_task(label)
        yield bar


def see(
    images: "ImageSet",
    extractors: "Mapping[str, tuple[Extractor, Sequence[str]]]",
    label: str,
    *,
    most: int | None,
    cache: Path,
    background: tuple[int, int, int],
    bad_files: str,
    device: str,
    quiet: bool,
) -> "Extracted":
    """One pass over a set, with a progress bar."""
    from denoscope.metrics.extraction import extract

    if bad_files not in ("skip", "fail"):
        raise OptionError(f"--bad-files {bad_files!r} is unknown: give skip or fail")
    with progress_bar(label, quiet) as bar:
        return extract(
            images,
            extractors,
            most=most,
            cache=cache / "features",
            background=background,
            bad_files=bad_files,
            device=device,
            progress=lambda done, total: bar.update(bar.task_ids[0], completed=done, total=total),
        )


def open_generated(
    generated: str,
    prompts: Path | None,
    n: int | None,
    *,
    cache: Path,
    seed: int,
    num_inference_steps: int | None,
    guidance_scale: float | None,
    device: str,
    quiet: bool,
    stack: ExitStack,
) -> "tuple[ImageSet, Mapping[str, str]]":
    """Pictures as they lie there, or drawn by a model; and the prompt of each by its name, where known."""
    from denoscope.data.pictures.folder import read_captions
    from denoscope.metrics.drawing import draw_pictures, read_prompts
    from denoscope.metrics.image_sets import open_images
    from denoscope.pipelines import load

    path = Path(generated)
    if path.exists() and not (path / "model_index.json").is_file():
        return stack.enter_context(open_images(path)), {} if prompts is None else read_captions(prompts)
    if generated not in ("shapes", "exact-shapes") and not path.exists() and generated.count("/") != 1:
        raise OptionError(f"--generated {generated!r} is no folder, archive or model")
    texts = [] if prompts is None else read_prompts(prompts)
    count = n if n is not None else max(len(texts), 2)
    with progress_bar("drawing", quiet) as bar:
        folder = draw_pictures(
            load(generated, device),
            texts,
            count,
            cache,
            seed=seed,
            num_inference_steps=num_inference_steps,
            guidance_scale=guidance_scale,
            progress=lambda done, total: bar.update(bar.task_ids[0], completed=done, total=total),
        )
    images = stack.enter_context(open_images(folder))
    return images, {name: texts[index % len(texts)] for index, name in enumerate(images.names)}


def text_features_of(
    pictures: "Extracted", texts: Mapping[str, str], weights: Path | None, device: str
) -> "tuple[FeatureRows, list[str]]":
    """CLIP's features of each picture's prompt, and sentences about those that were too long."""
    from denoscope.metrics.extractors.language import text_features

    missing = [name for name in pictures.names if name not in texts]
    if missing:
        raise OptionError(f"--prompts has no text for {missing[0]!r} ({len(missing)} pictures without one)")
    prompts = [texts[name] for name in pictures.names]
    distinct = list(dict.fromkeys(prompts))
    found = text_features(distinct, weights, device)
    rows = {text: row for row, text in enumerate(distinct)}
    warnings = [f"{len(found.cut)} prompts have more tokens than CLIP reads and lost their end"] if found.cut else []
    return found.values[[rows[text] for text in prompts]], warnings
