"""One pass over a set of pictures: each is read, decoded and prepared once, and seen once by every network."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from denoscope.metrics.frechet import FeatureError
from denoscope.metrics.image_sets import ImageSet, Pixels, decoded

Features = NDArray[np.float32]
PART: Final = 512
"""Features of so many pictures make a file of the cache: what an interruption costs at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Extractor:
    """A network and what it sees.

    ``prepare`` takes ``(H, W, 3)`` uint8 to ``(C, h, w)`` float32 of one size, ``forward`` batches of them to features
    ``(B, d)`` by name, of which ``pool`` is there always. ``identity`` has all that features depend on (hash of the
    weights, resize, dtype), as text: it keys the cache and goes into the record of results.
    """

    name: str
    identity: Mapping[str, str]
    prepare: Callable[[Pixels], Tensor]
    forward: Callable[[Tensor], Mapping[str, Tensor]]
    batch: int = 32

    @property
    def key(self) -> str:
        """A name for the cache that changes with everything that features depend on."""
        told = json.dumps([self.name, dict(sorted(self.identity.items()))])
        return f"{self.name}-{sha256(told.encode()).hexdigest()[:16]}"


def _levels(pixels: Pixels) -> Tensor:
    height, width = pixels.shape[:2]
    return torch.tensor([height, width, pixels.mean(), pixels.std(), pixels.max()], dtype=torch.float32)


LEVELS: Final = Extractor("levels", {"version": "1"}, _levels, lambda x: {"pool": x}, batch=1)
"""Height, width, mean, standard deviation and greatest of a picture's levels."""


@dataclass(frozen=True, slots=True, eq=False)
class Extracted:
    """What was seen of a set: ``names`` and ``digests`` (SHA-256) of the readable pictures.

    ``features[extractor][output]`` is ``(n, d)`` float32 in their order, those of :data:`LEVELS` among them.
    ``problems`` are files and why they could not be read. ``identities`` tell by extractor what features depend on.
    """

    origin: str
    names: tuple[str, ...]
    digests: tuple[str, ...]
    features: dict[str, dict[str, Features]]
    problems: tuple[tuple[str, str], ...]
    identities: dict[str, dict[str, str]]

    def __len__(self) -> int:
        """How many pictures could be read."""
        return len(self.names)

    @property
    def digest(self) -> str:
        """A hash of all pictures in their order."""
        return sha256("".join(self.digests).encode()).hexdigest()


@dataclass(slots=True, eq=False)
class _Gathered:
    """One extractor's features by the pictures' digests: from the cache, and new ones waiting to be written to it."""

    extractor: Extractor
    outputs: tuple[str, ...]
    folder: Path | None
    known: dict[str, dict[str, Features]] = field(default_factory=dict)
    waiting: list[tuple[str, Tensor]] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)

    def read(self) -> None:
        from safetensors.numpy import load_file

        if self.folder is None:
            return
        for path in sorted(self.folder.glob("*.safetensors")):
            held = load_file(path)
            if set(self.outputs) <= set(held):
                for row, digest in enumerate(held["digest"]):
                    self.known[digest.tobytes().hex()] = {name: held[name][row] for name in self.outputs}

    def see(self, digest: str, pixels: Pixels, device: torch.device) -> None:
        if digest in self.known or any(digest == other for other, _ in self.waiting):
            return
        self.waiting.append((digest, self.extractor.prepare(pixels)))
        if len(self.waiting) >= self.extractor.batch:
            self.run(device)

    def run(self, device: torch.device) -> None:
        if not self.waiting:
            return
        with torch.inference_mode():
            found = self.extractor.forward(torch.stack([one for _, one in self.waiting]).to(device))
        arrays = {name: found[name].float().cpu().numpy() for name in self.outputs}
        for row, (digest, _) in enumerate(self.waiting):
            self.known[digest] = {name: values[row] for name, values in arrays.items()}
            self.unwritten.append(digest)
        self.waiting.clear()
        if len(self.unwritten) >= PART:
            self.write()

    def write(self) -> None:
        from safetensors.numpy import save_file

        if self.folder is not None and self.unwritten:
            self.folder.mkdir(parents=True, exist_ok=True)
            held: dict[str, NDArray[np.generic]] = {
                name: np.stack([self.known[digest][name] for digest in self.unwritten]) for name in self.outputs
            }
            held["digest"] = np.stack([np.frombuffer(bytes.fromhex(digest), np.uint8) for digest in self.unwritten])
            named = sha256("".join((*self.outputs, *self.unwritten)).encode()).hexdigest()[:24]
            part = self.folder / f"{named}.part"
            save_file(held, part)
            part.replace(self.folder / f"{named}.safetensors")
        self.unwritten.clear()


def extract(
    images: ImageSet,
    extractors: Mapping[str, tuple[Extractor, Sequence[str]]],
    *,
    most: int | None = None,
    cache: Path | None = None,
    background: tuple[int, int, int] = (255, 255, 255),
    bad_files: str = "skip",
    device: str = "cpu",
    workers: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> Extracted:
    """The features of the first ``most`` pictures by every extractor, given with the names of the outputs wanted.

    In one pass, a picture at a time decoded and a batch of each network; held are the features, 4 bytes each. Files of
    equal content are seen once. With a ``cache`` folder features are kept by content and extractor, and a pass that was
    stopped goes on where it was. What can't be read is told in ``problems``, or with ``bad_files="fail"`` refused.

    Raises :class:`FeatureError` for an unreadable file if it should, or when none could be read.
    """
    ground = "-".join(map(str, background))
    gathered = {
        name: _Gathered(one, tuple(outputs), None if cache is None else cache / one.key / ground)
        for name, (one, outputs) in {**extractors, "levels": (LEVELS, ["pool"])}.items()
    }
    for one in gathered.values():
        one.read()
    count = len(images) if most is None else min(most, len(images))
    names, digests, problems = [], [], []
    place = torch.device(device)
    reading = decoded(
        images,
        range(count),
        background=background,
        known=lambda digest: all(digest in one.known for one in gathered.values()),
        workers=workers,
    )
    try:
        for done, picture in enumerate(reading, 1):
            if picture.problem:
                problem = images.names[picture.number], picture.problem
                if bad_files == "fail":
                    raise FeatureError(f"{problem[0]!r} can't be read: {problem[1]}")
                problems.append(problem)
            else:
                names.append(images.names[picture.number])
                digests.append(picture.digest)
                if picture.pixels is not None:
                    for one in gathered.values():
                        one.see(picture.digest, picture.pixels, place)
            if progress is not None:
                progress(done, count)
        for one in gathered.values():
            one.run(place)
    finally:  # what was seen before an interruption is kept
        for one in gathered.values():
            one.write()
    if not names:
        raise FeatureError(f"none of the {count} files of {images.origin} can be read; the first: {problems[0][1]}")
    features = {
        name: {output: np.stack([one.known[digest][output] for digest in digests]) for output in one.outputs}
        for name, one in gathered.items()
    }
    identities = {name: dict(one.extractor.identity) | {"background": ground} for name, one in gathered.items()}
    return Extracted(images.origin, tuple(names), tuple(digests), features, tuple(problems), identities)
