"""The installed command in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("denoscope")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def run(*arguments: str | Path | bytes, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], cwd=cwd, env=ENVIRONMENT, capture_output=True, encoding="utf-8", timeout=300
    )


def test_help_needs_no_torch(tmp_path: Path) -> None:
    script = (
        "import sys; from denoscope.cli.main import main; sys.argv[1:] = ['trace', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'diffusers', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, timeout=120)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path, tiny_folder: Path) -> None:
    ended = run("trace", b"a caf\xe9", "--model", tiny_folder, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "denoscope: the prompt is not valid Unicode: give it as UTF-8\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_with_a_sentence_and_no_folder(tmp_path: Path, tiny_folder: Path) -> None:
    process = subprocess.Popen(
        [COMMAND, "trace", "a red circle", "--model", tiny_folder, "--steps", "1000", "--out", "run"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        deadline = time.monotonic() + 240
        while not (tmp_path / ".run.partial").is_dir():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2)  # loads, then draws
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err == "denoscope: stopped; nothing was left half-written\n"
    assert list(tmp_path.iterdir()) == []
