"""Priority, processors, threads and precision: read back where a cell has changed them."""

from __future__ import annotations

import os
import sys
import threading

import pytest
import torch

from dgbench.harness.probes.scheduling import KeptScheduling, Scheduling, SchedulingWatch
from dgbench.harness.runner.client import ProcessExit
from dgbench.harness.runner.outcome import _too_much_work
from dgbench.harness.runner.protocol import Ended, Result
from dgbench.runtime.precision import changed_settings, plain_products, torch_settings

FIRST = Scheduling(0, 0, frozenset({0, 1}))

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of other threads")


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (FIRST, []),
        (Scheduling(10, 3, frozenset({1})), []),  # less than its rivals have
        (Scheduling(-5, 0, frozenset({0})), ["raised its priority from 0 to -5"]),
        (Scheduling(0, 1, frozenset({0})), ["moved to the scheduling class 'FIFO'"]),
        (Scheduling(0, 0, frozenset({0, 1, 2})), ["runs on processors 2, which are not the run's"]),
    ],
)
def test_only_what_gives_more_of_the_machine_is_said(now, words) -> None:
    assert now.above(FIRST) == words


@linux
def test_a_look_sees_every_thread_of_a_process(monkeypatch) -> None:
    own = Scheduling.of(os.getpid())
    assert own is not None
    lower = Scheduling(own.nice + 1, own.policy, own.cpus)
    watch = SchedulingWatch(lower)
    watch.look([os.getpid()])
    assert list(watch.seen) == [f"raised its priority from {lower.nice} to {own.nice}"]
    same = SchedulingWatch(own)
    same.look([os.getpid()])
    assert not same.seen


@linux
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one processor alone")
def test_what_rivals_start_from_is_put_back() -> None:
    """Each thread as it was: those of a process may differ."""
    every, ready, end = os.sched_getaffinity(0), threading.Event(), threading.Event()

    def elsewhere() -> None:
        os.sched_setaffinity(0, {max(every)})
        ready.set()
        end.wait()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    ready.wait()
    try:
        kept = KeptScheduling()
        kept.note([os.getpid()])
        assert kept.settle() == ([], True)
        os.sched_setaffinity(0, {min(every)})
        said = ["changed the scheduling of the processes that its rivals start from"]
        assert kept.settle() == (said, True)
        assert os.sched_getaffinity(0) == every
        assert os.sched_getaffinity(thread.native_id or 0) == {max(every)}
    finally:
        os.sched_setaffinity(0, every)
        end.set()
        thread.join()


def ended(**fields) -> ProcessExit:
    known = {"pid": 1, "code": 0, "seconds": 10.0, "peak_rss_bytes": 0, "cpu_s": 0.0}
    counts = dict.fromkeys(("voluntary", "involuntary", "read_bytes", "written_bytes"), 0)
    return ProcessExit(Ended(**{**known, **counts, **fields}), "", 0, 0, 1, threads=2)


@pytest.mark.parametrize(
    ("fields", "joined", "words"),
    [
        ({"cpu_s": 30.0}, 0, []),
        ({"cpu_s": 41.0}, 0, ["its processes used 41 s of processor time"]),
        ({"cpu_s": 41.0}, 1, []),  # a rank beside it
        ({"left": ["python"]}, 0, []),
        (
            {"left": ["python"], "left_cpu_s": 0.2},
            0,
            ["what it left behind went on working: python"],
        ),
    ],
)
def test_work_beyond_the_threads_is_named(fields, joined, words) -> None:
    found = _too_much_work(ended(**fields), Result(status="ok", touched={"joined": joined}))
    assert len(found) == len(words)
    assert all(own.startswith(begin) for own, begin in zip(found, words, strict=True))


@pytest.fixture
def settings():
    yield torch_settings()
    plain_products()
    torch.use_deterministic_algorithms(False)


def test_changed_precision_is_said(settings) -> None:
    assert changed_settings(settings, torch_settings()) == []
    torch.set_float32_matmul_precision("medium")
    torch.set_default_dtype(torch.float64)
    said = changed_settings(settings, torch_settings())
    assert len(said) == 2
    assert any("to medium" in words and "was highest" in words for words in said)
    assert any("to float64" in words and "was float32" in words for words in said)
