"""Memory that runs out: by allocation, by a control group, by a limit, on a device."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.papers import cell
from tests.observed import NUMBER, told

MIB = 1 << 20
ROOM = 400 * MIB
"""Limit of the cells here, beside what their process holds from its birth."""


def tensors(_: Cell, context: RunContext) -> Measurement:
    """Take 16 MiB at a time."""
    held = []
    while True:
        held.append(torch.ones(4 * MIB))
        time.sleep(0.002)


def arrays(_: Cell, context: RunContext) -> Measurement:
    """The same by numpy."""
    held = []
    while True:
        held.append(np.ones(2 * MIB))
        time.sleep(0.002)


def at_once(_: Cell, context: RunContext) -> Measurement:
    """All of it in one allocation, and then wait."""
    held = np.ones(150 * MIB)
    time.sleep(30)
    return told({NUMBER: float(held[0])})


def objects(_: Cell, context: RunContext) -> Measurement:
    """By many small objects."""
    held = []
    while True:
        held.append(bytes(100_000))
        if len(held) % 200 == 0:
            time.sleep(0.002)


def child(_: Cell, context: RunContext) -> Measurement:
    """In a child process, a gigabyte and a half."""
    code = "import time; x = bytearray(b'x') * (3 << 29); time.sleep(60)"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    raise AssertionError


def _hold(_: int) -> None:
    held = np.ones(25 * MIB)
    time.sleep(60 + held[0])


def children(_: Cell, context: RunContext) -> Measurement:
    """In eight children, 200 MiB each."""
    with multiprocessing.get_context("fork").Pool(8) as pool:
        pool.map(_hold, range(8))
    raise AssertionError


GROWING = (tensors, arrays, at_once, objects, child, children)


@fault("memory runs out by allocation", count=6, about="in the cell or below it, over its limit")
def allocation(bench: Bench) -> None:
    limit = 700 * MIB + _resident()
    cells = [cell(f"{__name__}:{how.__name__}", memory_bytes=limit) for how in GROWING]
    runner = bench.run([*cells, cell("ok")])
    for how in GROWING:
        with bench.fault(how.__name__):
            row = runner.row(f"{__name__}:{how.__name__}")
            bench.named(row, "oom", "out of memory", "iB")
            assert row.probes["peak_rss_bytes"] >= limit
    bench.named(runner.row("ok"), "ok")
    bench.resumed(runner)


def limited(_: Cell, context: RunContext) -> Measurement:
    """numpy's MemoryError where the address space is limited."""
    _limit()
    np.ones(1 << 32)
    raise AssertionError


def limited_torch(_: Cell, context: RunContext) -> Measurement:
    """torch's RuntimeError of its allocator."""
    _limit()
    torch.ones(1 << 32)
    raise AssertionError


def limited_python(_: Cell, context: RunContext) -> Measurement:
    """Python's own MemoryError."""
    _limit()
    return Measurement(values={NUMBER: float(len(bytes(1 << 40)))})


def device(_: Cell, context: RunContext) -> Measurement:
    """Raise torch's out-of-memory error of a device, with its message."""
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.77 GiB"
    )


def device_driver(_: Cell, context: RunContext) -> Measurement:
    """Raise the driver's out-of-memory error as it appears outside torch's allocator."""
    raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously ...")


RAISED = (limited, limited_torch, limited_python, device, device_driver)


@fault("memory runs out by an error", count=5, about="RLIMIT_AS; torch's errors of a full device")
def raised(bench: Bench) -> None:
    if not torch.cuda.is_available():
        bench.remark("there is no device: its errors are raised by hand")
    runner = bench.run([*(cell(f"{__name__}:{how.__name__}") for how in RAISED), cell("ok")])
    for how in RAISED:
        with bench.fault(how.__name__):
            bench.named(runner.row(f"{__name__}:{how.__name__}"), "oom", "out of memory")
    bench.named(runner.row("ok"), "ok")
    bench.resumed(runner)


def confined(cell: Cell, context: RunContext) -> Measurement:
    """Enter the control group that `cell` names, and take more than it may hold."""
    Path(str(cell.params["group_folder"]), "cgroup.procs").write_text(str(os.getpid()))
    return tensors(cell, context)


@fault(
    "memory runs out by a control group",
    count=2,
    about="Linux kills the cell, far below the limit that the runner knows",
)
def control_group(bench: Bench) -> None:
    with _group(200 * MIB) as folder:
        if folder is None:
            bench.remark("no control group can be made here: SIGKILL near the limit stands in")
            near = [cell(f"{__name__}:killed_near", memory_bytes=2 * _resident(), which=n)
                    for n in range(2)]  # fmt: skip
            runner = bench.run([*near, cell("ok")])
            rows = runner.rows(f"{__name__}:killed_near")
        else:
            how = f"{__name__}:confined"
            cells = [cell(how, group_folder=str(folder), which=n) for n in range(2)]
            runner = bench.run([*cells, cell("ok")])
            rows = runner.rows(how)
        for row in rows:
            with bench.fault(str(row.params["which"])):
                bench.named(row, "oom", "killed by the system")
        bench.named(runner.row("ok"), "ok")
        bench.resumed(runner)


def killed_near(cell: Cell, context: RunContext) -> Measurement:
    """Fill nine tenths of the limit, wait to be seen, and die as if Linux had chosen it."""
    held = bytes(_resident())
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
    return told({NUMBER: float(len(held))})


@contextlib.contextmanager
def _group(limit: int) -> Iterator[Path | None]:
    """A control group with a memory limit, of version 2 or 1; None where none can be made."""
    name = f"dgbench-faults-{os.getpid()}"
    for root, file in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        folder = Path("/sys/fs/cgroup") / root / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if not (folder / file).exists():  # no such controller, or no control group at all
                raise OSError
            (folder / file).write_text(str(limit))
        except OSError:
            folder.rmdir()
            continue
        try:
            yield folder
        finally:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.02)
        return
    yield None


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _limit() -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, now + ROOM))
