"""Priority, processors, threads and precision: read back where a cell has changed them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dgbench.harness.probes.scheduling import Scheduling
from dgbench.harness.runner.client import ProcessExit
from dgbench.harness.runner.outcome import _too_much_work
from dgbench.harness.runner.protocol import Ended, Result

FIRST = Scheduling(0, 0, frozenset({0, 1}))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (FIRST, []),
        (Scheduling(-5, 0, frozenset({0})), ["raised its priority from 0 to -5"]),
        (Scheduling(0, 1, frozenset({0})), ["moved to the scheduling class 'FIFO'"]),
        (Scheduling(0, 0, frozenset({0, 1, 2})), ["runs on processors 2, which are not the run's"]),
    ],
)
def test_only_what_gives_more_of_the_machine_is_said(now, words) -> None:
    assert now.above(FIRST) == words


def ended(**fields) -> ProcessExit:
    known = {"pid": 1, "code": 0, "seconds": 10.0, "peak_rss_bytes": 0, "cpu_s": 0.0}
    counts = dict.fromkeys(("voluntary", "involuntary", "read_bytes", "written_bytes"), 0)
    return ProcessExit(Ended(**{**known, **counts, **fields}), "", 0, 0, 1, threads=2)


@pytest.mark.parametrize(
    ("fields", "joined", "words"),
    [
        ({"cpu_s": 41.0}, 0, ["its processes used 41 s of processor time"]),
        ({"cpu_s": 41.0}, 1, []),  # a rank beside it
        ({"left": ["python"]}, 0, []),
        ({"left": ["python"], "left_cpu_s": 0.2}, 0, ["what it left behind went on working"]),
    ],
)
def test_work_beyond_the_threads_is_named(fields, joined, words) -> None:
    found = _too_much_work(ended(**fields), Result(status="ok", touched={"joined": joined}))
    assert len(found) == len(words)
    assert all(own.startswith(begin) for own, begin in zip(found, words, strict=True))


LEFT_BEHIND = """
import subprocess, sys
from dgbench.harness.runner import server
server.cpu_seconds = lambda pid: 0.0  # others use the processors
server.WORKING_S = 0.5
subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], stdin=subprocess.PIPE)
left, worked = server.end_strays()
print(len(left), worked >= server.LEFT_WORK_S)
"""


@pytest.mark.parametrize(
    ("program", "says"), [("while True: pass", "1 True"), ("input()", "1 False")]
)
def test_what_is_left_behind_works_though_it_gets_no_processor(program, says) -> None:
    command = (sys.executable, "-c", LEFT_BEHIND, program)
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == says
