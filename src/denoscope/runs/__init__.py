"""Run folders and their manifest.

A run folder holds what one command made: ``run.json`` (:class:`RunManifest`), ``trace.nc``, ``images/`` and
``report.html``. :func:`new_run` writes one, all or nothing; :class:`RunFolder` reads one.
"""

from denoscope.runs.errors import RunError
from denoscope.runs.folder import NewRun, RunFolder, new_run
from denoscope.runs.manifest import SCHEMA_VERSION, ModelRecord, RunManifest, hash_file
from denoscope.runs.naming import run_name, slugify

__all__ = [
    "SCHEMA_VERSION",
    "ModelRecord",
    "NewRun",
    "RunError",
    "RunFolder",
    "RunManifest",
    "hash_file",
    "new_run",
    "run_name",
    "slugify",
]
