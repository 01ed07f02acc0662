"""Disks that are full, read-only or broken, from the beginning or in the middle of a run."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.cases.killed import MIXED
from tests.faults.papers import cell

PLAN = (*MIXED, cell("ok", unavailable="not here"))
SAYS = {
    "full": ("No space left on device", "free some space"),
    "read-only": ("Read-only file system", "choose a folder"),
    "broken": ("Input/output error",),
}


def _need_disk(bench: Bench) -> None:
    if bench.disk is None:
        bench.skip("no C compiler: there is no disk that fails on request")


def _one(bench: Bench, mode: str, arm: Callable[[], None], name: str, *, whole: bool) -> None:
    """One run on a bad disk, for the runner alone or (`whole`) its cells, too, then on a good one.

    A fault that never came to pass (there was room enough) is not counted.
    """
    bench.results = bench.folder / name
    with bench.fault(name):
        runner = bench.start(PLAN, before=arm).wait()
        bench.disk.disarm()
        hits = bench.disk.hits
        folder = runner.folder_or_none
        before = runner.bytes if folder else b""
        if not hits:
            bench.injected_nothing()
        elif runner.code == 0:  # it hit what the run can do without, such as an empty log
            assert mode == "broken" or whole, "the run says that all is well"
        else:
            ends = [e for e in runner.events if "end" in e]
            bench.said(runner.error or ends[-1]["trouble"], *SAYS[mode])
        if folder is None:
            bench.clean()
            runner = bench.run(PLAN)
            before = b""
        bench.resumed(runner, retry="failed")
        bench.intact(before, runner)


@fault("disk is full", count=14, about="room for a random number of bytes, before or in a run")
def full(bench: Bench) -> None:
    _need_disk(bench)
    for number in range(16):
        early = number < 4
        room = bench.rng.randrange(0, 1 << 20) if early else bench.rng.randrange(0, 18_000)

        def arm(room: int = room, early: bool = early) -> None:
            room += 0 if early else PROBES
            bench.disk.arm("full", bench.results, room=room, pid=os.getpid() if early else 0)

        _one(bench, "full", arm, f"room-{number}", whole=not early)


@fault("disk is read-only", count=4, about="at the start, at a resume")
def read_only(bench: Bench) -> None:
    _need_disk(bench)
    for number in range(2):
        _one(bench, "read-only", lambda: bench.disk.arm("read-only", bench.results),
             f"start-{number}", whole=True)  # fmt: skip
    for number in range(2):
        bench.results = bench.folder / f"resume-{number}"
        runner = bench.start(PLAN)
        runner.until("row", nth=1 + number)
        runner.kill()
        runner.wait()
        with bench.fault(f"resume {number}"):
            bench.disk.arm("read-only", bench.results)
            before = runner.bytes
            again = bench.run(resume=runner.path)
            bench.said(again.error, *SAYS["read-only"])
            assert runner.bytes == before
            bench.resumed(runner)


@fault("disk has an error", count=14, about="one open, write, rename ... of the runner fails")
def broken(bench: Bench) -> None:
    _need_disk(bench)
    bench.disk.arm("count", bench.results)
    bench.run(PLAN, before=lambda: bench.disk.only(os.getpid()))
    operations = bench.disk.count
    for number in range(16):
        at = 1 + int((number + bench.rng.random()) * operations / 16)

        def arm(at: int = at) -> None:
            bench.disk.arm("broken", bench.results, at=at, pid=os.getpid())

        _one(bench, "broken", arm, f"operation-{at}", whole=False)


PROBES = 2 << 20
"""Bytes written to probe the disk: a mebibyte when a run is made, and one when it is opened."""
