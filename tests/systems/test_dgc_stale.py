"""Stale rows, directly and through a store: a slow reference, threads and processes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from dgc_ranks import as_ranks
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.runtime.collectives import Communicator, LocalCommunicator, TrafficMatrix
from dgbench.runtime.errors import CheckFailed, InvalidInputError, UnknownKeyError
from dgbench.systems.dgc.halo_lists import RowLists
from dgbench.systems.dgc.stale import (
    LastSent,
    StaleRows,
    StaleSettings,
    Threshold,
    loss_decrease,
    summed,
)
from dgbench.systems.dgc.stale_store import StaleStoreRows
from dgbench.systems.dgc.store import StoreRows


@dataclass
class Case:
    """Rows of each rank in each epoch, and who reads which."""

    rows: list[list[Tensor]]  # [epoch][rank], [R, W]
    reads: dict[tuple[int, int], list[int]]  # (sender, receiver): own rows of the sender
    losses: list[float]
    ranks: int

    def lists(self, rank: int) -> RowLists:
        sends = [self.reads.get((rank, to), []) for to in range(self.ranks)]
        return RowLists(
            torch.tensor([row for part in sends for row in part], dtype=torch.int64),
            [len(part) for part in sends],
            [len(self.reads.get((by, rank), [])) for by in range(self.ranks)],
        )

    def heard(self, rank: int) -> list[tuple[int, int]]:
        """(sender, row) of all that a rank reads, as it comes in."""
        senders = range(self.ranks)
        return [(by, row) for by in senders for row in self.reads.get((by, rank), [])]


WIDTH = 3


def case_of(ranks: int, epochs: int, seed: int) -> Case:
    draw = torch.Generator().manual_seed(seed)

    def number(high: int) -> int:
        return int(torch.randint(0, high, (), generator=draw))

    sizes = [number(14) for _ in range(ranks)]  # more than a byte of bits
    reads = {
        (by, to): [row for row in range(sizes[by]) if number(3)]
        for by in range(ranks)
        for to in range(ranks)
        if by != to and sizes[by] and number(4)
    }
    rows = [[torch.randn(n, WIDTH, generator=draw) for n in sizes]]
    # Most rows move a little, some not at all, some far.
    steps = torch.tensor([0.0, 0.01, 0.3, 2.0])
    for _ in range(epochs - 1):
        scales = [steps[torch.randint(0, 4, (n, 1), generator=draw)] for n in sizes]
        rows.append(
            [x + scale * torch.randn(x.shape, generator=draw)
             for x, scale in zip(rows[-1], scales, strict=True)]
        )  # fmt: skip
    return Case(rows, reads, [1.0 / (1 + 0.5 * epoch) for epoch in range(epochs)], ranks)


def reference(case: Case, s: StaleSettings) -> tuple[list[list[Tensor]], list[list[set]]]:
    """Row by row: what each rank sees in each epoch, and which (sender, row) went out."""
    sent_last: dict[tuple[int, int], Tensor] = {}
    compared: dict[tuple[int, int], Tensor] = {}
    since: dict[tuple[int, int], int] = {}
    past: dict[int, float] = {}
    seen_all, gone_all = [], []
    for epoch, rows in enumerate(case.rows):
        norm = (case.losses[0] - case.losses[epoch - 1]) / case.losses[0] if epoch else 0.0
        share = s.threshold
        if share is None:
            share = 1 / (1 + math.exp(norm if s.sign == "printed" else -norm))
        boundary = {(by, row) for (by, _), kept in case.reads.items() for row in kept}
        far = {key: float((rows[key[0]][key[1]] - compared[key]).norm()) for key in boundary
               if key in compared}  # fmt: skip
        gone = set()
        for key in boundary:
            if epoch < s.whole_epochs or share == 0:
                gone.add(key)
                continue
            mine = [d for other, d in far.items() if s.scope == "global" or other[0] == key[0]]
            largest = max(mine)
            if s.quantile < 1:
                mine = sorted(d for d in mine if d)
                largest = mine[math.ceil(s.quantile * len(mine)) - 1] if mine else 0.0
            if s.reach == "past":
                past[key[0]] = largest = max(largest, past.get(key[0], 0.0))
            old = s.refresh is not None and epoch - since[key] >= s.refresh
            if far[key] > share * largest or old:
                gone.add(key)
        for key in boundary:
            if key in gone:
                sent_last[key] = rows[key[0]][key[1]]
                since[key] = epoch
            if key in gone or s.cache == "previous":
                compared[key] = rows[key[0]][key[1]]
        seen = []
        for rank in range(case.ranks):
            parts = [sent_last[key] for key in case.heard(rank)]
            seen.append(torch.stack(parts) if parts else rows[0][:0])
        seen_all.append(seen)
        gone_all.append(gone)
    return seen_all, gone_all


NUMBERS = ("index_elements", "cache_bytes", "received_bytes", "stored_bytes")


@dataclass
class Taken:
    """Rows that came to a rank in each epoch, gradients of sum(came * weight), and counts."""

    seen: list[Tensor]
    gradients: list[Tensor]
    moved: list[tuple[int, int]]  # rows pushed to a store and pulled from it
    history: list
    traffic: TrafficMatrix
    counters: dict[str, int]
    numbers: dict[str, int]


def take(comm: Communicator, case: Case, kind: type, *stale: StaleSettings) -> Taken:
    """Be one rank; of a store the last one is the server, which owns nothing."""
    exchange, lists, counters = kind(comm, *stale), case.lists(comm.rank), comm.meter.counters
    found = Taken([], [], [], [], comm.traffic, {}, {})
    for rows, loss in zip(case.rows, case.losses, strict=True):
        x = rows[comm.rank].clone().requires_grad_()
        before = counters["store_rows_pushed"], counters["store_rows_pulled"]
        came = exchange.fetch("structure0", x, lists)
        after = counters["store_rows_pushed"], counters["store_rows_pulled"]
        found.moved.append((after[0] - before[0], after[1] - before[1]))
        found.seen.append(came.detach())
        weight = 1.0 + torch.arange(came.shape[0], dtype=torch.float32)
        (came * weight[:, None]).sum().backward()
        found.gradients.append(torch.zeros_like(x) if x.grad is None else x.grad)
        exchange.end_epoch(loss)
    found.history, found.counters = getattr(exchange, "history", []), dict(counters)
    found.numbers = {name: getattr(exchange, name, 0) for name in NUMBERS}
    return found


def compared(case: Case, found: list[Taken], stale: StaleSettings) -> list[set]:
    """Rows that went out in each epoch, after a comparison of rows and gradients."""
    seen, gone = reference(case, stale)
    for epoch, rows in enumerate(case.rows):
        expected = [torch.zeros_like(x) for x in rows]
        for rank, mine in enumerate(found):
            assert torch.equal(mine.seen[epoch], seen[epoch][rank].view(-1, WIDTH))
            for place, (by, row) in enumerate(case.heard(rank)):
                expected[by][row] += (1.0 + place) * ((by, row) in gone[epoch])
        for mine, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(mine.gradients[epoch], wanted)
    return gone


ALL = [
    StaleSettings(),
    StaleSettings(sign="printed"),
    StaleSettings(cache="previous"),
    StaleSettings(scope="global"),
    StaleSettings(threshold=0.0),
    StaleSettings(threshold=0.3, index="ids"),
    StaleSettings(threshold=0.9, whole_epochs=2),
    StaleSettings(quantile=0.5),
    StaleSettings(reach="past"),
    StaleSettings(reach="past", scope="global", threshold=0.5),
    StaleSettings(threshold=1.0, refresh=2),
]


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), ranks=st.integers(2, 4), which=st.integers(0, len(ALL) - 1))
def test_rows_gradients_and_counts_are_those_of_the_slow_reference(seed, ranks, which):
    stale, case = ALL[which], case_of(ranks, 5, seed)
    found = as_ranks(ranks, take, case, StaleRows, stale)
    gone = compared(case, found, stale)
    heard = [key for rank in range(ranks) for key in case.heard(rank)]
    total = summed([f.history for f in found])
    for sent, epoch in zip(gone, total, strict=True):
        went = sum(key in sent for key in heard)
        assert (epoch.sent, epoch.held) == (went, len(heard) - went)
        assert epoch.sent_floats == WIDTH * went
    floats = 0
    for rank, one in enumerate(found):
        forward = one.traffic.total("floats", operation="all_to_all", phase="forward")
        # Ids and bits are elements of all-to-alls, too; what is left are the embeddings.
        embeddings = forward - one.numbers["index_elements"]
        assert embeddings == sum(e.sent_floats for e in one.history)
        index = one.traffic.total("bytes", operation="all_to_all", phase="forward") - 4 * embeddings
        index += one.traffic.total("bytes", operation="sizes")
        assert index == sum(e.index_bytes for e in one.history) == one.counters["stale_index_bytes"]
        floats += one.traffic.total("floats", operation="all_to_all", phase="backward")
        if stale.threshold != 0:  # of each own row one copy, whatever its readers
            own = len({key for key in heard if key[0] == rank})
            assert one.numbers["cache_bytes"] == 4 * WIDTH * own
            assert one.numbers["received_bytes"] == 4 * WIDTH * len(case.heard(rank))
    assert floats == sum(epoch.sent_floats for epoch in total)


def test_what_is_measured_without_gradients_changes_and_counts_nothing():
    def be(comm):
        rows = StaleRows(comm, StaleSettings(threshold=1.0))
        lists = Case([], {(0, 1): [0]}, [], 2).lists(comm.rank)
        x = torch.zeros(1, 2, requires_grad=True)
        rows.fetch("structure0", x, lists)
        rows.end_epoch(1.0)
        with torch.no_grad():
            fresh = rows.fetch("structure0", x + 5, lists)
        stale = rows.fetch("structure0", x + 1, lists)
        rows.end_epoch(1.0)
        return fresh, stale.detach(), rows.history

    fresh, stale, history = as_ranks(2, be)[1]
    assert torch.equal(fresh, torch.full((1, 2), 5.0))
    assert torch.equal(stale, torch.zeros(1, 2))
    assert len(history) == 2


@pytest.mark.parametrize("stale", [StaleSettings(), StaleSettings(scope="global", reach="past")])
def test_inputs_travel_once_and_nobody_is_told_again(stale):
    def be(comm):
        rows, lists = StaleRows(comm, stale), Case([], {(0, 1): [0]}, [], 2).lists(comm.rank)
        x, operations = torch.full((1, 2), 3.0), []
        for _ in range(3):
            found = rows.fetch("structure0", x, lists)
            rows.end_epoch(1.0)
            operations.append(comm.traffic.total("messages"))
        for changed in (lambda: x + 1, lambda: x.add_(1)) if comm.rank == 0 else ():
            with pytest.raises(InvalidInputError, match="structure0"):
                rows.fetch("structure0", changed(), lists)
        return found, operations, rows.history, rows.cache_bytes

    first, second = as_ranks(2, be)
    assert second[0].tolist() == [[3.0, 3.0]]
    assert first[1] == [1, 1, 1]
    assert [(e.sent, e.held, e.index_bytes) for e in first[2]] == [(1, 0, 0), (0, 1, 0), (0, 1, 0)]
    assert first[3] == 8


def test_losses_of_zero_and_of_no_number():
    assert loss_decrease(0.0, 0.5) == 0.0
    threshold = Threshold(StaleSettings())
    threshold.end_epoch(1.0)
    with pytest.raises(CheckFailed, match="loss"):
        threshold.end_epoch(math.nan)


def test_a_row_of_nan_is_sent():
    last = LastSent(StaleSettings())
    last.choose(torch.zeros(2, 1), None)
    assert last.choose(torch.tensor([[math.nan], [1.0]]), 0.5)[0]


def test_settings_out_of_range_are_refused():
    for field, value in (("sign", "minus"), ("cache", "last"), ("scope", "all"),
                         ("index", "none"), ("reach", "future")):  # fmt: skip
        with pytest.raises(UnknownKeyError, match=field):
            StaleSettings(**{field: value}).check()
    for fields in ({"threshold": 1.5}, {"threshold": -0.1}, {"quantile": 0.0},
                   {"quantile": 0.5, "scope": "global"}, {"whole_epochs": 0},
                   {"refresh": 0}):  # fmt: skip
        with pytest.raises(InvalidInputError, match=next(iter(fields))):
            StaleSettings(**fields).check()


def test_the_server_owns_nothing_and_must_be_there():
    with pytest.raises(InvalidInputError):
        StoreRows(LocalCommunicator())
    case = Case([[torch.ones(1, 3), torch.ones(1, 3)]], {(1, 0): [0]}, [1.0], 2)
    with pytest.raises(InvalidInputError):
        as_ranks(2, take, case, StoreRows)
    with pytest.raises(InvalidInputError, match="index"):
        as_ranks(2, StaleStoreRows, StaleSettings(index="ids"))


BITS = [stale for stale in ALL if stale.index == "bits"]


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), ranks=st.integers(1, 3), which=st.integers(0, len(BITS) - 1))
def test_the_store_is_the_stale_cache(seed, ranks, which):
    """A row crosses the server's link once as it is pushed and once for each reader, and counts are
    those of stale rows that travel directly; without stale rows every row does in every epoch."""
    stale, case = BITS[which], case_of(ranks, 5, seed)
    rows = [[*epoch, torch.zeros(0, WIDTH)] for epoch in case.rows]
    case = Case(rows, case.reads, case.losses, ranks + 1)  # the last one is the server
    compared(case, as_ranks(ranks + 1, take, case, StoreRows), StaleSettings(threshold=0.0))
    found = as_ranks(ranks + 1, take, case, StaleStoreRows, stale)
    gone = compared(case, found, stale)
    direct = as_ranks(ranks + 1, take, case, StaleRows, stale)
    readers = Counter(key for rank in range(ranks) for key in case.heard(rank))
    for mine, theirs in zip(found, direct, strict=True):
        assert [(e.sent, e.held, e.largest, e.rows) for e in mine.history] == [
            (e.sent, e.held, e.largest, e.rows) for e in theirs.history
        ]
    server = found[ranks]
    total = summed([f.history for f in found])
    for epoch, sent in enumerate(gone):
        assert sum(f.moved[epoch][0] for f in found) == len(sent)  # pushed, each once
        assert server.moved[epoch][1] == sum(readers[row] for row in sent) == total[epoch].sent
    if readers and stale.threshold != 0:
        copies = 4 * WIDTH * len(readers)
        assert server.numbers["stored_bytes"] == copies
        for name in ("stored_bytes", "cache_bytes"):
            assert sum(f.numbers[name] for f in found) == copies
    # Embeddings and bits are all that travels forward; gradients go back as the rows came.
    moved = 4 * WIDTH * (sum(map(len, gone)) + sum(e.sent for e in total))
    forward, backward = (
        sum(f.traffic.total("bytes", operation="all_to_all", phase=p) for f in found)
        for p in ("forward", "backward")
    )
    layout = 8 * (ranks + 1) ** 2 + 8 * sum(readers.values())  # integers, at the first exchange
    assert backward == moved
    assert 0 <= forward - moved - sum(e.index_bytes for e in total) <= layout
