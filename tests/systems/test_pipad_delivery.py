"""Order of a frame's inputs: the device's buffer, the courier, topology that arrived."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of, tiny_sequence

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.pipad.buffers import DeviceBuffer, HostStore
from dgbench.systems.pipad.delivery import FramePrefetcher, Unit
from dgbench.systems.pipad.partitions import Partitions
from dgbench.systems.pipad.received import Received, ReceivedAggregation
from dgbench.systems.pipad.snapshots import SnapshotAggregation
from dgbench.systems.pipad.wire import pack, unpack

CPU = torch.device("cpu")


def test_the_store_knows_what_it_lacks() -> None:
    store = HostStore(5, 2, 3)
    assert store.nbytes == 4 * 5 * 2 * 3
    assert store.missing(range(1, 4)) == [1, 2, 3]
    store.put(2, torch.full((2, 3), 2.0))
    assert store.missing(range(1, 4)) == [1, 3]
    assert torch.equal(store.rows(range(2, 3)), torch.full((1, 2, 3), 2.0))


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 8)), max_size=12),
    st.booleans(),
)
def test_the_buffer_gives_every_frame_back(frames, holds) -> None:
    """Frames in any order, of any length, with any memory: values right, bytes within bounds."""
    truth = torch.arange(20.0)[:, None, None].expand(20, 2, 3) + torch.rand(20, 2, 3)
    buffer = DeviceBuffer(2, 3, device=CPU, capacity=0, holds=holds)
    resident: set[int] = set()
    times = [range(start, start + length) for start, length, _ in frames]
    for i, (now, (_, _, rows)) in enumerate(zip(times, frames, strict=True)):
        buffer.capacity = 24 * rows + 5
        following = times[i + 1] if i + 1 < len(times) else None
        runs = buffer.fresh(now)
        assert [t for run in runs for t in run] == sorted(set(now) - resident)
        if holds:
            arrived = [truth[run.start : run.stop].clone() for run in runs]
            frame = buffer.frame(now, arrived)
            assert torch.equal(frame, truth[now.start : now.stop])
            for rows_sent in arrived:
                if rows_sent.data_ptr() != frame.data_ptr():
                    rows_sent.fill_(-1)  # the link's memory is used for something else
            buffer.keep(now, following, frame)
        else:
            buffer.keep(now, following)
        shared = sorted(set(now) & set(following or ()))
        resident = set(shared[: min(rows, len(shared))])
        assert set(buffer.resident) == resident
        assert buffer.nbytes <= 24 * max((r for _, _, r in frames[: i + 1]), default=0)
    buffer.close()
    assert buffer.nbytes == 0
    assert not buffer.resident


def test_the_buffer_takes_memory_only_when_it_is_too_small() -> None:
    buffer = DeviceBuffer(1, 1, device=CPU, capacity=400)
    values = torch.arange(30.0).view(30, 1, 1)
    for start in range(20):
        now, after = range(start, start + 8), range(start + 1, start + 9)
        runs = buffer.fresh(now)
        frame = buffer.frame(now, [values[r.start : r.stop] for r in runs])
        buffer.keep(now, after, frame)
    assert buffer.reallocations == 1
    assert buffer.nbytes == 4 * 7


class Log:
    """A link that notes what is sent and given back."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def send(self, tensors):
        name = int(tensors[0])
        self.lines.append(f"send {name}")
        return LogTicket(self.lines, name, tensors)


class LogTicket:
    def __init__(self, lines, name, tensors) -> None:
        self.lines, self.name, self.tensors = lines, name, tensors

    def wait(self):
        self.lines.append(f"wait {self.name}")
        return self.tensors

    def release(self) -> None:
        self.lines.append(f"free {self.name}")


def courier(log: Log, *, ahead: bool, units: int = 2) -> FramePrefetcher:
    def plan(times: range) -> list[Unit]:
        names = [torch.tensor(10 * times.start + k) for k in range(units)]
        return [Unit([name], lambda tensors: int(tensors[0])) for name in names]

    return FramePrefetcher(log, plan, ahead=ahead, on_send=lambda unit: None)


