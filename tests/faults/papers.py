"""The paper whose cells go wrong on purpose. A fork server finds it as `tests.faults.papers`."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dgbench.runtime.errors import unknown_key
from dgbench.systems.base import Cell, Experiment, Measurement, Paper, RunContext
from tests.observed import NUMBER, told


def ok(cell: Cell, context: RunContext) -> Measurement:
    """Work like a good cell: a counter, a phase, samples."""
    context.meter.count("edges", 7)
    with context.meter.phase("compute"):
        total = float(sum(range(1000)))
    return told({NUMBER: total}, samples=[1e-4, 2e-4, 3e-4], warmup=1)


def slow(cell: Cell, context: RunContext) -> Measurement:
    """Like `ok` after `seconds`."""
    time.sleep(float(cell.params.get("seconds", 0.3)))
    return ok(cell, context)


def untidy(cell: Cell, context: RunContext) -> Measurement:
    """Wait with open temporary files, a folder of them and processes below that must go, too."""
    folder = Path(tempfile.mkdtemp(prefix="untidy-"))
    (folder / "half").write_bytes(bytes(1000))
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(120)"]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True)
    time.sleep(float(cell.params.get("seconds", 60.0)))
    return ok(cell, context)


def exit(cell: Cell, context: RunContext) -> Measurement:
    """Leave by `sys.exit(code)`."""
    sys.exit(cell.params.get("code", 3))


class Faulty(Experiment):
    """Runs `cell.params["how"]`: a function of this module, or `module:function`."""

    paper = "faulty"
    name = "behave"
    title = "Faults"
    question = "what happens?"
    made: tuple[Cell, ...] = ()

    def cells(self, preset: str, device: str) -> list[Cell]:
        return list(self.made)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        module, _, name = str(cell.params["how"]).rpartition(":")
        return getattr(importlib.import_module(module or __name__), name)(cell, context)


def make_paper(*cells: Cell, ledger: Path = Path("none")) -> Paper:
    """The paper with these cells."""
    experiment = Faulty()
    experiment.made = tuple(cells)
    return Paper(
        name="faulty", title="Faulty", venue="nowhere", about="", system="none", ledger=ledger,
        experiments=(experiment,), checks={},
    )  # fmt: skip


def cell(how: str, **more: Any) -> Cell:
    """A cell of a behaviour; `repeats`, `group`, `timeout_s`, `memory_bytes`, `phases`,
    `unavailable` are the cell's, all else are params."""
    own = {"repeats", "group", "timeout_s", "memory_bytes", "phases", "unavailable"}
    fields: dict[str, Any] = {"group": "g", "timeout_s": 20.0}
    fields.update({k: v for k, v in more.items() if k in own})
    params = {"how": how, **{k: v for k, v in more.items() if k not in own}}
    return Cell(paper="faulty", experiment="behave", params=params, **fields)


def lookup(name: str) -> Paper:
    """The paper by its name, as a fork server asks for it."""
    if name != "faulty":
        raise unknown_key("paper", name, ["faulty"])
    return make_paper()
