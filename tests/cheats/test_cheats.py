"""Every cheat loses its row, and the honest forms beside it, on one process and on ranks, keep
all of their own."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dgbench.harness.plan import Plan
from dgbench.harness.runner import run_plan
from dgbench.harness.store import Row, Store
from tests.cheats import PRESET, paper, ranks

TIMES = {"step_time", "round_time", "edge_time", "epoch_time", "throughput"}
CHEATS = [*(one for one in paper.ledger() if one not in paper.HONEST), *ranks.CHEATS]


def names(cases: list[Any]) -> Any:
    return pytest.mark.parametrize("one", cases, ids=lambda one: one.name)


@pytest.fixture(scope="module")
def rows(tmp_path_factory, warm_python) -> dict[str, list[Row]]:
    """Judged rows of each case by its name, in order of rounds, of one run of all of them."""
    plan = Plan.build([paper.PAPER, ranks.PAPER], None, PRESET)
    store = Store.create(tmp_path_factory.mktemp("cheats"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm_python[0])
        patch.setenv("DGBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        run_plan(plan, store, limits=False, lookup=paper.lookup, threads=1)
    store.close()
    found: dict[str, list[Row]] = {}
    for row in Store.open(store.path).rows():
        found.setdefault(row.params.get("system", row.params.get("case")), []).append(row)
    return {name: sorted(own, key=lambda row: row.round) for name, own in found.items()}


@names([*paper.HONEST, *ranks.HONEST])
def test_an_honest_system_keeps_its_rows(rows, one) -> None:
    assert [(row.status, row.reason) for row in rows[one.name]] == [("ok", "")] * one.rounds
    for row in rows[one.name]:
        assert TIMES & {seen.metric for seen in row.observations}
        assert row.checks
        assert all(check.passed for check in row.checks)
        if one in ranks.HONEST:
            assert {"updates", "moments"} <= {check.of for check in row.checks}


@names(CHEATS)
def test_a_cheat_loses_its_row(rows, one) -> None:
    assert one.loses
    *earlier, row = rows[one.name]
    assert all(check.passed for before in earlier for check in before.checks)
    wrong = [check.words for check in row.checks if not check.passed]
    assert one.loses in "; ".join([row.reason, *wrong])
    assert row.status != "ok"
    assert not row.observations


def test_every_cheat_has_a_name_of_its_own() -> None:
    every = [one.name for one in (*paper.ledger(), *ranks.HONEST, *ranks.CHEATS)]
    assert len(set(every)) == len(every)
