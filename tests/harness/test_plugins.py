"""Plugins of third parties: nothing that they do on import reaches anybody else."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

import psutil
import pytest
import torch
from plugin_folder import BROKEN, HARM, SYSTEM, install, install_harmful, install_paper

from dgbench.harness import plugins
from dgbench.harness.claims import evaluate
from dgbench.harness.plan import Plan
from dgbench.harness.runner import ForkServer, run_plan
from dgbench.harness.store import Row, Store
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import registry


def _forget():
    for name in [name for name in sys.modules if name.startswith("plug_")]:
        del sys.modules[name]
    registry._points.cache_clear()
    registry._entries.cache_clear()
    for kept in (plugins._process, plugins._described_system, plugins._described_paper):
        kept.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on the path of modules into which plugins are written."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DGBENCH_PLUGIN_SECONDS", "20")
    _forget()
    yield tmp_path
    _forget()


def _state():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    return (
        torch.get_default_dtype(), torch.get_num_threads(), torch.Tensor.index_select,
        dict(os.environ), os.getcwd(), threading.active_count(),
        [signal.getsignal(number) for number in numbers],
        [name for name in sys.modules if name.startswith("plug_")],
    )  # fmt: skip


def _living(group):
    """Processes of a group that still run a while later."""
    for _ in range(500):
        found = []
        for one in psutil.process_iter(["pid", "status"]):
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(one.pid) == group and one.info["status"] != psutil.STATUS_ZOMBIE:
                    found.append(one)
        if not found:
            break
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("name", HARM)
def test_what_a_plugin_does_on_import_stays_in_its_process(folder, name):
    install(folder, name, HARM[name] + SYSTEM.format(name=name))
    before = _state()
    found = plugins.find_system(name)
    assert (found.title, found.kind) == (f"Title of {name}", "baseline")
    assert [one.name for one in found.techniques] == ["fast"]
    pid = found.process._pid
    found.process.close()
    assert _state() == before
    assert _living(pid) == []


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "sleeps"])
def test_a_plugin_that_cannot_be_described_says_why(folder, name):
    source, reason = BROKEN[name]
    install(folder, name, f"{source}\n{SYSTEM.format(name=name)}")
    found = plugins.find_system(name)
    assert isinstance(found, plugins.Broken)
    assert reason in found.reason
    assert "\n" not in found.reason
    assert f"plug_{name}" in found.origin


def test_a_name_of_ours_cannot_be_taken(folder):
    install(folder, "pipad", SYSTEM.format(name="pipad"))
    assert plugins.find_system("pipad").title == "PiPAD"
    ((kind, taken),) = plugins.taken_names()
    assert (kind, taken.name) == ("system", "pipad")
    assert "plug_pipad" in taken.origin


@pytest.fixture
def tiny(folder):
    """A third party's paper as the harness has it, and as its own process has it."""
    install_paper(folder)
    told = plugins.get_paper("tiny")
    assert "plug_tiny" not in sys.modules
    return told, registry.get_paper("tiny")


def _rows():
    return [
        Row(id=f"r{n}", paper="tiny", experiment="work", params={"how": "count"}, round=n)
        for n in (1, 2)
    ]


def test_a_described_paper_answers_as_the_paper_itself(tiny):
    told, itself = tiny
    mine, own = told.experiments[0], itself.experiments[0]
    rows = _rows()
    assert mine.cells("quick", "cpu") == own.cells("quick", "cpu")
    assert mine.answer(rows) == own.answer(rows) == "2 rows."
    (figure,), (real,) = mine.figures(), own.figures()
    assert (figure.kind, figure.name, figure.options) == (real.kind, real.name, real.options)
    assert figure.points(rows) == real.points(rows)
    assert figure.points(rows[:1]) == real.points(rows[:1])
    assert mine.main_race.where == own.main_race.where
    assert mine.main_race.comparisons[0].ratio(rows, {}) is None
    assert evaluate(told, rows).verdicts == evaluate(itself, rows).verdicts
    for name in ("sources", "control", "own_data"):
        assert getattr(mine, name) == getattr(own, name)
    assert told.contenders == itself.contenders
    assert [told.graphs.has(name) for name in ("wiki", "drawn-8", "lastfm")] == [True, True, False]
    with pytest.raises(DgbenchError):
        mine.run(None, None)


def test_a_paper_may_not_name_cells_of_another_one(folder):
    install_paper(folder)
    module = folder / "plug_tiny.py"
    module.write_text(module.read_text().replace('"paper": self.paper', '"paper": "pipad"'))
    plan = Plan.build([plugins.get_paper("tiny")], None, "smoke")
    assert plan.cells == []
    assert "names a cell of pipad/work" in plan.problems[0]


@pytest.mark.usefixtures("warm_starts")
def test_cells_import_the_plugin_that_they_name_and_no_other(tmp_path, monkeypatch):
    """One run with every bad plugin installed: some cells use one, the others see none."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    install_harmful(folder)
    install_paper(folder, timeout_s=30.0)
    monkeypatch.syspath_prepend(folder)
    used = ["raises", "exits", "leaves", "aborts", "deaf", "doubles"]
    monkeypatch.setenv("TINY_CELLS", " ".join(["clean", *used, "count", "negative"]))
    _forget()
    plan = Plan.build([plugins.get_paper("tiny")], None, "smoke", control="none")
    log = tmp_path / "log"
    lookup = registry.get_paper
    with (
        Store.create(tmp_path / "runs") as store,
        ForkServer(lookup, ["tiny"], threads=1, log=log, modules=("torch",)) as server,
    ):
        assert server.notes == []
        run_plan(plan, store, lookup=lookup, limits=False, threads=1, server=server)
        rows = {row.params["how"]: row for row in store.written()}
    _forget()
    clean = rows["clean"]
    assert clean.status == "ok", clean.reason
    assert [note for note in clean.notes if note != f"disturbed: {clean.disturbed}"] == [
        "plug_tiny",
        "torch.float32",
        "tensor([1.])",
    ]
    assert {how: row.status for how, row in rows.items() if how not in used} == {
        "clean": "ok", "count": "ok", "negative": "check",
    }  # fmt: skip
    assert "its counter 'edges' is -1" in rows["negative"].reason
    assert rows["negative"].observed == []
    assert [rows[how].status for how in used] == ["crash"] * 4 + ["ok"] * 2
    reasons = {"raises": "not today", "exits": "I am done", "leaves": "code 7", "aborts": "SIGSEGV"}
    assert all(words in rows[how].reason for how, words in reasons.items())
