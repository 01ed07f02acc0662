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
from dgbench.runtime.ranks.board import (
    DONE,
    STARTING,
    WAITING,
    WORKING,
    RankStatus,
    StatusBoard,
    culprit,
)
from dgbench.runtime.ranks.group import choose_backend
from dgbench.runtime.ranks.watch import Watch


@pytest.fixture(autouse=True)
def no_copy_thread_is_left() -> None:
    """No test here opens a link, so the costly look for its threads is left out."""


LIMIT_S = 240.0  # stops a hang; a busy machine may take a minute
SOON_S = 30.0
"""No fault may take longer than this, although the limit of the launch is higher."""


@pytest.fixture(autouse=True, scope="module")
def server() -> None:
    """Start what ranks are forked from, so that a short limit is not spent on importing torch."""
    launch(workers.about, 1, ("",), timeout_s=LIMIT_S)


def test_what_ranks_need_is_imported_before_they_are_forked() -> None:
    name = "colorsys"
    sys.modules.pop(name, None)
    found = launch(workers.knows_module, 2, (name,), timeout_s=LIMIT_S, threads=1, preload=(name,))
    assert list(found) == [found.start == "fork"] * 2
    assert (name in sys.modules) == (found.start == "fork")


def test_memory_of_a_rank_that_nobody_looked_at_is_told(monkeypatch) -> None:
    monkeypatch.setattr(Watch, "_look_at_memory", lambda self, ranks: None)
    freed = [b"x" * 100_000 for _ in range(500)]
    del freed[:-1]  # the last one keeps glibc from giving the others back
    found = launch(workers.holds, 2, (16,), timeout_s=LIMIT_S)
    assert all(found.peak_bytes[rank] > (15 << 20) * (rank + 1) for rank in range(2))


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, for this test alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("dgbench-ranks-*")]


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


def test_one_rank_is_a_process_too() -> None:
    (found,) = launch(workers.about, 1, ("y",), timeout_s=LIMIT_S, threads=2)
    assert found["pid"] != os.getpid()
    assert (found["size"], found["threads"]) == (1, 2)


def test_large_results(own_folder: Path) -> None:
    found = launch(workers.large, 2, timeout_s=LIMIT_S)
    assert [float(x[-1]) for x in found] == [0.0, 1.0]
    assert found[1].shape == (2**20,)
    assert not left_in(own_folder)


FAULTS = [
    ("raises", RankError, "raised", r"^rank 1 of 3 raised ValueError: seven is not even"),
    ("exits", RankError, "exited", r"^rank 1 of 3 left with exit code 3 before it had a result"),
    ("vanishes", RankError, "exited", r"^rank 1 of 3 left with exit code 0"),
    ("killed", RankError, "killed", r"^rank 1 of 3 was killed by SIGKILL"),
    ("allocates", RankMemoryError, "memory", r"^rank 1 of 3 took \d+ MiB .* limit is 96 MiB"),
    ("too-much", RankMemoryError, "memory", r"^rank 1 of 3 ran out of memory .*allocate"),
]


