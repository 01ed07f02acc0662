"""Work side by side: the same results in the same order, also where processes fail."""

import os
import time

import psutil
import pytest

from dgbench.harness.report import parallel
from dgbench.harness.report.parallel import side_by_side
from dgbench.runtime.errors import DgbenchError


def test_results_keep_their_order():
    assert side_by_side(lambda x: x * x, list(range(20))) == [x * x for x in range(20)]
    assert side_by_side(lambda x: x, []) == []


def test_what_work_raises_is_raised():
    def work(x):
        raise ValueError(f"no {x}")

    with pytest.raises(ValueError, match="no"):
        side_by_side(work, [1, 2])


def test_a_lost_process_costs_nothing(caplog):
    here = os.getpid()

    def work(x):
        if os.getpid() != here:
            os._exit(9)
        return x

    assert side_by_side(work, [1, 2, 3]) == [1, 2, 3]
    if len(os.sched_getaffinity(0)) > 1:
        assert "one by one" in caplog.text


def test_work_that_hangs_is_ended_and_not_tried_here(monkeypatch, tmp_path):
    monkeypatch.setattr(parallel, "PATIENCE_S", 0.5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})

    def work(x):
        (tmp_path / str(os.getpid())).touch()
        time.sleep(60)

    with pytest.raises(DgbenchError):
        side_by_side(work, [1, 2])
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert workers
    assert os.getpid() not in workers
    assert _ended(workers)


def _ended(pids, patience_s=20.0):
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if not any(map(_runs, pids)):
            return True
        time.sleep(0.05)
    return False


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
