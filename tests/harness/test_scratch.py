"""The mark of a run's processes and its folder for temporary files."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile

import pytest

from dgbench.harness.runner import scratch
from dgbench.harness.runner.scratch import MARK, Scratch, mark_of

WAIT = [sys.executable, "-S", "-c", "print(1, flush=True); input()"]
DAEMON = [
    sys.executable, "-S", "-c",
    "import os\nif not os.fork():\n os.setsid()\n print(os.getpid(), flush=True)\n input()",
]  # fmt: skip


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = Scratch(mark_of("0a1b2c3d", tmp_path))
    return found, found.make()


def start(command, environment):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, env={**os.environ, **environment}, text=True, **pipes)
    return process, process.stdout.readline()


def test_a_sweep_ends_what_has_the_mark_and_nothing_else(made):
    found, environment = made
    mine, _ = start(WAIT, environment)
    other, _ = start(WAIT, {MARK: found.mark + "0"})
    daemon, pid = start(DAEMON, environment)
    daemon.wait()
    (found.folder / "left").mkdir()
    try:
        assert set(scratch.marked(found.mark)) == {mine.pid, int(pid)}
        assert set(found.sweep()) == {mine.pid, int(pid)}
        assert mine.wait(5) == -9
        assert other.poll() is None
        assert not found.folder.exists()
        assert found.sweep() == []
    finally:
        for process in (mine, other, daemon):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()


def test_the_folder_is_short_private_and_emptied_after_a_cell(made, monkeypatch):
    found, environment = made
    assert environment["TMPDIR"] == str(found.folder)
    assert found.folder.stat().st_mode & 0o777 == 0o700
    assert len(found.folder.name) < 30  # sockets are put below it, whose names may have 107 letters
    (found.folder / "d").mkdir()
    (found.folder / "d" / "f").write_text("x")
    (found.folder / "link").symlink_to("/etc")
    monkeypatch.setenv("TMPDIR", str(found.folder))
    scratch.empty()  # without a mark it is not a run's folder
    assert len(list(found.folder.iterdir())) == 2
    monkeypatch.setenv(MARK, found.mark)
    scratch.empty()
    assert list(found.folder.iterdir()) == []
    assert os.path.isdir("/etc")
