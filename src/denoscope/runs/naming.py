"""Names of run folders, safe whatever the prompt says."""

import re
import unicodedata
from datetime import UTC, datetime

MAX_SLUG = 40
"""Longest slug, in characters."""


def slugify(text: str) -> str:
    """Turn any text into 1 to 40 characters of ``a-z``, ``0-9`` and single inner hyphens.

    The text may come from anybody: the result is one path component on every file system, never ``.`` or
    ``..``, and never begins with a hyphen. A text without a usable character becomes ``run``.

    >>> slugify("A red circle, above a blue square!")
    'a-red-circle-above-a-blue-square'
    >>> slugify("../../etc/passwd")
    'etc-passwd'
    >>> slugify("Café 🎨")
    'cafe'
    >>> slugify("…")
    'run'
    """
    # The head is enough for 40 characters, and keeps a prompt of megabytes from costing time.
    plain = unicodedata.normalize("NFKD", text[:1000]).encode("ascii", "ignore").decode("ascii").lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(slug) > MAX_SLUG:
        head = slug[: MAX_SLUG + 1]
        # Cut between words where that leaves at least half.
        cut = head.rfind("-")
        slug = head[: cut if cut >= MAX_SLUG // 2 else MAX_SLUG].strip("-")
    return slug or "run"


def run_name(slug: str, moment: datetime | None = None) -> str:
    """Name a run after its moment (UTC; now by default) and a text, which is made safe first.

    >>> run_name("a red circle", datetime(2026, 12, 1, 15, 30, 12, tzinfo=UTC))
    '20261201-153012-a-red-circle'
    """
    moment = (moment or datetime.now(UTC)).astimezone(UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{slugify(slug)}"
