"""The same numbers twice: what differs is found, and what only wavers as it says it does is not."""

from __future__ import annotations

import msgspec
import pytest
from fake_run import make_run

from dgbench.harness.compare import NOT_SAME
from dgbench.harness.quantities import exact
from dgbench.harness.repeat import agreement
from dgbench.harness.store import Row, Store
from dgbench.lab.table import observation


def counted(**counts):
    return [observation(name, count) for name, count in counts.items()]


def cell(name, **fields):
    fields = {"observed": counted(edges=7, turns=9), "group": name} | fields
    hash_ = f"{name}{fields.get('params', {})}"
    fields = {"params": {"dataset": name}} | fields
    return Row(id=f"{name}-r1", cell_hash=hash_, paper="toy", experiment="fig1", **fields)


def test_a_run_agrees_with_its_copy(tmp_path):
    rows = Store.open(make_run(tmp_path)).rows()
    found = agreement(rows, rows)
    assert (found.apart, found.only_a, found.only_b, found.disagree) == ([], [], [], [])
    assert found.counters == sum(len(exact(r)) for r in rows) > 0
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("name", "value"), [("edges", 8), ("edges", None), ("vertices", 1)], ids=["off", "gone", "new"]
)
@pytest.mark.parametrize(
    "kind", [{}, {"instrumented": True}, {"params": {"control": "aa"}}, {"round": 2}], ids=str
)
def test_one_counter_of_one_process_is_enough(kind, name, value):
    rows = [cell("a"), cell("b", **kind)]
    before = exact(rows[1])
    after = {k: v for k, v in (before | {name: value}).items() if v is not None}
    again = msgspec.structs.replace(rows[1], observed=counted(**after))
    found = agreement(rows, [rows[0], again])
    (one,) = found.apart
    assert (one.what, one.a, one.b) == (name, before.get(name), after.get(name))
    assert found.exit_code == NOT_SAME
