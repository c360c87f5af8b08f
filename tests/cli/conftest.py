"""The command line in this process."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Denoscope, Ended

from denoscope.cli.main import main


@pytest.fixture
def denoscope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Denoscope]:
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["denoscope", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    yield run
    signal.signal(signal.SIGTERM, before)
