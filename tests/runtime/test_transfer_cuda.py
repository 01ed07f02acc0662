"""The CUDA link's order of copies and kernels, on a simulated device and, where there is one, on
a real one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_cuda import TICK_MS, SimulatedCuda

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.runtime.transfer.cuda import CudaLink


def simulated(*, meter: Meter | None = None, asynchronous: bool = True, slots: int = 2):
    device = SimulatedCuda()
    link = CudaLink(
        torch.device("cuda"),
        meter or Meter(),
        asynchronous=asynchronous,
        slots=slots,
        hardware=device,
    )
    return device, link


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.integers(0, 400), max_size=3)),
        st.tuples(st.just("use"), st.integers(0, 5)),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("run"), st.integers(0, 5)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(
    program=steps,
    slots=st.integers(1, 3),
    asynchronous=st.booleans(),
    timing=st.booleans(),
    lazy=st.booleans(),
    order=st.lists(st.integers(0, 1), min_size=1, max_size=5),
)
def test_kernels_read_what_was_sent_in_any_order_of_execution(
    program, slots, asynchronous, timing, lazy, order
):
    """Copies and kernels run late and interleaved; each kernel must find its group's bytes."""
    meter = Meter()
    meter.timing = timing
    device, link = simulated(meter=meter, asynchronous=asynchronous, slots=slots)
    held, wrong, number = [], [], 0
    kernels = sends = 0

    def use(ticket, tensors):
        got = ticket.wait()

        def kernel():
            wrong.extend((g, t) for g, t in zip(got, tensors, strict=True) if not torch.equal(g, t))

        assert len(got) == len(tensors)
        device.launch(kernel, *got)

    for what, detail in program:
        if what == "send":
            if len(held) == slots:
                held.pop(0)[0].release()
            number += 1
            tensors = [torch.full((size,), number, dtype=torch.int32) for size in detail]
            held.append((link.send(tensors), tensors))
            sends += 1
        elif what == "run":
            if not lazy:
                device.advance(detail)
        elif held:
            ticket, tensors = held[detail % len(held)]
            if what == "use":
                use(ticket, tensors)
                kernels += 1
            else:
                ticket.release()
                held = [entry for entry in held if entry[0] is not ticket]
    if asynchronous:
        assert device.host_waits == 0
    for ticket, tensors in held:
        use(ticket, tensors)
    device.drain(order)
    assert not wrong
    link.close()
    assert meter.counters["transfers"] == sends


def test_an_asynchronous_copy_waits_for_the_kernels_before_the_release_only():
    device, link = simulated(slots=1)
    order = []
    ticket = link.send([torch.arange(4)])
    ticket.wait()
    device.launch(lambda: order.append("kernel before the release"))
    ticket.release()
    device.launch(lambda: order.append("kernel after the release"))
    second = link.send([torch.arange(5)])
    copy_stream = device.streams[1]
    plain, copy_stream.work[-2] = copy_stream.work[-2], None  # the copy, behind it its event

    def copying():
        order.append("copy")
        plain()

    copy_stream.work[-2] = copying
    while device.advance(1):  # the copy stream first, wherever it can go on
        pass
    assert order == ["kernel before the release", "copy", "kernel after the release"]
    assert torch.equal(second.wait()[0], torch.arange(5))


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("timing", [True, False])
def test_times_come_from_events(asynchronous, timing):
    meter = Meter()
    meter.timing = timing
    device, link = simulated(meter=meter, asynchronous=asynchronous)
    assert link.bandwidth() is None
    for _ in range(3):
        ticket = link.send([torch.zeros(500)])
        ticket.wait()
        ticket.release()
    bandwidth = link.bandwidth()
    link.close()
    assert bandwidth == pytest.approx(2000 / (TICK_MS / 1e3))
    assert meter.spent["copy_busy"] == pytest.approx(3 * TICK_MS / 1e3)
    assert meter.counters["bytes_h2d_moved"] == 6000
    assert ("copy_wait" in meter.spent) == timing
    if timing and not asynchronous:
        assert meter.spent["copy_wait"] == pytest.approx(3 * TICK_MS / 1e3)
    del device


def test_a_copy_that_fails_gives_its_slot_back():
    device, link = simulated(slots=1)
    plain = device.copy

    def fail(*job, **how):
        raise RuntimeError("cudaErrorIllegalAddress")

    device.copy = fail
    for _ in range(2):
        with pytest.raises(RuntimeError, match="IllegalAddress"):
            link.send([torch.arange(3)])
    device.copy = plain
    ticket = link.send([torch.arange(3)])
    device.drain()
    assert torch.equal(ticket.wait()[0], torch.arange(3))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("asynchronous", [True, False])
def test_on_a_device(asynchronous):
    meter = Meter(timing=True, device="cuda")
    with open_link("cuda", meter, asynchronous=asynchronous) as link:
        sums, want = [], []
        for i in range(50):
            sent = [torch.full((1000 * (i % 7 + 1),), float(i)), torch.arange(i), torch.ones(3, 4)]
            staged = link.stage_all(sent) if i % 2 else [link.stage(t) for t in sent]
            ticket = link.send(staged)
            got = ticket.wait()
            assert [(g.shape, g.dtype) for g in got] == [(s.shape, s.dtype) for s in sent]
            sums.append(sum(g.double().sum() for g in got))
            want.append(sum(s.double().sum() for s in sent))
            ticket.release()
        torch.cuda.synchronize()
        assert [float(s) for s in sums] == [float(w) for w in want]
        assert link.bandwidth() > 0
    assert meter.spent["copy_busy"] > 0
    assert meter.counters["transfers"] == 50
