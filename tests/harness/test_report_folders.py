"""The folder that a site is built in goes, however its build ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from dgbench.harness.report.folders import beside, swap

BUILDER = """
import sys, time
from pathlib import Path
from dgbench.harness.report.folders import beside
with beside(Path(sys.argv[1])) as folder:
    (folder / "page.html").write_text("half a page")
    print(folder.name, flush=True)
    time.sleep(60)
"""


def _as_in_a_terminal() -> None:
    """Take no signal as ignored, as jobs in the background inherit it."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _builder(target):
    command = [sys.executable, "-c", BUILDER, str(target)]
    builder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                               preexec_fn=_as_in_a_terminal)  # fmt: skip
    folder = target.parent / builder.stdout.readline().strip()
    assert folder.is_dir()
    return builder, folder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_build_that_is_asked_to_end_leaves_no_folder(tmp_path, number):
    builder, _ = _builder(tmp_path / "site")
    builder.send_signal(number)
    _, code = builder.communicate(timeout=60), builder.returncode
    assert code == (-number if number == signal.SIGINT else 128 + number)
    assert list(tmp_path.iterdir()) == []


def test_the_next_build_removes_what_a_killed_one_left(tmp_path):
    builder, folder = _builder(tmp_path / "site")
    builder.kill()
    builder.communicate(timeout=60)
    assert folder.is_dir()
    before = signal.getsignal(signal.SIGTERM)
    with beside(tmp_path / "site") as ours:
        assert signal.getsignal(signal.SIGTERM) is not before
        assert list(tmp_path.iterdir()) == [ours]
        swap(ours, tmp_path / "site")
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert signal.getsignal(signal.SIGTERM) is before
