"""Folders of files to learn from: which files there are, which can be read, and which class each is of."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from denoscope.data.errors import DataError

Item = TypeVar("Item")


class FolderContent(NamedTuple, Generic[Item]):
    """What was read: ``items`` and their ``paths`` in the folder; ``skipped`` files and why."""

    items: list[Item]
    paths: list[Path]
    skipped: list[tuple[str, str]]


def read_files(
    folder: Path,
    suffixes: Collection[str],
    read: Callable[[Path], Item],
    expected: tuple[type[Exception], ...],
    *,
    kind: str,
    bad_files: Literal["skip", "fail"] = "skip",
    only: Collection[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FolderContent[Item]:
    """Read every file under ``folder`` whose suffix is known, in the order of their names; hidden ones are not seen.

    A file whose reading raises one of ``expected`` is skipped, with the first line of the reason, and so is one whose
    name is not in ``only``. ``kind`` is what the files hold, in the plural, for messages.

    Raises :class:`DataError` when there is no such folder, fewer than two files can be read, or, with
    ``bad_files="fail"``, at the first file that can't.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in suffixes and _shown(path, folder))
    content: FolderContent[Item] = FolderContent([], [], [])
    for number, path in enumerate(paths):
        inside = path.relative_to(folder)
        if only is not None and inside.as_posix() not in only:
            content.skipped.append((inside.as_posix(), "it has no caption"))
            continue
        try:
            content.items.append(read(path))
            content.paths.append(inside)
        except expected as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            if bad_files == "fail":
                raise DataError(f"{path} can't be read ({reason})") from error
            content.skipped.append((inside.as_posix(), reason))
        if progress is not None:
            progress(number + 1, len(paths))
    if len(content.items) < 2:
        skipped = content.skipped
        why = f"; {len(skipped)} were skipped, the first one {': '.join(skipped[0])}" if skipped else ""
        raise DataError(f"{folder} holds {len(content.items)} {kind} that can be read, at least two are needed{why}")
    return content


def classes_of(paths: Sequence[Path]) -> tuple[tuple[str, ...], Tensor | None]:
    """The names of the subfolders and which one each file is in ``(N,)``; none when a file lies outside of them.

    >>> classes_of([Path("cat/1.png"), Path("ant/2.png")])
    (('ant', 'cat'), tensor([1, 0]))
    """
    if any(len(path.parts) < 2 for path in paths):
        return (), None
    names = sorted({path.parts[0] for path in paths})
    return tuple(names), torch.tensor([names.index(path.parts[0]) for path in paths])


def _shown(path: Path, folder: Path) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
