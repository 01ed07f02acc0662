"""Cells that break things on purpose; none of them may end the run."""

from __future__ import annotations

import errno

import fake_papers
import msgspec
import pytest
from fake_papers import cell, lookup, make_paper

from dgbench.harness.plan import Plan
from dgbench.harness.plan import plan as plan_module
from dgbench.harness.probes.series import unpack
from dgbench.harness.runner import Listener, run_plan
from dgbench.harness.runner import run as run_module
from dgbench.harness.runner.child import explain
from dgbench.harness.store import Store
from dgbench.harness.store.standing import OWN_ONLY
from dgbench.lab.compare import control_ratios
from dgbench.lab.noise import NoisePairs
from dgbench.runtime.errors import CheckFailed, UnsupportedError
from dgbench.runtime.ranks.errors import rank_error
from tests.observed import numbers, phases, samples

LIGHT = ("torch",)
"""The server of a test need not import torch-geometric."""


class Heard(Listener):
    def __init__(self):
        self.events = []

    def on_plan(self, plan, kept):
        self.events.append(("plan", len(kept)))

    def on_start(self, cell, round):
        self.events.append(("start", cell.params.get("how"), round))

    def on_end(self, summary):
        self.events.append(("end", summary.rows))


def go(store, *cells, preset="quick", **more):
    plan = Plan.build([make_paper(*cells)], None, preset, control=more.pop("control", None))
    heard = Heard()
    settings = {"limits": False, "modules": LIGHT, "lookup": lookup, "threads": 1, **more}
    return run_plan(plan, store, listener=heard, **settings), heard


@pytest.fixture(scope="module")
def disaster(tmp_path_factory, warm_starts_of_module):
    """One run with every misbehaviour, good cells before, between and after."""
    root = tmp_path_factory.mktemp("disaster")
    hows = [name for name in fake_papers.BEHAVIOURS if name in EXPECTED]
    cells = [cell(how, group=how, system=how) for how in hows if how not in ("hang", "eat")]
    cells.insert(4, cell("hang", timeout_s=0.4, group="hang"))
    cells.insert(6, cell("eat", memory_bytes=600 << 20, group="eat"))
    cells.append(cell("ok", group="last", phases=True))
    cells += [cell("ok", repeats=3, which=w, group="timed") for w in "ab"]
    store = Store.create(root)
    summary, heard = go(store, *cells)
    store.close()
    return Store.open(store.path), summary, heard


EXPECTED = {
    "ok": ("ok", ""),
    "abort": ("crash", "SIGABRT"),
    "hang": ("time", "limit of 0.4 s"),
    "eat": ("oom", "of 600.0 MiB"),
    "raise": ("crash", "ValueError: a mistake of ours"),
    "lie": ("crash", "dict instead of a Measurement"),
    "lie_inside": ("crash", "garbage"),
    "nan": ("check", "not finite: loss is nan"),
    "quiet_exit": ("crash", "without a result"),
    "exit": ("crash", "SystemExit: 3"),
    "wrong": ("check", "loss differs by 0.1"),
    "memory_error": ("oom", "no more"),
    "unsupported": ("not-supported", "choose another model"),
    "no_package": ("not-supported", "dgl"),
    "no_import": ("not-supported", "a_package_that_nobody_has"),
    "no_data": ("skipped", "not held here"),
    "no_gpu": ("no-gpu", "NVIDIA"),
}


@pytest.mark.parametrize("how", EXPECTED)
def test_every_end_of_a_process_is_a_row_with_its_reason(disaster, how):
    store, _, _ = disaster
    row = next(r for r in store.written() if r.params.get("how") == how)
    status, reason = EXPECTED[how]
    assert row.status == status
    assert reason in row.reason
    assert (row.time is None) == (status != "ok")
    assert row.seconds > 0
    assert row.probes["peak_rss_bytes"] > 1 << 20
    if row.log:
        assert (store.path / row.log).stat().st_size > 0


def test_a_good_row_holds_what_was_measured(disaster):
    store, _, _ = disaster
    row = next(r for r in store.written() if r.params.get("how") == "ok")
    assert samples(row) == [0.0001, 0.0002, 0.0003]
    assert (row.warmup, phases(row), row.deviation) == (1, {}, {"loss": 1e-7})
    assert (numbers(row)["threads"], numbers(row)["edges"]) == (1, 7)
    assert row.data["twin"] is True
    assert row.probes["base_rss_bytes"] <= row.probes["peak_rss_bytes"]
    assert store.provenance()[row.provenance]["settings"]["threads"] == 1
    assert row.log == ""


def test_the_instrumented_process_keeps_its_course_and_its_phases(tmp_path, server):
    with Store.create(tmp_path) as store:
        go(store, cell("seen", phases=True), cell("seen", repeats=2, which="b"), server=server)
        rows = {(r.params.get("which"), r.round, r.instrumented): r for r in store.written()}
    kept = {key for key, row in rows.items() if row.series}
    assert kept == {(None, 1, True), ("b", 1, False)}
    plain, told = (unpack(rows[key].series) for key in (("b", 1, False), (None, 1, True)))
    assert plain.tracks["memory"].limit > plain.tracks["memory"].peak > 1
    assert plain.tracks["cpu"].limit >= 100
    assert plain.spans == []
    # What the process says of itself lies within what the runner saw of it.
    row = rows[None, 1, True]
    assert [name for name, _, _ in told.spans] == ["compute"]
    (_, begin, end), (mark,) = told.spans[0], told.marks["epoch"]
    assert 0 < begin < end < told.seconds == pytest.approx(row.seconds, abs=1e-3)
    assert begin - 2e-3 <= mark <= end + 2e-3
    assert end - begin == pytest.approx(phases(row)["compute"], abs=1e-3)