def test_the_next_unit_is_on_its_way_before_this_one_is_computed() -> None:
    log = Log()
    mail = courier(log, ahead=True)
    mail.begin(range(1, 2))
    assert mail.take(0) == 10
    mail.look_ahead(range(2, 3))
    assert log.lines == ["send 10", "wait 10", "send 11"]
    assert mail.take(1) == 11
    mail.look_ahead(range(2, 3))
    mail.look_ahead(range(2, 3))  # one unit ahead, not more
    assert log.lines[3:] == ["wait 11", "send 20"]
    assert mail.take(0) == 10  # a backward pass may read it until the step is over
    mail.finish()
    assert log.lines[5:] == ["free 10", "free 11"]
    mail.begin(range(2, 3))
    assert mail.take(0) == 20
    assert log.lines[7:] == ["wait 20"]


def test_a_frame_that_does_not_come_is_dropped() -> None:
    log = Log()
    mail = courier(log, ahead=True, units=1)
    mail.begin(range(1, 2))
    mail.take(0)
    mail.look_ahead(range(2, 3))
    mail.begin(range(5, 6))
    assert mail.take(0) == 50
    assert log.lines == [
        "send 10",
        "wait 10",
        "send 20",
        "free 10",
        "free 20",
        "send 50",
        "wait 50",
    ]
    mail.forget()
    assert log.lines[-1] == "free 50"


def test_without_the_pipeline_nothing_goes_ahead() -> None:
    log = Log()
    mail = courier(log, ahead=False)
    mail.begin(range(1, 2))
    mail.take(0)
    mail.look_ahead(range(2, 3))
    assert log.lines == ["send 10", "wait 10"]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 12),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["sym", "mean"]),
)
def test_what_arrived_aggregates_like_the_graph(
    nodes, snapshots, count, width, weighted, whole, sliced, norm
) -> None:
    draw = torch.Generator().manual_seed(nodes * 100 + count)

    def one():
        found = torch.randint(0, nodes, (count, 2), generator=draw).tolist()
        weights = {(a, b): 0.5 + a + b for a in range(nodes) for b in range(nodes)}
        return csr_of(map(tuple, found), nodes, weights if weighted else None)

    data = tiny_sequence(nodes=nodes, snapshots=snapshots)
    data.topology = [one() for _ in range(snapshots)]
    times = range(snapshots)
    partitions = Partitions(data, norm=norm)
    if whole:
        wires = [pack(csr, sliced=sliced) for csr in data.topology]
    else:
        wires = [pack(partitions.partition(times).parts, sliced=sliced)]
    found = [unpack(wire.layout, wire.tensors) for wire in wires]
    received = Received.of(times, found, norm)
    x = torch.randn(snapshots, nodes, width, generator=draw, requires_grad=True)
    g = torch.randn(snapshots, nodes, width, generator=draw)
    y = ReceivedAggregation.apply(x, lambda: (received.snapshot(i) for i in times))
    want = SnapshotAggregation.apply(x, [partitions.snapshot(t) for t in times])
    assert torch.allclose(y, want, rtol=1e-5, atol=1e-5)
    got, right = (torch.autograd.grad((r * g).sum(), x)[0] for r in (y, want))
    assert torch.allclose(got, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_memory_is_lent_until_the_step_is_over(asynchronous) -> None:
    """Frames over a real arena: contents stay while later ones arrive, bytes are those sent."""
    meter = Meter()
    rows = torch.arange(40.0).view(20, 2)
    with open_link("cpu", meter, asynchronous=asynchronous, arena=True, slots=4) as link:

        def plan(times: range) -> list[Unit]:
            return [Unit([rows[t].clone()], lambda tensors: tensors[0]) for t in times]

        mail = FramePrefetcher(link, plan, ahead=asynchronous, on_send=lambda unit: None)
        for start in range(0, 18, 3):
            now = range(start, start + 3)
            mail.begin(now)
            held = []
            for k in range(3):
                held.append(mail.take(k))
                mail.look_ahead(range(start + 3, start + 6) if start < 12 else None)
            for t, got in zip(now, held, strict=True):
                assert torch.equal(got, rows[t])
        mail.forget()
    assert meter.counters["bytes_h2d_moved"] == 8 * 18
