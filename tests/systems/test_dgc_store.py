"""The push and pull store against direct exchanges, between threads and between processes."""

from __future__ import annotations

import pytest
import torch
from dgc_ranks import as_ranks
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dgc_stale import ALL, Case, case_of, reference, take

from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.stale import StaleSettings, summed
from dgbench.systems.dgc.stale_store import StaleStoreRows
from dgbench.systems.dgc.store import StoreRows


def through_store(comm: Communicator, case: Case):
    """Be a worker, or the server as the last rank, which owns nothing."""
    rows = StoreRows(comm)
    lists = case.lists(comm.rank)
    seen, gradients = [], []
    for epoch, loss in enumerate(case.losses):
        x = case.rows[epoch][comm.rank].clone().requires_grad_()
        found = rows.fetch("structure0", x, lists)
        seen.append(found.detach())
        weight = 1.0 + torch.arange(found.shape[0], dtype=torch.float32)
        (found * weight[:, None]).sum().backward()
        gradients.append(x.grad if x.grad is not None else torch.zeros_like(x))
        rows.end_epoch(loss)
    return seen, gradients, comm.traffic, dict(comm.meter.counters), dict(comm.meter.spent)


def with_server(ranks: int, epochs: int, seed: int) -> Case:
    """A case of one rank more, the last without rows."""
    case = case_of(ranks, epochs, seed)
    rows = [[*epoch, torch.zeros(0, 3)] for epoch in case.rows]
    return Case(rows, case.reads, case.losses, ranks + 1)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), ranks=st.integers(1, 3))
def test_rows_and_gradients_are_those_of_a_direct_exchange(seed, ranks):
    case = with_server(ranks, 2, seed)
    found = as_ranks(ranks + 1, through_store, case)
    for epoch, rows in enumerate(case.rows):
        expected = [torch.zeros_like(x) for x in rows]
        for rank in range(ranks + 1):
            parts, place = [rows[0][:0].view(0, 3)], 0
            for by in range(ranks):
                for row in case.reads.get((by, rank), []):
                    parts.append(rows[by][row][None])
                    expected[by][row] += 1.0 + place
                    place += 1
            assert torch.equal(found[rank][0][epoch], torch.cat(parts))
        for rank in range(ranks):
            torch.testing.assert_close(found[rank][1][epoch], expected[rank])


def test_the_server_may_own_nothing_and_must_be_there():
    with pytest.raises(InvalidInputError):
        StoreRows(LocalCommunicator())
    case = Case([[torch.ones(1, 3), torch.ones(1, 3)]], {(1, 0): [0]}, [1.0], 2)
    with pytest.raises(InvalidInputError):
        as_ranks(2, through_store, case)


def through_cache(comm: Communicator, case: Case, stale: StaleSettings):
    """As `test_dgc_stale.take`, through the store; with what was pushed and pulled by epoch."""
    exchange = StaleStoreRows(comm, stale)
    lists, counters = case.lists(comm.rank), comm.meter.counters
    seen, gradients, moved = [], [], []
    for epoch, loss in enumerate(case.losses):
        x = case.rows[epoch][comm.rank].clone().requires_grad_()
        before = counters["store_rows_pushed"], counters["store_rows_pulled"]
        found = exchange.fetch("structure0", x, lists)
        moved.append(
            (counters["store_rows_pushed"] - before[0], counters["store_rows_pulled"] - before[1])
        )
        seen.append(found.detach())
        weight = 1.0 + torch.arange(found.shape[0], dtype=torch.float32)
        (found * weight[:, None]).sum().backward()
        gradients.append(torch.zeros_like(x) if x.grad is None else x.grad)
        exchange.end_epoch(loss)
    return seen, gradients, exchange.history, comm.traffic, moved, exchange


BITS = [stale for stale in ALL if stale.index == "bits"]


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), ranks=st.integers(1, 3), which=st.integers(0, len(BITS) - 1))
def test_the_store_is_the_stale_cache(seed, ranks, which):
    """Rows, gradients and counts are those of stale rows that travel directly and of the slow
    reference; a row crosses the server's link once as it is pushed and once for each reader."""
    stale, case = BITS[which], with_server(ranks, 5, seed)
    found = as_ranks(ranks + 1, through_cache, case, stale)
    direct = as_ranks(ranks + 1, take, case, stale)
    seen, gone = reference(case, stale)
    readers = {}
    for (by, _), kept in case.reads.items():
        for row in kept:
            readers[by, row] = readers.get((by, row), 0) + 1
    for mine, theirs in zip(found, direct, strict=True):
        for a, b in zip(mine[0], theirs[0], strict=True):
            assert torch.equal(a, b)
        for a, b in zip(mine[1], theirs[1], strict=True):
            torch.testing.assert_close(a, b)
        assert [(e.sent, e.held, e.largest, e.rows) for e in mine[2]] == [
            (e.sent, e.held, e.largest, e.rows) for e in theirs[2]
        ]
    for rank in range(ranks):
        assert all(
            torch.equal(a, b[rank].view(-1, 3)) for a, b in zip(found[rank][0], seen, strict=True)
        )
    server = found[ranks]
    total = summed([f[2] for f in found])
    for epoch, sent in enumerate(gone):
        assert sum(f[4][epoch][0] for f in found) == len(sent)  # pushed, each once
        assert server[4][epoch][1] == sum(readers[row] for row in sent) == total[epoch].sent
    if readers and stale.threshold != 0:
        assert server[5].stored_bytes == 4 * 3 * len(readers)
        assert sum(f[5].stored_bytes for f in found) == server[5].stored_bytes
        assert sum(f[5].cache_bytes for f in found) == 4 * 3 * len(readers)
    # Embeddings and bits are all that travels forward; gradients go back as the rows came.
    pushes, pulls = sum(len(sent) for sent in gone), sum(e.sent for e in total)
    forward, backward = (
        sum(f[3].total("bytes", operation="all_to_all", phase=p) for f in found)
        for p in ("forward", "backward")
    )
    told = 8 * (ranks + 1) ** 2  # integers of the layout, at the first exchange
    index = sum(e.index_bytes for e in total)
    assert backward == 4 * 3 * (pushes + pulls)
    assert 0 <= forward - 4 * 3 * (pushes + pulls) - index <= told + 8 * (sum(readers.values()))


def test_stale_rows_in_a_store_are_told_by_bits():
    with pytest.raises(InvalidInputError, match="index"):
        as_ranks(2, StaleStoreRows, StaleSettings(index="ids"))