def test_resume_runs_the_rest_and_retry_what_failed(tmp_path, server):
    flag = tmp_path / "flag"
    cells = [cell("ok", repeats=2), cell("flaky", flag=str(flag), repeats=2), cell("unsupported")]
    with Store.create(tmp_path) as store:
        first, _ = go(store, *cells, preset="smoke", server=server)
        path = store.path
        assert (first.rows, first.cells_failed) == (5, 1)
    with Store.open(path, writable=True) as store:
        again, heard = go(store, *cells, preset="smoke", server=server)
        assert (again.rows, again.kept) == (0, 5)
        assert heard.events == [("plan", 5), ("end", 0)]
    with Store.open(path, writable=True) as store:
        retried, _ = go(store, *cells, preset="smoke", server=server, retry="failed")
        # with its rival of that round, as pairs are of one start of a run
        assert (retried.rows, retried.kept, retried.cells_failed) == (2, 3, 0)
        new = store.written()[-2:]
        assert {row.params["how"] for row in new} == {"ok", "flaky"}
        assert all(row.ok and row.id.endswith(".2") and row.resumed for row in new)


@pytest.mark.parametrize(
    "noise", [cell("ok", group="noise"), pytest.param(run_module.NOISE, marks=pytest.mark.nightly)]
)
def test_a_run_without_controls_gets_its_noise_floor_from_pairs(
    tmp_path, server, monkeypatch, noise
):
    monkeypatch.setattr(run_module, "NOISE", noise)
    monkeypatch.setattr(plan_module, "NOISE_PAIRS", (1, 21))
    no_limits = msgspec.structs.replace(cell("ok"), experiment="limits")  # not seconds
    monkeypatch.setattr(run_module, "MACHINE", no_limits)
    monkeypatch.setattr(
        run_module, "disturbance", lambda row, earlier: "a neighbour" if row.round == 1 else ""
    )
    cells = [cell("ok", group="alone")]
    with Store.create(tmp_path) as store:
        for _ in range(2):  # resuming adds none
            summary, _ = go(store, *cells, preset="quick", server=server, limits=True)
        pairs = [r for r in store.written() if r.group == "noise"]
        assert [r.round for r in pairs] == [1, 1, 2, 2]  # the disturbed one once more
        assert all(r.ok and r.time > 0 for r in pairs), [r.reason for r in pairs]
        assert len(control_ratios(pairs)) == 1
        assert summary.noise_floor == NoisePairs.of(pairs).of_run()
    own = [cell("ok", repeats=3, which=w, group="timed") for w in "ab"]
    with Store.create(tmp_path) as store:
        go(store, *own, preset="quick", server=server, limits=True)
        assert not [r for r in store.written() if r.group == "noise"]


OF_RANKS = {"memory": "oom", "hung": "time", "killed": "crash", "raised": "crash"}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ImportError("x", name="dgbench.kernels_cuda._cpu"), "not-built"),
        (ImportError("x", name="dgbench.models"), "crash"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "oom"),
        (RuntimeError("CUDA out of memory."), "oom"),
        (AssertionError("Torch not compiled with CUDA enabled"), "no-gpu"),
        (RuntimeError("CUDA error: no CUDA-capable device is detected"), "no-gpu"),
        (UnsupportedError("torch sees no CUDA device"), "no-gpu"),
        (RuntimeError("CUDA graph of step 3 differs: a snapshot is not available"), "crash"),
        (ValueError("the CUDA extension is not available"), "crash"),
        (CheckFailed("no CUDA device computed this"), "check"),
        (OSError(errno.EIO, "disk"), "crash"),
        *((rank_error(1, 3, kind, "of a rank"), status) for kind, status in OF_RANKS.items()),
    ],
)
def test_errors_are_sorted_by_what_the_user_can_do(error, status):
    assert explain(error).status == status


def test_what_cannot_run_here_is_tried_once(tmp_path, server):
    cells = [cell("no_package", repeats=3), cell("ok", repeats=3)]
    with Store.create(tmp_path) as store:
        summary, heard = go(store, *cells, control="none", server=server)
        starts = [event[1] for event in heard.events if event[0] == "start"]
        assert starts.count("no_package") == 1
        assert starts.count("ok") == 3
        assert (summary.cells_ok, summary.cells_skipped) == (1, 1)
        again, heard = go(store, *cells, control="none", server=server)
        assert again.rows == 0
        retried, _ = go(store, *cells, control="none", retry="all", server=server)
        assert retried.rows == 1


def test_a_check_of_a_plugin_s_own_fails_its_row_and_never_lets_it_stand(tmp_path, server):
    hows = ("own_check", "own_check_beside", "own_check_that_fails")
    with Store.create(tmp_path) as store:
        go(store, *(cell(how, group=how) for how in hows), preset="smoke", server=server)
        rows = {row.params["how"]: row for row in store.rows() if row.paper == "fake"}
    alone, beside, failing = (rows[how] for how in hows)
    assert (alone.status, alone.reason, alone.time) == ("void", OWN_ONLY, None)
    assert [check.own for check in alone.checks] == [True, True]
    assert [check.own for check in beside.checks] == [True, True, False]
    assert beside.ok
    assert any(note.startswith("own check") for note in beside.notes)
    assert failing.status == "check"
    assert "own check" in failing.reason
    assert [check.own for check in failing.checks if not check.passed] == [True]
