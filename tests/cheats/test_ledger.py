"""Cheats that take more than one run: a failed check tried again, and processors of others."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from dgbench.harness.cli.outcome import exit_code, unexpected
from dgbench.harness.plan import Plan
from dgbench.harness.runner import run_plan
from dgbench.harness.store import Row, Store
from tests.cheats import PRESET, Cheat, harness
from tests.cheats.paper import HONEST, PAPER, Cheats, cells, lookup


def plan_of(*cheats: Cheat) -> Plan:
    """The plan of the cells of some cheats."""

    class Some(Cheats):
        def cells(self, preset, device):
            return cells(cheats)

    return Plan.build([replace(PAPER, experiments=(Some(),))], None, PRESET)


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
    plan = plan_of(cheat, HONEST[0])
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
    assert not found[cheat.name].observations
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
            run(plan_of(HONEST[0], *harness.ON_ONE_PROCESSOR), store)
            found = rows_of(store)
    finally:
        os.sched_setaffinity(0, before)
    assert found["honest"].ok
    (cheat,) = harness.ON_ONE_PROCESSOR
    assert found[cheat.name].status == "check"
    assert cheat.loses in found[cheat.name].reason
