"""Features of a set of pictures in a file, so that a reference is seen once."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from denoscope._version import __version__
from denoscope.metrics.extraction import Extracted
from denoscope.metrics.frechet import FeatureError

_FORMAT = "denoscope features 1"


def save_statistics(pictures: Extracted, path: Path) -> Path:
    """Write what was seen of a set as ``.safetensors``: features, names, digests, and what features depend on.

    Written beside and renamed, so that no half file stays. Returns the path.
    """
    arrays: dict[str, NDArray[np.generic]] = {
        f"{extractor}/{output}": np.ascontiguousarray(values)
        for extractor, outputs in pictures.features.items()
        for output, values in outputs.items()
    }
    told = {
        "format": _FORMAT,
        "denoscope_version": __version__,
        "origin": pictures.origin,
        "names": json.dumps(pictures.names),
        "digests": json.dumps(pictures.digests),
        "problems": json.dumps(pictures.problems),
        "identities": json.dumps(pictures.identities),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        save_file(arrays, part, told)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def load_statistics(path: Path) -> Extracted:
    """Read what :func:`save_statistics` wrote.

    Raises :class:`~denoscope.metrics.FeatureError` for a file of another kind.
    """
    try:
        with safe_open(path, "np") as held:
            told = held.metadata() or {}
            if told.get("format") != _FORMAT:
                raise FeatureError(f"{str(path)!r} holds no statistics of 'denoscope evaluate stats'")
            features: dict[str, dict[str, NDArray[np.float32]]] = {}
            for name in held.keys():  # noqa: SIM118 - it is no mapping
                extractor, _, output = name.rpartition("/")
                features.setdefault(extractor, {})[output] = held.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise FeatureError(f"{str(path)!r} can't be read as statistics ({error})") from error
    problems = tuple((name, why) for name, why in json.loads(told["problems"]))
    names, digests = (tuple(json.loads(told[key])) for key in ("names", "digests"))
    return Extracted(told["origin"], names, digests, features, problems, json.loads(told["identities"]))


def check_same_kind(generated: Extracted, reference: Extracted) -> None:
    """Raises :class:`~denoscope.metrics.FeatureError` when features of the two don't depend on the same things."""
    for name in set(generated.identities) & set(reference.identities):
        ours, theirs = generated.identities[name], reference.identities[name]
        for key in sorted(set(ours) | set(theirs)):
            if ours.get(key) != theirs.get(key) and key != "background":
                raise FeatureError(
                    f"features {name!r} of {generated.origin} and {reference.origin} differ in {key}: {ours.get(key)} "
                    f"and {theirs.get(key)}; measure both with the same"
                )
