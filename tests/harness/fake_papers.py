"""Tiny papers whose cells behave badly on purpose. The fork server imports this by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import torch
from passed_checks import PASSED

from dgbench.lab.result_checks import close, equal, of_contender
from dgbench.runtime.errors import (
    CheckFailed,
    MissingDataError,
    MissingPackageError,
    UnsupportedError,
    unknown_key,
)
from dgbench.runtime.ranks import launch
from dgbench.runtime.touched import note_launch, note_opened
from dgbench.systems.base import Cell, Experiment, Paper
from tests.observed import NUMBER, told


def _ok(cell, context):
    context.meter.count("edges", 7)
    with context.meter.phase("compute"):
        total = float(torch.ones(200_000).exp().sum())
    return told(
        {NUMBER: total, "threads": torch.get_num_threads()},
        samples=[0.0001, 0.0002, 0.0003],
        warmup=1,
        data={"dataset": "none", "twin": True},
        deviation={"loss": 1e-7},
        checks=[PASSED],
    )


def _abort(cell, context):
    print("about to abort", file=sys.stderr, flush=True)
    os.abort()


def _hang(cell, context):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(61.5)"])
    time.sleep(60)


def _eat(cell, context):
    held = []
    while True:
        held.append(torch.ones(4 << 20))
        time.sleep(0.002)


def _no_import(cell, context):
    import a_package_that_nobody_has  # noqa: F401


def _flaky(cell, context):
    flag = Path(str(cell.params["flag"]))
    if not flag.exists():
        flag.touch()
        raise ValueError("fails the first time")
    return _ok(cell, context)


def _seen(cell, context):
    """Works until the runner must have read its memory several times."""
    with context.meter.phase("compute"):
        context.meter.mark("epoch")
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            torch.ones(10_000).exp().sum()
    return told(samples=[0.01], checks=[PASSED])


def _launch(cell, context):
    """Stands for a compiled operator that is given a stream of a device."""
    note_launch()
    return _ok(cell, context)


def launch_once(comm):
    note_launch()
    return comm.rank


def _rank_launch(cell, context):
    launch(launch_once, 2, timeout_s=30.0, threads=1)
    return _ok(cell, context)


def _twin_as_real(cell, context):
    note_opened("x", "twin", 0.5)
    return told(samples=[0.001], data={"dataset": "x", "twin": False}, checks=[PASSED])


def _own_check(cell, context):
    """Compares its result with itself, and says that it did not."""
    result = torch.ones(9)
    own = [close("outputs", result, result, 1e-5, against="float64 oracle")]
    own += of_contender("me", [msgspec.structs.replace(PASSED, against="another", own=False)])
    return told(samples=[0.001], checks=own)


def _own_check_beside(cell, context):
    return told(samples=[0.001], checks=[*_own_check(cell, context).checks, PASSED])


def _own_check_that_fails(cell, context):
    wrong = equal("rows", [1], [2], against="one by one")
    return told(samples=[0.001], checks=[PASSED, wrong])


def _untold_twin(cell, context):
    note_opened("x", "twin", 0.5)
    return told(samples=[0.001], checks=[PASSED])


RAISED = {
    "raise": ValueError("a mistake of ours"),
    "wrong": CheckFailed("loss differs by 0.1, allowed is 1e-4", deviation={"loss": 0.1}),
    "memory_error": MemoryError("no more"),
    "unsupported": UnsupportedError("pygt cannot train this", hint="choose another model"),
    "no_package": MissingPackageError("package 'dgl' is missing", hint="pip install dgl==1.1.3"),
    "no_data": MissingDataError("dataset 'x' is not held here"),
    "no_gpu": RuntimeError("Found no NVIDIA driver on your system"),
}
BEHAVIOURS = {k[1:]: v for k, v in dict(globals()).items() if k.startswith("_") and k[1] != "_"}
BEHAVIOURS |= {
    "lie": lambda *_: {"samples": [1.0]},
    "lie_inside": lambda *_: told(samples=["fast"]),
    "nan": lambda *_: told({"loss": float("nan")}, samples=[1.0]),
    "quiet_exit": lambda *_: os._exit(0),
    "exit": lambda *_: sys.exit(3),
}
BEHAVIOURS |= dict.fromkeys(RAISED)


class Fake(Experiment):
    """Runs `cell.params["how"]`."""

    paper = "fake"
    name = "behave"
    title = "Behaviours"
    question = "what happens?"
    made: tuple[Cell, ...] = ()

    def cells(self, preset, device):
        return list(self.made)

    def run(self, cell, context):
        how = cell.params["how"]
        if how not in BEHAVIOURS:
            raise unknown_key("behaviour", how, BEHAVIOURS)
        if how in RAISED:
            raise RAISED[how]
        return BEHAVIOURS[how](cell, context)


def make_paper(*cells, name="fake"):
    experiment = Fake()
    experiment.made = tuple(cells)
    return Paper(
        name=name, title="Fake", venue="nowhere", about="", system="none", ledger=Path("none"),
        experiments=(experiment,), checks={},
    )  # fmt: skip


def cell(how, *, repeats=1, group="g", timeout_s=20.0, memory_bytes=None, phases=False,
         interleaved=False, paper="fake", **params):  # fmt: skip
    return Cell(
        paper=paper, experiment="behave", params={"how": how, **params}, group=group,
        repeats=repeats, timeout_s=timeout_s, memory_bytes=memory_bytes, phases=phases,
        interleaved=interleaved,
    )  # fmt: skip


def lookup(name):
    if name != "fake":
        raise unknown_key("paper", name, ["fake"])
    return make_paper()
