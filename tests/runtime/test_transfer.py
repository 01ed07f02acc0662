"""Links of the CPU: what arrives is what was sent, for as long as the ticket is held."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import arena, open_link, slots
from dgbench.runtime.transfer.slots import Staged

KINDS = {
    "plain": {},
    "arena": {"arena": True},
    "arena, synchronous": {"arena": True, "asynchronous": False},
}
DTYPES = (torch.float32, torch.int32, torch.int64, torch.bool, torch.uint8, torch.float64)
kinds = st.sampled_from(sorted(KINDS))
copying = pytest.mark.parametrize("kind", [k for k in KINDS if k != "plain"])
every = pytest.mark.parametrize("kind", list(KINDS))


def make(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Reproducible content, different for every seed."""
    draw = torch.Generator().manual_seed(seed)
    whole = torch.randint(0, 256, shape, generator=draw)
    return (whole % 2).bool() if dtype == torch.bool else whole.to(dtype)


shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
pieces = st.tuples(st.sampled_from(DTYPES), shapes, st.integers(0, 2**31))
groups = st.lists(pieces, max_size=5)


def same(got: list[torch.Tensor], want: list[torch.Tensor]) -> bool:
    return len(got) == len(want) and all(
        g.dtype == w.dtype and g.shape == w.shape and torch.equal(g, w)
        for g, w in zip(got, want, strict=True)
    )


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), groups, st.booleans()),
        st.tuples(st.just("wait"), st.integers(0, 5)),
        st.tuples(st.just("release"), st.integers(0, 5)),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=100)
@given(kind=kinds, count=st.integers(1, 4), program=steps, late=st.lists(st.booleans()))
def test_any_sequence_gives_back_what_was_sent(kind, count, program, late):
    """Waited-for tensors stay what they were until the release, however late the copies are.

    The copy thread may be held at any send; it goes on when something is waited for.
    """
    held_up = iter(late)
    meter = Meter()
    held: list[tuple] = []  # ticket, what was sent
    seen: list[tuple] = []  # ticket, tensors received and what they must still be
    nbytes = sends = 0
    with open_link("cpu", meter, slots=count, **KINDS[kind]) as link:
        thread = getattr(getattr(link, "engine", None), "thread", None)
        for what, *rest in program:
            if what == "send":
                if thread is not None and next(held_up, False):
                    thread.hold()
                if len(held) == count:
                    held.pop(0)[0].release()
                    seen = [entry for entry in seen if entry[0] in {t for t, _ in held}]
                tensors = [make(*piece) for piece in rest[0]]
                ticket = link.send(link.stage_all(tensors) if rest[1] else tensors)
                assert ticket.nbytes == sum(t.numel() * t.element_size() for t in tensors)
                nbytes, sends = nbytes + ticket.nbytes, sends + 1
                held.append((ticket, tensors))
            elif held:
                ticket, tensors = held[rest[0] % len(held)]
                if what == "wait":
                    if thread is not None:
                        thread.go()
                    got = ticket.wait()
                    assert same(got, tensors)
                    seen.append((ticket, got, tensors))
                else:
                    ticket.release()
                    ticket.release()
                    held = [entry for entry in held if entry[0] is not ticket]
                    seen = [entry for entry in seen if entry[0] is not ticket]
            for _, got, tensors in seen:
                assert same(got, tensors)
    assert meter.counters["transfers"] == sends
    assert meter.counters["bytes_h2d_counted"] == nbytes
    assert meter.counters["bytes_h2d_moved"] == (0 if kind == "plain" else nbytes)
    for ticket, tensors in held:  # closing the link brings what is under way
        assert same(ticket.wait(), tensors)


@copying
def test_a_further_send_waits_until_a_slot_is_released(kind):
    meter = Meter()
    sent = [[torch.full((1000,), float(i))] for i in range(3)]
    with open_link("cpu", meter, slots=2, **KINDS[kind]) as link:
        first, second = link.send(sent[0]), link.send(sent[1])
        first.wait(), second.wait()
        came = []
        other = threading.Thread(target=lambda: came.append(link.send(sent[2])))
        other.start()
        other.join(timeout=0.05)
        assert not came
        assert same(first.wait(), sent[0])
        assert same(second.wait(), sent[1])
        first.release()
        other.join(timeout=20)
        assert same(came[0].wait(), sent[2])
        assert same(second.wait(), sent[1])
    assert meter.spent["copy_wait"] > 0


@copying
def test_waiting_for_a_slot_that_nobody_releases_ends(kind, monkeypatch):
    monkeypatch.setattr(slots, "PATIENCE_S", 0.01)
    with open_link("cpu", Meter(), slots=1, **KINDS[kind]) as link:
        held = link.send([torch.arange(3)])
        with pytest.raises(InvalidInputError, match="slots") as caught:
            link.send([torch.arange(4)])
        assert "release a ticket" in caught.value.hint
        assert torch.equal(held.wait()[0], torch.arange(3))
        held.release()
        assert torch.equal(link.send([torch.arange(4)]).wait()[0], torch.arange(4))


