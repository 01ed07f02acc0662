"""End of a run: signals, exit codes, outputs that nobody reads, and the run that is resumed."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from plugin_folder import install_paper

from dgbench.harness.cli.outcome import exit_code, unexpected
from dgbench.harness.cli.resuming import run_to_resume
from dgbench.harness.runner.summary import RunSummary
from dgbench.harness.signals import raise_pending, signals_unwind
from dgbench.harness.store import Row, Store
from dgbench.harness.terminal.progress import ProgressListener
from dgbench.runtime.errors import InvalidInputError, SignalExit

PATIENCE_S = 120.0
"""Most seconds of an end on a machine that is busy; what it does not wait for takes 600 s."""


def _row(id_, status):
    return Row(id=id_, cell_hash=id_, paper="p", experiment="e", status=status)


def _verdicts(side, *rows):
    return [SimpleNamespace(verdicts=[SimpleNamespace(side=side, rows=list(rows))])]


@pytest.mark.parametrize(
    ("status", "side", "code"),
    [
        ("ok", "for", 0),
        ("skipped", "", 0),
        ("no-gpu", "", 0),
        ("oom", "for", 0),
        ("time", "for", 0),
        ("oom", "against", 1),
        ("oom", "", 1),
        ("check", "for", 1),
        ("crash", "for", 1),
    ],
)
def test_failed_cells_end_with_1_unless_a_claim_that_holds_rests_on_them(status, side, code):
    rows = [_row("a", "ok"), _row("b", status)]
    failed = unexpected(rows, _verdicts(side, "b"))
    summary = RunSummary(run="r", path=Path(), cells_ok=1)
    assert exit_code(summary, failed) == code
    other = unexpected(rows, _verdicts(side, "a"))  # a claim about another row excuses nothing
    assert exit_code(summary, other) == int(status not in ("ok", "skipped", "no-gpu"))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"cells_ok": 0}, 1),
        ({"trouble": "the disk is full"}, 1),
        ({"interrupted": True, "signal": signal.SIGTERM}, 143),
    ],
)
def test_the_exit_code_says_how_a_run_was_stopped(fields, code):
    assert exit_code(RunSummary(**{"run": "r", "path": Path(), "cells_ok": 1} | fields), []) == code


@pytest.fixture
def runs(tmp_path):
    """Folders of runs, from the first to the last that was started."""

    def start(papers, experiments):
        with Store.create(tmp_path, {"papers": papers, "experiments": experiments}) as store:
            return store.path

    return [
        start(["pipad"], ["pipad/fig10"]),
        start(["esdg"], []),
        start(["pipad"], ["fig12", "fig10"]),
        start(["dgc", "esdg"], []),
    ]


def test_last_is_the_last_run_of_what_is_asked_for(runs, tmp_path):
    def last(papers, *experiments):
        return run_to_resume("last", tmp_path, papers, experiments)

    assert last([]) == runs[3]
    assert last([], "pipad/fig10") == runs[0]
    assert last([], "pipad/fig10", "pipad/fig12") == runs[2]
    assert last(["esdg"]) == runs[1]
    assert last(["esdg", "dgc"]) == runs[3]
    for papers, experiments in ((["pipad"], ()), ([], ("esdg/fig4",)), ([], ("dgc/fig10",))):
        with pytest.raises(InvalidInputError):
            last(papers, *experiments)


@pytest.fixture
def place(tmp_path):
    """An environment with the paper `tiny`, and where its runs are kept."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    install_paper(folder)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "DGBENCH_RESULTS": str(tmp_path / "runs")}


def test_a_signal_ends_a_run_at_once_and_keeps_its_rows(place, tmp_path, warm_python):
    env = place | {"TINY_CELLS": "count sleep clean"}  # 600 s, and one that would follow
    process = subprocess.Popen(
        [*warm_python, "-m", "dgbench", "run", "tiny/work", "--preset", "smoke"], env=env,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        files = tmp_path.glob("runs/*/rows.jsonl")
        if any('"paper":"tiny"' in file.read_text() for file in files):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=PATIENCE_S)
    out, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "Traceback" not in err
    assert "Stopped: 1 of 3 cells kept." in out
    (folder,) = tmp_path.glob("runs/*/run.json")
    store = Store.open(folder.parent)
    assert [row.params["how"] for row in store.rows() if row.paper == "tiny"] == ["count"]
    assert store.info["state"] == "partial"
    assert f"dgbench run --resume {store.run}" in out


def _signalled_twice():
    """A bare `except:` around an import catches the first; the second does not cut an end off."""
    with signals_unwind():
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        raise_pending()


def test_a_signal_that_a_library_caught_is_raised_again():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SignalExit) as ending:
        _signalled_twice()
    assert ending.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    raise_pending()  # nothing is left of it


@pytest.mark.parametrize("live", [True, False])
def test_progress_that_nobody_reads_does_not_end_the_run(live):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "gone")

    shown = ProgressListener(Closed(), live=live)
    shown.on_note("the fork server died")
    shown.on_end()
