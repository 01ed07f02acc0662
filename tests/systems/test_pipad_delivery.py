"""Order of a frame's inputs: the device's buffer, the courier, topology that arrived."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.pipad.buffers import DeviceBuffer
from dgbench.systems.pipad.delivery import FramePrefetcher, Unit

CPU = torch.device("cpu")


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