def test_memory_outlives_a_copy_whose_ticket_was_released_early(monkeypatch):
    """Two copies are held up, their tickets released and their slots grown meanwhile."""
    buffers = []
    plain = arena._allocate

    def noted(nbytes):
        buffer = plain(nbytes)
        buffers.append(weakref.ref(buffer))
        return buffer

    monkeypatch.setattr(arena, "_allocate", noted)
    with open_link("cpu", Meter(), arena=True, slots=2) as link:
        link.engine.thread.hold()
        for ticket in [link.send([torch.zeros(100)]) for _ in range(2)]:
            ticket.release()
        sent = [[torch.full((5000,), float(i))] for i in range(2)]
        late = [link.send(group) for group in sent]
        del ticket
        gc.collect()
        assert len(buffers) == 4
        assert all(buffer() is not None for buffer in buffers)
        assert len({buffer().data_ptr() for buffer in buffers}) == 4
        link.engine.thread.go()
        for ticket, group in zip(late, sent, strict=True):
            assert same(ticket.wait(), group)
        late[0].release()
        link.send([])  # notices what is done
        assert [buffer() is None for buffer in buffers[:2]] == [True, True]


class Nowhere(torch.Tensor):
    """Says that its bytes lie at address 0."""

    def data_ptr(self):
        return 0


def test_what_goes_wrong_in_the_copy_thread_surfaces_at_its_wait_only():
    with open_link("cpu", Meter(), arena=True, slots=2) as link:
        nowhere = Staged.of([torch.zeros(13, dtype=torch.uint8)])
        run = nowhere.layout.runs[0]
        bad = run._replace(source=run.source.as_subclass(Nowhere))
        nowhere.layout = nowhere.layout._replace(runs=(bad,))
        for _ in range(3):
            failed, good = link.send(nowhere), link.send([torch.arange(5)])
            assert torch.equal(good.wait()[0], torch.arange(5))
            for _ in range(2):
                with pytest.raises(RuntimeError, match="address 0"):
                    failed.wait()
            failed.release()
            good.release()


@copying
def test_a_failed_allocation_leaves_the_link_as_it_was(kind, monkeypatch):
    plain = arena._allocate

    def scarce(nbytes):
        if nbytes > 10_000:
            raise RuntimeError("out of memory")
        return plain(nbytes)

    monkeypatch.setattr(arena, "_allocate", scarce)
    with open_link("cpu", Meter(), slots=1, **KINDS[kind]) as link:
        link.send([torch.arange(5)]).release()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="out of memory"):
                link.send([torch.zeros(20_000)])
        ticket = link.send([torch.arange(9)])
        assert torch.equal(ticket.wait()[0], torch.arange(9))


@every
def test_what_cannot_be_sent_is_said(kind):
    with open_link("cpu", Meter(), slots=1, **KINDS[kind]) as link:
        zeros = torch.zeros(3, 4)
        for bad in (zeros.t(), zeros.to_sparse(), zeros.to("meta"), [1, 2]):
            with pytest.raises(InvalidInputError, match=r"tensors\[1\]"):
                link.send([torch.zeros(1), bad])
        strided = link.stage(torch.arange(12).view(3, 4).t())
        assert torch.equal(link.send([strided]).wait()[0], strided)


@every
def test_a_closed_link_and_a_released_ticket_say_so(kind):
    link = open_link("cpu", Meter(), **KINDS[kind])
    ticket = link.send([torch.arange(3)])
    released = link.send([torch.arange(4)])
    released.release()
    with pytest.raises(InvalidInputError, match="released"):
        released.wait()
    link.close()
    link.close()
    with pytest.raises(InvalidInputError, match="closed"):
        link.send([torch.arange(3)])
    assert torch.equal(ticket.wait()[0], torch.arange(3))
    ticket.release()


def test_what_no_link_can_be_opened_for():
    with pytest.raises(InvalidInputError, match="slots"):
        open_link("cpu", Meter(), slots=0)
    with pytest.raises(InvalidInputError, match="arena"):
        open_link("cuda", Meter(), arena=True)
    with pytest.raises(UnsupportedError, match="meta"):
        open_link("meta", Meter())
    if not torch.cuda.is_available():
        with pytest.raises(UnsupportedError, match="CUDA"):
            open_link("cuda:1", Meter())


def test_a_forgotten_link_ends_its_thread_after_its_copies():
    link = open_link("cpu", Meter(), arena=True)
    link.engine.thread.hold()
    ticket = link.send([torch.arange(1000)])
    thread = link.engine.thread
    assert thread.running
    del link
    gc.collect()
    assert not thread.running
    assert torch.equal(ticket.wait()[0], torch.arange(1000))


@copying
def test_a_backward_pass_after_the_slot_was_taken_again_fails_loudly(kind):
    with open_link("cpu", Meter(), slots=1, **KINDS[kind]) as link:
        weight = torch.ones(4, requires_grad=True)
        ticket = link.send([torch.arange(4.0)])
        loss = (ticket.wait()[0] * weight).sum()
        ticket.release()
        link.send([torch.zeros(4)])
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
