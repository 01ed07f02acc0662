"""End of a run: signals, exit codes, outputs that nobody reads, and the run that is resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from plugin_folder import BROKEN, SYSTEM, install, install_paper

from dgbench.harness.cli.outcome import exit_code, unexpected
from dgbench.harness.cli.resuming import run_to_resume
from dgbench.harness.runner.summary import RunSummary
from dgbench.harness.store import Row, Store, find_run
from dgbench.harness.terminal.left_out import wrong_text
from dgbench.runtime.errors import InvalidInputError, StoreError
from dgbench.runtime.threads import cores

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


def test_the_exit_code_says_how_a_run_was_stopped():
    summary = RunSummary(run="r", path=Path(), cells_ok=1)
    assert exit_code(summary, []) == 0
    summary.cells_ok = 0
    assert exit_code(summary, []) == 1
    summary.trouble = "the disk is full"
    assert exit_code(summary, []) == 1
    summary.interrupted, summary.signal = True, signal.SIGTERM
    assert exit_code(summary, []) == 143
    summary.signal = signal.SIGINT
    assert exit_code(summary, [_row("a", "check")]) == 130


def test_wrong_results_are_counted_by_cell():
    rows = [_row("a", "check"), _row("a", "check"), _row("b", "oom")]
    assert wrong_text(rows, [], 80).startswith("WRONG RESULT: p")
    assert wrong_text(rows[2:], [], 80) == ""


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
        asked = ", ".join([*experiments, *papers])
        with pytest.raises(InvalidInputError, match=f"no run of {asked} among 4 runs"):
            last(papers, *experiments)


def test_a_run_of_something_else_is_not_resumed_by_its_name(runs, tmp_path):
    assert run_to_resume(runs[1].name, tmp_path, [], []) == runs[1]
    assert run_to_resume(runs[1].name, tmp_path, ["esdg"], []) == runs[1]
    with pytest.raises(InvalidInputError, match="which is of esdg, not of pipad/fig10"):
        run_to_resume(runs[1].name, tmp_path, [], ["pipad/fig10"])
    with pytest.raises(StoreError, match="no runs"):
        run_to_resume("last", tmp_path / "none", [], [])


def test_an_empty_name_is_not_the_run_in_the_current_folder(runs, monkeypatch):
    monkeypatch.chdir(runs[0])
    for name in ("", " "):
        with pytest.raises(InvalidInputError, match="allowed"):
            find_run(name)


@pytest.fixture
def place(tmp_path):
    """An environment with the paper `tiny`, and where its runs are kept."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    install_paper(folder)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return folder, os.environ | {
        "PYTHONPATH": path, "DGBENCH_RESULTS": str(tmp_path / "runs"), "TINY_CELLS": "count",
    }  # fmt: skip


def _start(env, *words, python=(sys.executable,), **more):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*python, "-m", "dgbench", *words]
    return subprocess.Popen(command, env=env, text=True, **{**pipes, **more})


def _stop(process, number):
    """Ask it to end, and wait until it has."""
    process.send_signal(number)
    process.wait(timeout=PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_at_once_and_keeps_its_rows(place, tmp_path, number, warm_python):
    """One of an interpreter of its own, and one of a fork."""
    _, env = place
    python = warm_python if number == signal.SIGTERM else [sys.executable]
    env["TINY_CELLS"] = "count sleep clean"  # 600 s, and one that would follow
    process = _start(env, "run", "tiny/work", "--preset", "smoke", python=python)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        files = tmp_path.glob("runs/*/rows.jsonl")
        if any('"paper":"tiny"' in file.read_text() for file in files):
            break
        time.sleep(0.02)
    _stop(process, number)
    out, err = process.communicate()
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert "Stopped: 1 of 3 cells kept." in out
    (folder,) = tmp_path.glob("runs/*/run.json")
    store = Store.open(folder.parent)
    assert [row.params["how"] for row in store.rows() if row.paper == "tiny"] == ["count"]
    assert store.info["state"] == "partial"
    assert f"dgbench run --resume {store.run}" in out


def test_a_signal_ends_a_run_whose_fork_server_still_loads(place, tmp_path):
    _, env = place
    process = _start(env, "run", "tiny/work", "--preset", "smoke")
    end = time.monotonic() + 120
    while time.monotonic() < end and not list(tmp_path.glob("runs/*/logs/server.log")):
        time.sleep(0.01)
    _stop(process, signal.SIGTERM)
    assert process.returncode == 143
    files = tmp_path.glob("runs/*/rows.jsonl")
    assert not any('"paper":"tiny"' in file.read_text() for file in files)


def test_a_signal_ends_a_list_that_waits_for_a_plugin(place, tmp_path):
    folder, env = place
    mark = tmp_path / "imported"
    source = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n{BROKEN['sleeps'][0]}"
    install(folder, "sleeps", f"{source}\n{SYSTEM.format(name='sleeps')}")
    process = _start(env | {"DGBENCH_PLUGIN_SECONDS": "600"}, "list")
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None and not mark.exists():
        time.sleep(0.02)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    assert mark.exists()
    _stop(process, signal.SIGTERM)
    assert process.returncode == 143
    assert process.communicate() == ("", "")


def test_a_wrong_result_is_said_first_and_outputs_may_be_lost(place, tmp_path, warm_python):
    """A full output ends with 2, a closed one with the code of the run; the report is written."""
    _, env = place
    env["TINY_CELLS"] = "count negative"
    words = ("run", "tiny/work", "--preset", "smoke")
    with open("/dev/full", "w") as full:
        process = _start(env, *words, python=warm_python, stdout=full)
        err = process.communicate(timeout=240)[1]
    assert process.returncode == 2
    assert "error: the standard output cannot be written: no space left on device" in err
    assert "Traceback" not in err
    assert len(list(tmp_path.glob("runs/*/report.html"))) == 1
    resumed = ("run", "tiny/work", "--resume", "last")  # nothing runs again
    process = _start(env, *resumed, python=warm_python)
    lines = [process.stdout.readline() for _ in range(2)]
    process.stdout.close()
    process.wait(timeout=240)
    assert lines[-1].startswith("WRONG RESULT: tiny")
    assert process.returncode == 1
    assert "Traceback" not in process.stderr.read()
    assert len(list(tmp_path.glob("runs/*/run.json"))) == 1


def test_threads_of_the_command_are_those_of_every_process(place, tmp_path, warm_python):
    _, env = place
    env["TINY_CELLS"] = "pool"
    for count in sorted({1, cores()}):
        words = ("run", "tiny/work", "--preset", "smoke", "--threads", str(count))
        process = _start(env, *words, python=warm_python)
        assert "Traceback" not in process.communicate(timeout=240)[1]
        store = Store.open(max(tmp_path.glob("runs/*/run.json")).parent)
        (row,) = (row for row in store.written() if row.paper == "tiny")
        assert [one.value for one in row.observed if one.metric == "threads"] == [count]
        assert store.info["threads"] == count
        assert store.provenance()[row.provenance]["settings"]["threads"] == count
