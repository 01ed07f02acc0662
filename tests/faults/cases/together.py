"""Several processes at one folder, or at one root of runs."""

from __future__ import annotations

import time

from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.cases.killed import MIXED
from tests.faults.papers import cell


@fault("two writers of one run", count=6, each=True, about="a resume while the run goes on")
def two_writers(bench: Bench) -> None:
    runner = bench.start((cell("slow", seconds=0.4), *MIXED))
    if bench.number % 3:
        runner.until("row", nth=bench.number % 3)
    path = runner.path
    time.sleep(bench.rng.uniform(0, 0.2))
    other = bench.run(resume=path)
    if other.code != 2:
        raise AssertionError(f"the second writer ended with {other.code}, not with an error")
    bench.said(other.error, "another process is writing the run", "wait for it")
    runner.wait()
    bench.said(runner.summary["end"], "Done")
    bench.resumed(runner)


@fault("two writers after a kill", count=4, each=True, about="two resumes of a killed run at once")
def two_resumes(bench: Bench) -> None:
    runner = bench.start((cell("untidy", seconds=0.3), *MIXED))
    runner.cell()
    runner.kill()
    runner.wait()
    both = [bench.start(resume=runner.path) for _ in range(2)]
    for one in both:
        one.wait()
    codes = sorted(one.code or 0 for one in both)
    if codes not in ([0, 2], [0, 0]):  # the second may come when the first is done
        raise AssertionError(f"the two ended with {codes}: {[one.error for one in both]}")
    for one in both:
        if one.code:
            bench.said(one.error, "another process is writing the run")
    bench.resumed(runner)


@fault("runs that start together", count=4, each=True, about="eight at the same root at once")
def start_together(bench: Bench) -> None:
    runners = [bench.start((cell("ok", which=n),)) for n in range(8)]
    for runner in runners:
        runner.wait()
    paths = {runner.path for runner in runners}
    if len(paths) != len(runners) or any(runner.code for runner in runners):
        raise AssertionError(f"{len(paths)} folders, exit codes {[r.code for r in runners]}")
    for number, runner in enumerate(runners):
        rows = runner.rows()
        assert [row.params["which"] for row in rows] == [number], rows
    bench.resumed(runners[0])


@fault("run killed beside another", count=3, each=True, about="kill -9 of one of two runs")
def beside(bench: Bench) -> None:
    one, two = (bench.start((cell("untidy", seconds=0.5, which=n), *MIXED)) for n in range(2))
    one.cell()
    two.cell()
    one.kill()
    one.wait()
    bench.resumed(one, clean=False)
    two.wait()
    bench.said(two.summary["end"], "Done")
    assert two.row("untidy").status == "ok", two.row("untidy").reason
    bench.resumed(two)
