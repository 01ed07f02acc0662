"""Priority, processors and work beyond the threads; what cheats do with them: tests/cheats."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dgbench.harness.probes.scheduling import Scheduling
from dgbench.harness.runner.client import ProcessExit
from dgbench.harness.runner.outcome import _too_much_work
from dgbench.harness.runner.protocol import Ended, Result

FIRST = Scheduling(0, 0, frozenset({0, 1}))


def test_only_what_gives_more_of_the_machine_is_said() -> None:
    for now, said in (
        (FIRST, 0), (Scheduling(5, 0, frozenset({0})), 0), (Scheduling(-5, 0, frozenset({0})), 1),
        (Scheduling(0, 1, frozenset({0})), 1), (Scheduling(0, 0, frozenset({0, 1, 2})), 1),
    ):  # fmt: skip
        assert len(now.above(FIRST)) == said


def ended(**fields) -> ProcessExit:
    known = {"pid": 1, "code": 0, "seconds": 10.0, "peak_rss_bytes": 0, "cpu_s": 0.0}
    counts = dict.fromkeys(("voluntary", "involuntary", "read_bytes", "written_bytes"), 0)
    return ProcessExit(Ended(**{**known, **counts, **fields}), "", 0, 0, 1, threads=2)


def test_work_beyond_the_threads_is_named() -> None:
    for fields, joined, count in (
        ({"cpu_s": 41.0}, 0, 1), ({"cpu_s": 41.0}, 1, 0),  # a rank beside it
        ({"left": ["python"]}, 0, 0), ({"left": ["python"], "left_cpu_s": 0.2}, 0, 1),
    ):  # fmt: skip
        result = Result(status="ok", touched={"joined": joined})
        assert len(_too_much_work(ended(**fields), result)) == count


LEFT_BEHIND = """
import subprocess, sys
from dgbench.harness.runner import server
server.cpu_seconds = lambda pid: 0.0  # others use the processors
server.WORKING_S = 0.5
subprocess.Popen([sys.argv[2], "-S", "-c", sys.argv[1]], stdin=subprocess.PIPE)
left, worked = server.end_strays()
print(len(left), worked >= server.LEFT_WORK_S)
"""


@pytest.mark.parametrize(
    ("program", "says"), [("while True: pass", "1 True"), ("input()", "1 False")]
)
def test_what_is_left_behind_works_though_it_gets_no_processor(program, says, warm_python) -> None:
    command = (*warm_python, "-c", LEFT_BEHIND, program, sys.executable)
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == says
