"""Every cheat loses its row, and the honest forms beside it, on one process and on ranks, keep
all of their own."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from dgbench.harness.cli.outcome import exit_code, unexpected
from dgbench.harness.runner import run_plan
from dgbench.harness.store import Row, Store
from tests.cheats import PRESET, Cheat, harness, ranks
from tests.cheats.paper import HONEST, ledger, lookup, plan_of

TIMES = {"step_time", "round_time", "edge_time", "epoch_time", "throughput"}
CHEATS = [one for one in ledger() if one.loses]
SAMPLE = {
    "Asked", "AskedForCopies", "Rehearsed", "Trained", "FewerEdges", "NoMomentum",
    "CountersOfAHundredth", "AltersTolerances", "LowersRivals", "SecondThread", "LeavesADaemon",
    "ChangesData", "OwnProducts", "EditsRows", "stream, put off", "stream, unwritten memory",
    "interactions, unwritten state", "esdg, an idle rank", "dgc, every second update",
    "dgc, stale rows, no update", "gnnflow, unwritten memory", "tgcn, own half",
}  # fmt: skip
"""Cheats of the suite, one for each way in which an audit sees them; the others are nightly."""


def names(cases: list[Cheat]) -> Any:
    nightly = [PRESET == "smoke" and bool(one.loses) and one.name not in SAMPLE for one in cases]
    return pytest.mark.parametrize(
        "one",
        [pytest.param(one, id=one.name, marks=[pytest.mark.nightly] * late)
         for one, late in zip(cases, nightly, strict=True)],
    )  # fmt: skip


@pytest.fixture(scope="module")
def rows(request, tmp_path_factory, warm_python) -> dict[str, list[Row]]:
    """Judged rows of each case by its name, in order of rounds, of one run of those asked for."""
    mine = [item for item in request.session.items if item.path == request.path]
    chosen = {item.callspec.params["one"].name for item in mine if hasattr(item, "callspec")}
    plan = plan_of([one for one in ledger() if one.name in chosen])
    store = Store.create(tmp_path_factory.mktemp("cheats"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm_python[0])
        patch.setenv("DGBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        run_plan(plan, store, limits=False, lookup=lookup, threads=1)
    store.close()
    found: dict[str, list[Row]] = {}
    for row in Store.open(store.path).rows():
        found.setdefault(row.params.get("system", row.params.get("case")), []).append(row)
    return {name: sorted(own, key=lambda row: row.round) for name, own in found.items()}


@names(HONEST)
def test_an_honest_system_keeps_its_rows(rows, one) -> None:
    assert [(row.status, row.reason) for row in rows[one.name]] == [("ok", "")] * one.rounds
    for row in rows[one.name]:
        assert TIMES & {seen.metric for seen in row.observed}
        assert row.checks
        assert all(check.passed for check in row.checks)
        if one in ranks.HONEST:
            assert {"updates", "moments"} <= {check.of for check in row.checks}


@names(CHEATS)
def test_a_cheat_loses_its_row(rows, one) -> None:
    *earlier, row = rows[one.name]
    assert all(check.passed for before in earlier for check in before.checks)
    wrong = [check.words for check in row.checks if not check.passed]
    assert one.loses in "; ".join([row.reason, *wrong])
    assert row.status != "ok"
    assert not row.observed


def test_every_cheat_has_a_name_of_its_own_and_loses_unless_it_is_honest() -> None:
    every = [one.name for one in ledger()]
    assert len(set(every)) == len(every) == len(CHEATS) + len(HONEST)
    assert set(every) >= SAMPLE


# --- more than one run: failed checks tried again, and processors of others -----------------------


@pytest.fixture
def run(tmp_path, warm_python, monkeypatch):
    """Runs a plan in a store, and returns its summary."""
    monkeypatch.setattr(sys, "executable", warm_python[0])
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path / "cache"))
    return lambda plan, store, **more: run_plan(
        plan, store, limits=False, lookup=lookup, threads=1, **more
    )


def rows_of(store: Store) -> dict[str, Row]:
    return {row.params["system"]: row for row in store.rows() if row.paper == "cheats"}


def test_a_failed_check_that_passes_when_it_is_tried_again_stays(run, tmp_path) -> None:
    (cheat,) = (one for one in harness.LEDGER if one.plugin.trainer is harness.FailsOnce)
    plan = plan_of([cheat, HONEST[0]])
    with Store.create(tmp_path) as store:
        run(plan, store)
        assert rows_of(store)[cheat.name].status == "check"
    with Store.open(store.path, writable=True) as store:
        summary = run(plan, store, retry="failed")
        (again,) = (r for r in store.written() if r.params.get("system") == cheat.name)
        assert (again.status, again.id[-2:]) == ("ok", ".2")
        found = rows_of(store)
    assert found["honest"].ok
    assert found[cheat.name].status == "void"
    assert "failed a check in an earlier attempt" in found[cheat.name].reason
    assert not found[cheat.name].observed
    assert summary.cells_failed == 1
    assert exit_code(summary, unexpected(list(found.values()), [])) == 1


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2,
    reason="there is no second processor to take",
)
def test_processors_that_a_run_was_not_given_cost_the_row(run, tmp_path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with Store.create(tmp_path) as store:
            run(plan_of([HONEST[0], *harness.ON_ONE_PROCESSOR]), store)
            found = rows_of(store)
    finally:
        os.sched_setaffinity(0, before)
    assert found["honest"].ok
    (cheat,) = harness.ON_ONE_PROCESSOR
    assert found[cheat.name].status == "check"
    assert cheat.loses in found[cheat.name].reason
