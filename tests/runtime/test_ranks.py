"""Ranks: starting them, and what happens when one fails. Every fault ends in bounded time."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import ranks_workers as workers
import torch

from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.errors import (
    CheckFailed,
    DgbenchError,
    InvalidInputError,
    UnknownKeyError,
    UnsupportedError,
)
from dgbench.runtime.ranks import RankError, RankMemoryError, RankTimeoutError, launch
from dgbench.runtime.ranks.group import choose_backend

LIMIT_S = 240.0  # stops a hang; a busy machine may take a minute
SOON_S = 30.0
"""No fault may take longer than this, although the limit of the launch is higher."""


@pytest.fixture(autouse=True, scope="module")
def server() -> None:
    """Start what ranks are forked from, so that a short limit is not spent on importing torch."""
    launch(workers.about, 1, ("",), timeout_s=LIMIT_S)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, for this test alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_results_come_back_in_order() -> None:
    found = launch(workers.about, 4, ("x",), timeout_s=LIMIT_S, threads=1, seed=5)
    assert [r["rank"] for r in found] == [0, 1, 2, 3]
    assert {r["size"] for r in found} == {4}
    assert {r["tag"] for r in found} == {"x"}
    assert {r["threads"] for r in found} == {1}
    assert len({r["pid"] for r in found} | {os.getpid()}) == 5
    assert len({r["shared"] for r in found}) == 1, "replicated weights need one seed"
    assert len({r["own"] for r in found}) == 4
    assert 0 < found.start_s <= found.seconds
    assert found.backend == "gloo"
    assert not any(alive(r["pid"]) for r in found)
    again = launch(workers.about, 4, ("x",), timeout_s=LIMIT_S, threads=1, seed=5)
    assert [r["own"] for r in again] == [r["own"] for r in found]


FAULTS = [
    ("raises", RankError, "raised"), ("exits", RankError, "exited"),
    ("vanishes", RankError, "exited"), ("killed", RankError, "killed"),
    ("allocates", RankMemoryError, "memory"), ("too-much", RankMemoryError, "memory"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "error", "kind"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_fault_has_a_name(how: str, error: type, kind: str, own_folder: Path) -> None:
    start = time.monotonic()
    with pytest.raises(error) as caught:
        launch(workers.fault, 3, (how, 1), timeout_s=LIMIT_S, memory_bytes=96 * 2**20, threads=1)
    assert time.monotonic() - start < SOON_S
    assert (caught.value.rank, caught.value.kind) == (1, kind)
    assert how != "raises" or "break_down" in caught.value.trace
    assert not list(own_folder.glob("dgbench-ranks-*"))


def test_a_hang_ends_at_the_limit_and_says_where() -> None:
    start = time.monotonic()
    with pytest.raises(RankTimeoutError) as caught:
        launch(workers.fault, 3, ("spins", 2), timeout_s=3, threads=1)
    assert time.monotonic() - start < SOON_S
    assert (caught.value.rank, caught.value.kind) == (2, "hung")
    assert "break_down" in caught.value.trace


def test_ranks_that_disagree() -> None:
    with pytest.raises(RankTimeoutError, match=r"barrier|all_reduce") as caught:
        launch(workers.fault, 2, ("other", 1), timeout_s=LIMIT_S, stall_s=1.0, threads=1)
    text = str(caught.value) + caught.value.hint
    assert "barrier (operation 1)" in text
    assert "all_reduce (operation 1)" in text


def test_errors_of_dgbench_stay_what_they_are() -> None:
    """So that a cell's row gets the right status."""
    with pytest.raises(CheckFailed, match=r"^rank 1 of 2: loss is off") as caught:
        launch(workers.fault, 2, ("check", 1), timeout_s=LIMIT_S, threads=1)
    assert caught.value.deviation == {"loss": 0.5}
    assert caught.value.hint == "look"
    with pytest.raises(UnsupportedError, match=r"^rank 0 of 2: not on this machine"):
        launch(workers.fault, 2, ("unsupported", 0), timeout_s=LIMIT_S, threads=1)
    with pytest.raises(DgbenchError, match="rank 0"):  # a result that cannot travel
        launch(workers.local_result, 1, timeout_s=LIMIT_S)


def test_what_a_rank_starts_ends_with_it(tmp_path: Path) -> None:
    pids = launch(workers.leave_child, 2, (str(tmp_path),), timeout_s=LIMIT_S)
    end = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(alive, pids))


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 0}, {"ranks": 129}, {"timeout_s": 0}, {"memory_bytes": -1}, {"stall_s": 0.0},
        {"threads": 0}, {"function": lambda comm: None},
        {"args": (lambda: 0,), "start": "forkserver"},
    ],
)  # fmt: skip
def test_arguments(change: dict) -> None:
    given = {"function": workers.large, "ranks": 1, "timeout_s": 5.0, **change}
    with pytest.raises(InvalidInputError, match=next(iter(change))):
        launch(given.pop("function"), given.pop("ranks"), **given)


def test_backends_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(UnknownKeyError, match="backend 'mpi'"):
        choose_backend("mpi", "cpu", 2)
    with pytest.raises(UnsupportedError):
        choose_backend("auto", "cuda", 2)
    with pytest.raises(UnsupportedError):
        choose_backend("nccl", "cpu", 2)
    assert choose_backend("auto", "cpu", 2) == "gloo"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    assert choose_backend("auto", "cuda", 2) == "nccl"
    assert choose_backend("auto", "cuda", 4) == "gloo"
    with pytest.raises(UnsupportedError):
        choose_backend("nccl", "cuda", 4)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: False)
    with pytest.raises(UnsupportedError):
        choose_backend("nccl", "cuda", 2)


@pytest.mark.skipif(threading.active_count() > 1, reason="Python threads run here")
@pytest.mark.skipif("linux" not in sys.platform, reason="forks of a process with threads")
def test_a_fork_after_threads_computes() -> None:
    """OpenMP's threads do not survive a fork; ranks of one thread must not ask for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = workers.compute(LocalCommunicator())
        found = launch(workers.compute, 2, timeout_s=LIMIT_S, threads=1, start="fork")
    finally:
        torch.set_num_threads(before)
    assert found.start == "fork"
    for gradient in found:
        assert torch.allclose(gradient, 2 * expected, rtol=1e-4, atol=1e-7)
