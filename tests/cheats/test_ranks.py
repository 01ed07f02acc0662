"""Every cheat on ranks loses its row, and honest ranks beside it keep all of their own."""

from __future__ import annotations

import sys

import pytest

from dgbench.harness.plan import Plan
from dgbench.harness.runner import run_plan
from dgbench.harness.store import Row, Store
from tests.cheats import PRESET
from tests.cheats.ranks import CHEATS, HONEST, PAPER, RankCheat, lookup


@pytest.fixture(scope="module")
def rows(tmp_path_factory, warm_python) -> dict[str, list[Row]]:
    """Judged rows of each case by its name, in order of rounds, of one run of all of them."""
    plan = Plan.build([PAPER], None, PRESET)
    store = Store.create(tmp_path_factory.mktemp("cheats"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm_python[0])
        patch.setenv("DGBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        run_plan(plan, store, limits=False, lookup=lookup, threads=1)
    store.close()
    found: dict[str, list[Row]] = {}
    for row in Store.open(store.path).rows():
        found.setdefault(row.params["case"], []).append(row)
    return {name: sorted(own, key=lambda row: row.round) for name, own in found.items()}


@pytest.mark.parametrize("honest", HONEST, ids=lambda one: one.name)
def test_honest_ranks_keep_their_rows(rows, honest: RankCheat) -> None:
    assert [(row.status, row.reason) for row in rows[honest.name]] == [("ok", "")] * honest.rounds
    for row in rows[honest.name]:
        assert {"epoch_time", "throughput"} & {one.metric for one in row.observations}
        assert {"updates", "moments"} <= {check.of for check in row.checks}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_ranks_that_cheat_lose_their_row(rows, cheat: RankCheat) -> None:
    *earlier, row = rows[cheat.name]
    assert all(check.passed for one in earlier for check in one.checks)
    wrong = [check.words for check in row.checks if not check.passed]
    assert cheat.loses in "; ".join([row.reason, *wrong])
    assert row.status != "ok"
    assert not row.observations
