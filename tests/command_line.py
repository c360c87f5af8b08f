"""What a command line printed and how it ended, for the tests of several commands."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Denoscope = Callable[..., Ended]


def assert_refused(ended: Ended, sentence: str, code: int = 2) -> None:
    assert ended.code == code
    assert ended.out == ""
    assert ended.err.startswith("denoscope: ")
    assert ended.err.count("\n") == 1
    assert sentence in ended.err


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
