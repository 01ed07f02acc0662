"""Mailboxes in shared memory: several in one process, in threads of their own where they wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.runtime.collectives import shared
from dgbench.runtime.collectives.shared import Mailbox, share_memory
from dgbench.runtime.errors import UnsupportedError


def together(size: int, function: Callable[[int, Callable[[Any], list[Any]]], Any]) -> list[Any]:
    """Results of `function(rank, tell)` in a thread each; `tell` is an all-gather."""
    said, barrier = [None] * size, threading.Barrier(size, timeout=20)

    def tell(rank: int, what: Any) -> list[Any]:
        said[rank] = what
        barrier.wait()
        found = list(said)
        barrier.wait()
        return found

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: function(rank, partial(tell, rank)), range(size)))


@contextmanager
def boxes(size: int, timeout_s: float = 20.0) -> Iterator[list[Mailbox]]:
    found = together(size, lambda rank, tell: Mailbox.open(rank, size, tell, timeout_s))
    yield found
    for box in found:
        if box is not None and box._bells:
            box.close()


def filled(length: int, value: int) -> Tensor:
    return torch.full((length,), value % 251, dtype=torch.uint8)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_parts_arrive_in_any_order(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 4))
    length = st.one_of(st.just(0), st.integers(1, 20_000))
    row = st.lists(length, min_size=size, max_size=size)
    plan = st.lists(row, min_size=size, max_size=size)
    plans = data.draw(st.lists(plan, min_size=1, max_size=8))
    with boxes(size) as found:
        for number, plan in enumerate(plans, 1):
            for by in range(size):
                parts = {to: filled(plan[by][to], by + number) for to in range(size) if to != by}
                found[by].post(number, parts)
        orders = [
            (number, by, to)
            for number in range(1, len(plans) + 1)
            for by in range(size)
            for to in range(size)
            if by != to
        ]
        for number, by, to in data.draw(st.permutations(orders)):
            into = torch.zeros(plans[number - 1][by][to], dtype=torch.uint8)
            found[to].take(number, by, into)
            assert torch.equal(into, filled(len(into), by + number))
        for box in found:
            box.tell()
        for box in found:
            box._drain()
            assert box.lent_bytes == 0


def test_more_notes_than_a_pipe_holds() -> None:
    """The sender waits until the receiver reads; nobody waits for ever."""
    with boxes(2) as found, ThreadPoolExecutor(1) as pool:
        count = 5_000

        def send() -> None:
            for number in range(count):
                found[0].post(number, {1: filled(1, number)})

        sending = pool.submit(send)
        for number in range(count):
            into = torch.zeros(1, dtype=torch.uint8)
            found[1].take(number, 0, into)
            assert into.item() == number % 251
        sending.result(timeout=20)


def test_who_is_late_and_who_is_gone() -> None:
    with boxes(2, timeout_s=0.02) as found:
        into = torch.zeros(4, dtype=torch.uint8)
        with pytest.raises(RuntimeError):
            found[0].take(1, 1, into)
        found[1].post(1, {0: filled(3, 1)})
        with pytest.raises(RuntimeError):
            found[0].take(1, 1, into)
        found[1].post(2, {0: filled(4, 1)})
        found[1].close()
        found[0].take(2, 1, into)  # what it left is still there
        with pytest.raises(RuntimeError):
            found[0].take(3, 1, into)


def elsewhere(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Let one of two ranks be on another machine, or let files not open."""
    if how == "machines":
        names = iter(("here", "there"))
        monkeypatch.setattr(shared, "machine_key", lambda: next(names))
    elif how == "system":
        monkeypatch.delattr("os.memfd_create")
    else:
        monkeypatch.setattr(shared, "_map", lambda *_: None)


@pytest.mark.parametrize("how", ["machines", "system", "files"])
def test_where_memory_cannot_be_shared(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    with boxes(2):
        pass
    before = open_files()
    with monkeypatch.context() as patch:
        elsewhere(patch, how)
        with boxes(2) as found:
            assert found == [None, None]
    with monkeypatch.context() as patch:
        elsewhere(patch, how)

        def ask(rank: int, tell: Callable[[Any], list[Any]]) -> str:
            with pytest.raises(UnsupportedError):
                share_memory(4096, rank, tell)
            return "refused"

        assert together(2, ask) == ["refused"] * 2
    assert open_files() == before
