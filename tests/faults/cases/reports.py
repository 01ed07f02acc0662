"""Pages whose building is killed: what was there stays whole, the next build leaves nothing."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable
from pathlib import Path

import matplotlib.figure  # noqa: F401 - once here, not in every builder

from dgbench.harness.report.build import build_report, build_site
from dgbench.harness.report.folders import read_manifest
from dgbench.harness.store import Store
from tests.faults import papers
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.papers import cell

LEDGER = """\
- id: faulty-claim
  where: nowhere
  statement: It goes wrong.
  kind: ordering
  unit: null
  value: a <= b
  hardware: none
  needs: {gpus: 0, cpu_only_ok: true}
  notes: Invented.
"""


@fault("report killed at an operation", count=3, about="kill -9 while pages of a run are written")
def report_killed(bench: Bench) -> None:
    path, paper = _finished(bench)
    _kills(bench, 3, lambda: build_report(path, [paper]), path, path / "report.html")


@fault("site killed at an operation", count=5, about="kill -9 while a site takes another's place")
def site_killed(bench: Bench) -> None:
    path, paper = _finished(bench)
    site = bench.results / "site"
    _kills(bench, 5, lambda: build_site([path], site, [paper]), site, site / "index.html")


def _finished(bench: Bench) -> tuple[Path, papers.Paper]:
    if bench.disk is None:
        bench.skip("no C compiler: nothing can be put at a single operation")
    ledger = bench.folder / "claims.yaml"
    ledger.write_text(LEDGER)
    runner = bench.run([cell("ok", repeats=3), cell("exit")])
    return runner.path, papers.make_paper(cell("ok"), ledger=ledger)


def _load() -> None:
    """Import here what every forked builder would import for itself."""
    import seaborn  # noqa: F401

    import dgbench.harness.figures as figures
    import dgbench.harness.report as report
    from dgbench.systems.base import find_system, system_names

    for name in system_names():
        find_system(name)

    for package in (figures, report):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")


def _kills(bench: Bench, count: int, build: Callable[[], Path], folder: Path, page: Path) -> None:
    """Kill a build that replaces an earlier one, at operations spread over all of it."""
    _load()
    assert bench.call(build).code == 0
    bench.disk.arm("count", bench.results)
    bench.call(build, before=lambda: bench.disk.only(os.getpid()))
    operations = bench.disk.count
    rows = next(bench.results.glob("[!.]*/rows.jsonl"))
    before = rows.read_bytes()
    for number in range(count):
        # the last operations are those that put things in place
        at = operations - number if number < count // 2 else 1 + bench.rng.randrange(operations)

        def arm(at: int = at) -> None:
            bench.disk.arm("kill", bench.results, at=at, pid=os.getpid())

        with bench.fault(f"operation {at} of {operations}"):
            killed = bench.call(build, before=arm)
            bench.disk.disarm()
            if not bench.disk.hits:
                bench.injected_nothing()
            elif killed.code != -9:
                raise AssertionError(f"it ended with {killed.code}: {killed.error}")
            again = bench.call(build)
            if again.code:
                raise AssertionError(f"it cannot be built again: {again.error}")
            manifest = read_manifest(folder)
            assert manifest is not None
            assert page.stat().st_size > 1000
            missing = [name for name in manifest["files"] if not (folder / name).is_file()]
            assert not missing, f"the manifest names files that are not there: {missing[:3]}"
            assert rows.read_bytes() == before
            assert Store.open(rows.parent).damaged == []
            bench.clean()
