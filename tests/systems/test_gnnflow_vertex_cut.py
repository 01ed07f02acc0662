"""Remote requests of sampling, against a count of every event."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import UnknownKeyError
from dgbench.systems.gnnflow.experiments.partition_checks import assignment_check
from dgbench.systems.gnnflow.owners import IdentityHash
from dgbench.systems.gnnflow.vertex_cut import (
    CUTS,
    asked_edge_cut,
    asked_vertex_cut,
    edge_machines,
)

edges = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=25)


def by_hand(pairs, first, fanout, asker, place):
    """(requests, records), `place(vertex, event)` the machine that has the event for it."""
    requests = records = 0
    for e in range(first, len(pairs)):
        for v in pairs[e]:
            held: dict[int, int] = {}
            for past in range(e):
                times = pairs[past].count(v)
                if times:
                    m = place(v, past)
                    held[m] = held.get(m, 0) + times
            for m, count in held.items():
                if m != asker[e - first]:
                    requests += 1
                    records += min(count, fanout)
    return requests, records


@settings(max_examples=60)
@given(edges, st.integers(1, 3), st.integers(0, 3), st.integers(1, 4))
def test_asked_against_a_count_by_hand(pairs, machines, first, fanout) -> None:
    first = min(first, len(pairs))
    src, dst = (torch.tensor(column) for column in zip(*pairs, strict=True))
    asker = torch.arange(len(pairs) - first) % machines
    owners = IdentityHash(machines)
    found = asked_edge_cut(owners, src, dst, first, fanout, asker)
    expected = by_hand(pairs, first, fanout, asker.tolist(), lambda v, e: v % machines)
    assert (found.requests, found.records) == expected
    assert found.targets == 2 * (len(pairs) - first)
    for by in CUTS:
        where = edge_machines(by, 6, src, dst, machines)
        assert int(where.min()) >= 0
        assert int(where.max()) < machines
        found = asked_vertex_cut(where, machines, src, dst, first, fanout, asker)
        kept = where.tolist()
        expected = by_hand(pairs, first, fanout, asker.tolist(), lambda v, e: kept[e])  # noqa: B023
        assert (found.requests, found.records) == expected
        assert found.bytes == 24 * (found.requests + found.records)


def test_a_stream_that_hangs_together_may_leave_machines_of_hdrf_empty() -> None:
    """Its balance never outweighs an end that is known, so that this is no wrong result."""
    src, dst = torch.arange(9), torch.arange(1, 10)  # a path: each edge knows the one before
    where = edge_machines("hdrf", 10, src, dst, 3)
    assert set(where.tolist()) == {0}
    assert assignment_check(where, 9, 3, filled=False).passed
    assert not assignment_check(where, 9, 3).passed
    for wrong in (where + 3, where - 1, where[1:]):
        assert not assignment_check(wrong, 9, 3, filled=False).passed


def test_cuts_refuse_another_name() -> None:
    one = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(UnknownKeyError, match="grid"):
        edge_machines("grid", 1, one, one, 2)
