"""What is wrong with a comparison or with the pictures, in sentences that say what to do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from denoscope.metrics.evaluation import Score
from denoscope.metrics.extraction import Extracted
from denoscope.metrics.neighbours import expected_coverage

ENOUGH_FOR_FID: Final = 10_000
ENOUGH_FOR_PRDC: Final = 5_000
_GOOD_CLIP: Final = 25.0
_HIGH_FID: Final = 50.0


class Finding(NamedTuple):
    """A ``code`` that stays, the sentence with its figures, and what to ``do``."""

    code: str
    text: str
    do: str


def diagnose(
    scores: Sequence[Score], generated: Extracted, reference: Extracted | None, extractor: str
) -> list[Finding]:
    """All that can be seen from the scores and the sets; empty when nothing is.

    Codes: ``few-pictures``, ``few-neighbours``, ``rank-deficient``, ``sizes-differ``, ``value-range``, ``contrast``,
    ``unreadable``, ``same-files``, ``duplicates``, ``mode-collapse``, ``memorised``, ``fid-against-clip``.
    """
    by_name = {score.name: score for score in scores}
    found = [*_of_numbers(by_name, generated, reference, extractor), *_of_files(generated, reference)]
    return [*found, *_of_levels(generated, reference), *_of_scores(by_name)]


def _of_numbers(
    scores: Mapping[str, Score], generated: Extracted, reference: Extracted | None, extractor: str
) -> Iterator[Finding]:
    smallest = min(len(generated), len(reference) if reference is not None else len(generated))
    if "fid" in scores and smallest < ENOUGH_FOR_FID:
        yield Finding(
            "few-pictures",
            f"FID of {smallest:,} pictures is biased upwards, by an amount that depends on their number",
            f"take at least {ENOUGH_FOR_FID:,}, or compare with FID of the same number only; KID has no such bias, and "
            "fid_infinity extrapolates",
        )
    if {"precision", "recall"} & set(scores) and smallest < ENOUGH_FOR_PRDC:
        yield Finding(
            "few-neighbours",
            f"balls around {smallest:,} pictures are wide: precision and recall come out high",
            f"take at least {ENOUGH_FOR_PRDC:,}, or compare with the same number only",
        )
    width = generated.features[extractor]["pool"].shape[1] if "fid" in scores else 0
    if smallest <= width:
        yield Finding(
            "rank-deficient",
            f"{smallest:,} pictures can't fill a covariance of {width:,} dimensions",
            f"take more than {width:,} pictures, KID, or features of fewer dimensions",
        )


def _of_files(generated: Extracted, reference: Extracted | None) -> Iterator[Finding]:
    for name, pictures in (("generated", generated), ("reference", reference)):
        if pictures is not None and pictures.problems:
            count = len(pictures.problems)
            yield Finding(
                "unreadable",
                f"{count:,} {name} files could not be read; the first is {pictures.problems[0][0]!r}: "
                f"{pictures.problems[0][1]}",
                "mend or remove them; --bad-files fail stops at the first",
            )
    copies = len(generated) - len(set(generated.digests))
    if copies:
        yield Finding(
            "duplicates",
            f"{copies:,} of {len(generated):,} generated files are copies of others",
            "look for repeated seeds; copies make intervals too narrow",
        )
    shared = set() if reference is None else set(generated.digests) & set(reference.digests)
    if shared:
        yield Finding(
            "same-files",
            f"{len(shared):,} generated files are files of the reference, to the last bit",
            "take them out: a set compared with itself scores perfectly",
        )


def _of_levels(generated: Extracted, reference: Extracted | None) -> Iterator[Finding]:
    ours = generated.features["levels"]["pool"].astype(np.float64)
    if np.median(ours[:, 4]) <= 1:
        yield Finding(
            "value-range",
            "most generated pictures have no level above 1 of 255: they are black",
            "multiply by 255 before you save: these were in [0, 1]",
        )
    if reference is None:
        return
    theirs = reference.features["levels"]["pool"].astype(np.float64)
    sizes = [np.median(each[:, :2], axis=0) for each in (ours, theirs)]
    if not np.allclose(sizes[0], sizes[1], rtol=0.02):
        (h, w), (height, width) = sizes
        yield Finding(
            "sizes-differ",
            f"generated pictures are of {h:.0f} × {w:.0f} pixels in the median, the reference's of "
            f"{height:.0f} × {width:.0f}",
            "make both sets of one size by one filter: part of the score is the resizing",
        )
    spreads = [float(np.median(each[:, 3])) for each in (ours, theirs)]
    if max(spreads) > 2 * min(spreads) and np.median(ours[:, 4]) > 1:
        yield Finding(
            "contrast",
            f"levels spread by {spreads[0]:.0f} in a generated picture and {spreads[1]:.0f} in a reference picture",
            "compare a picture of each by eye: a range of [−1, 1] taken for [0, 1] looks so",
        )


def _of_scores(scores: Mapping[str, Score]) -> Iterator[Finding]:
    if {"precision", "recall", "coverage"} <= set(scores):
        precision, recall, coverage = (scores[name].value for name in ("precision", "recall", "coverage"))
        chance = expected_coverage(scores["coverage"].n_reference, scores["coverage"].n)
        if precision > 0.5 and (recall < 0.5 * precision or coverage < 0.6 * chance):
            yield Finding(
                "mode-collapse",
                f"generated pictures lie among the real ones (precision {precision:.2f}), but leave many of those out "
                f"(recall {recall:.2f}, coverage {coverage:.2f} of {chance:.2f})",
                "lower guidance, more varied prompts, or look for classes that never come",
            )
    if "memorization" in scores and scores["memorization"].low > 0.55:
        value = scores["memorization"].value
        yield Finding(
            "memorised",
            f"{value:.0%} of generated pictures lie nearer to a training picture than its own neighbours do; by chance "
            "half would",
            "look at the nearest neighbours; train on more pictures, without duplicates, or for less long",
        )
    if {"fid", "clip_score"} <= set(scores):
        fid, clip = scores["fid"].value, scores["clip_score"].value
        if fid > _HIGH_FID and clip > _GOOD_CLIP:
            yield Finding(
                "fid-against-clip",
                f"pictures fit their prompts (CLIP score {clip:.1f}) and are unlike the reference (FID {fid:.1f})",
                "check that the reference shows what the prompts ask for, in its style",
            )