@pytest.mark.parametrize(("how", "error", "kind", "message"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_fault_has_a_name(
    how: str, error: type, kind: str, message: str, own_folder: Path
) -> None:
    start = time.monotonic()
    with pytest.raises(error, match=message) as caught:
        launch(workers.fault, 3, (how, 1), timeout_s=LIMIT_S, memory_bytes=96 * 2**20, threads=1)
    assert time.monotonic() - start < SOON_S
    assert (caught.value.rank, caught.value.kind) == (1, kind)
    if how == "raises":
        assert "break_down" in caught.value.trace
    assert not left_in(own_folder)


@pytest.mark.parametrize("how", ["hangs", "spins"])
def test_a_hang_ends_at_the_limit_and_says_where(how: str) -> None:
    start = time.monotonic()
    with pytest.raises(RankTimeoutError, match=r"^rank 2 of 3 did not end within 3 s") as caught:
        launch(workers.fault, 3, (how, 2), timeout_s=3, threads=1)
    assert time.monotonic() - start < SOON_S
    assert (caught.value.rank, caught.value.kind) == (2, "hung")
    assert "ranks_workers.py" in str(caught.value)
    assert "break_down" in caught.value.trace
    assert "rank 0 had waited" in caught.value.hint
    assert isinstance(caught.value, TimeoutError)


def test_a_rank_that_keeps_others_waiting() -> None:
    start = time.monotonic()
    with pytest.raises(RankTimeoutError, match=r"^rank 0 of 2 kept others waiting for more than 0"):
        launch(workers.fault, 2, ("hangs", 0), timeout_s=LIMIT_S, stall_s=0.3, threads=1)
    assert time.monotonic() - start < SOON_S


def test_ranks_that_disagree() -> None:
    with pytest.raises(RankTimeoutError, match=r"waited .*(barrier|all_reduce)") as caught:
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


def test_a_result_that_cannot_travel() -> None:
    with pytest.raises(DgbenchError, match=r"rank 0 of 1: its result of type function"):
        launch(workers.local_result, 1, timeout_s=LIMIT_S)


def test_what_a_rank_starts_ends_with_it(tmp_path: Path) -> None:
    pids = launch(workers.leave_child, 2, (str(tmp_path),), timeout_s=LIMIT_S)
    end = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(alive, pids))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 0}, "'ranks' is 0, allowed: 1 to 128"),
        ({"ranks": 129}, "'ranks' is 129"),
        ({"timeout_s": 0}, "'timeout_s' is 0"),
        ({"memory_bytes": -1}, "'memory_bytes' is -1"),
        ({"stall_s": 0.0}, "'stall_s' is 0.0"),
        ({"threads": 0}, "'threads' is 0"),
        ({"function": lambda comm: None}, "cannot find by its name"),
    ],
)
def test_arguments(change: dict, message: str) -> None:
    given = {"function": workers.large, "ranks": 1, "timeout_s": 5.0, **change}
    with pytest.raises(InvalidInputError, match=message):
        launch(given.pop("function"), given.pop("ranks"), **given)


def test_arguments_that_cannot_travel() -> None:
    with pytest.raises(InvalidInputError, match="'args' cannot be passed"):
        launch(workers.about, 1, (lambda: 0,), timeout_s=5.0, start="forkserver")


def test_backends_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(UnknownKeyError, match="backend 'mpi'"):
        choose_backend("mpi", "cpu", 2)
    with pytest.raises(UnsupportedError, match="no CUDA device"):
        choose_backend("auto", "cuda", 2)
    with pytest.raises(UnsupportedError, match="device is 'cpu'"):
        choose_backend("nccl", "cpu", 2)
    assert choose_backend("auto", "cpu", 2) == "gloo"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    assert choose_backend("auto", "cuda", 2) == "nccl"
    assert choose_backend("auto", "cuda", 4) == "gloo"
    with pytest.raises(UnsupportedError, match="a GPU for each of 4 ranks"):
        choose_backend("nccl", "cuda", 4)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: False)
    with pytest.raises(UnsupportedError, match="no NCCL"):
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


def test_start_methods() -> None:
    with pytest.raises(UnknownKeyError, match="start 'thread'"):
        launch(workers.large, 1, timeout_s=5.0, start="thread")
    torch.ones(2**20).sum()
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        with pytest.raises(UnsupportedError, match="several threads"):
            launch(workers.large, 1, timeout_s=5.0, start="fork")
    finally:
        release.set()
        thread.join()


def place(rank: int, state: int, number: int = 0, seconds: float = 1.0) -> RankStatus:
    return RankStatus(rank, state, "all_reduce" if number else "", number, seconds)


@pytest.mark.parametrize(
    ("places", "late"),
    [
        ([place(0, WAITING, 3), place(1, WORKING, 2), place(2, WAITING, 3)], 1),
        ([place(0, WORKING, 2), place(1, STARTING)], 1),
        ([place(0, WORKING, 3), place(1, WORKING, 2)], 1),
        ([place(0, WORKING, 2), place(1, WORKING, 2, 9.0)], 1),
        ([place(0, DONE, 4), place(1, WAITING, 4)], 1),
        ([place(0, WAITING, 4), place(1, WAITING, 2)], 1),
    ],
)
def test_whom_the_others_wait_for(places: list[RankStatus], late: int) -> None:
    assert culprit(places).rank == late


def test_board_is_shared(tmp_path: Path) -> None:
    mine = StatusBoard(tmp_path / "board", 2, create=True)
    yours = StatusBoard(tmp_path / "board", 2)
    assert mine.place(1).state == STARTING
    yours.note(1, WAITING, "broadcast", 7)
    assert (mine.place(1).operation, mine.place(1).number) == ("broadcast", 7)
    assert "broadcast (operation 7)" in str(mine.place(1))
    yours.note(1, WORKING)
    assert "since broadcast (operation 7)" in str(mine.place(1))
    assert "not joined" in str(mine.place(0))
