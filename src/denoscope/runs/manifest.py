"""The manifest of a run: what was asked, with what, and what came out, as ``run.json``."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator

from denoscope.runs.errors import RunError

SCHEMA_VERSION = 1
"""The schema that this version writes, and the newest that it reads."""

MANIFEST_NAME = "run.json"

Argument = str | int | float | bool | None | list[str]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex; reads it in pieces, so any size will do."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class ModelRecord(BaseModel):
    """Which model ran.

    ``source`` is where it was loaded from (a folder or a hub name), ``pipeline`` and ``scheduler`` its diffusers
    classes, and ``sha256`` the digest of its weights, ``None`` where it has no weights (the exact denoiser).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    source: str
    pipeline: str
    scheduler: str | None = None
    sha256: Sha256 | None = None


class RunManifest(BaseModel):
    """Everything needed to say how a run came about, and to repeat it.

    ``arguments`` are the command's options by name; ``versions`` the packages by name; ``seconds`` the time
    of each part; ``words`` the traced words; ``files`` the SHA-256 of each file by its POSIX path in the run
    folder.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    schema_version: int = SCHEMA_VERSION
    denoscope_version: str
    command: str
    arguments: dict[str, Argument] = {}
    versions: dict[str, str] = {}
    model: ModelRecord
    seed: int | None = None
    device: str
    dtype: str
    started: AwareDatetime
    seconds: dict[str, float] = {}
    words: list[str] = []
    files: dict[str, Sha256] = {}

    @field_validator("started")
    @classmethod
    def _in_utc(cls, moment: datetime) -> datetime:
        return moment.astimezone(UTC)

    def with_files(self, folder: Path) -> Self:
        """A copy whose ``files`` are the digests of all files now in the folder, without the manifest."""
        digests = {
            path.relative_to(folder).as_posix(): hash_file(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path != folder / MANIFEST_NAME
        }
        return self.model_copy(update={"files": digests})

    def write(self, folder: Path) -> Path:
        """Write ``run.json`` into the folder; returns its path."""
        path = folder / MANIFEST_NAME
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8", newline="\n")
        return path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder's ``run.json``.

        Raises :class:`RunError` when it is missing, broken, or of a newer schema than this version knows.
        """
        path = folder / MANIFEST_NAME
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(f"{folder} is not a run folder: it has no {MANIFEST_NAME}.") from None
        except OSError as error:
            raise RunError(f"{path} can't be read: {error.strerror or error}.") from error
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path} is not valid JSON, so the run can't be read: {error}.") from error
        version = document.get("schema_version") if isinstance(document, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise RunError(
                f"{folder} was written by a newer denoscope (manifest schema {version}, this one reads up to "
                f"{SCHEMA_VERSION}); upgrade denoscope to read it."
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the document"
            raise RunError(f"{path} is no run manifest: {place}: {first['msg']}.") from error
