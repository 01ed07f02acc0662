"""Every cheat loses its row, and the honest system beside it keeps all of its own."""

from __future__ import annotations

import sys

import pytest

from dgbench.harness.plan import Plan
from dgbench.harness.runner import run_plan
from dgbench.harness.store import Row, Store
from tests.cheats import PRESET, Cheat
from tests.cheats.paper import HONEST, PAPER, ledger, lookup

TIMES = {"step_time", "round_time", "edge_time"}
CHEATS = [one for one in ledger() if one not in HONEST]


@pytest.fixture(scope="module")
def rows(tmp_path_factory, warm_python) -> dict[str, list[Row]]:
    """Judged rows of each cheat by its name, in order of rounds, of one run of all of them."""
    plan = Plan.build([PAPER], None, PRESET)
    store = Store.create(tmp_path_factory.mktemp("cheats"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm_python[0])
        patch.setenv("DGBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        run_plan(plan, store, limits=False, lookup=lookup, threads=1)
    store.close()
    found: dict[str, list[Row]] = {}
    for row in Store.open(store.path).rows():
        found.setdefault(row.params["system"], []).append(row)
    return {name: sorted(own, key=lambda row: row.round) for name, own in found.items()}


@pytest.mark.parametrize("honest", HONEST, ids=lambda one: one.name)
def test_an_honest_system_keeps_its_row(rows, honest: Cheat) -> None:
    (row,) = rows[honest.name]
    assert (row.status, row.reason) == ("ok", "")
    assert TIMES & {one.metric for one in row.observations}
    assert row.checks
    assert all(check.passed for check in row.checks)


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_loses_its_row(rows, cheat: Cheat) -> None:
    assert cheat.loses
    row = rows[cheat.name][-1]
    wrong = [check.words for check in row.checks if not check.passed]
    assert cheat.loses in "; ".join([row.reason, *wrong])
    assert row.status != "ok"
    assert not row.observations


def test_every_cheat_has_a_name_of_its_own() -> None:
    names = [one.name for one in ledger()]
    assert len(set(names)) == len(names)
