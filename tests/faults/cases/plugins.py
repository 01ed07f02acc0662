"""Plugins that lie, break at import or at open, and leave things behind."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from dgbench.harness.runner import client
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.checks import Loss, noted
from tests.faults.papers import cell
from tests.faults.plugins import harms, importing, leavers, liars, nonsense, printers, raisers
from tests.faults.runner import Runner


def _inject(bench: Bench, module: ModuleType, **more: Any) -> Runner:
    """A run of all behaviours of a module, a good cell behind each."""
    cells = []
    for number, harm in enumerate(harms(module)):
        cells += [cell(harm.how, group=harm.how, **harm.cell), cell("ok", after=number)]
    runner = bench.run(cells, **more)
    # What disturbed a process is the machine's doing, and others run beside it here.
    good = [row for row in runner.rows("ok") if row.status == "ok" and not noted(row)]
    for number, harm in enumerate(harms(module)):
        with bench.fault(harm.how.partition(":")[2]):
            row = runner.row(harm.how)
            bench.named(row, harm.status, *harm.words)
            readable(row.reason, *row.notes)
            if row.status != "ok" and row.observations:
                raise Loss("a row that is not ok has numbers that a ratio could use")
            if not any(other.params["after"] == number for other in good):
                raise Loss("the good cell behind it is not ok, or has a note")
    bench.resumed(runner)
    return runner


def readable(*texts: str) -> None:
    """No letter that would move a terminal's cursor or change its colour."""
    for text in texts:
        bad = [c for c in text if not c.isprintable() and c not in "\n\t"]
        if bad or len(text) > 9000:
            raise Loss(f"{len(text)} letters, among them {bad[:3]}: {text[:80]!r}")


@fault("plugin lies about time", count=len(harms(liars)), about="samples, phases, clocks")
def lies(bench: Bench) -> None:
    _inject(bench, liars)


@fault("plugin returns nonsense", count=len(harms(nonsense)), about="NaN, giants, depths, objects")
def returns_nonsense(bench: Bench) -> None:
    _inject(bench, nonsense)


@fault("plugin raises", count=len(harms(raisers)), about="at open, in every way there is")
def raises(bench: Bench) -> None:
    _inject(bench, raisers)


@fault("plugin leaves things behind", count=len(harms(leavers)), about="threads, children, files")
def leaves(bench: Bench) -> None:
    _inject(bench, leavers)


@fault("plugin prints", count=len(harms(printers)), about="100 MB, binary, colours, into nothing")
def prints(bench: Bench) -> None:
    runner = _inject(bench, printers)
    kept = [p.stat().st_size for p in (runner.path / "logs").iterdir() if p.is_file()]
    if max(kept) > 3 << 20:
        raise Loss(f"a log of {max(kept):,} bytes is kept")


@fault(
    "plugin breaks at import",
    count=2 * len(importing.HARM),
    about="ahead in the fork server, and in its own cell",
)
def breaks_at_import(bench: Bench) -> None:
    folder = Path(bench.folder) / "modules"
    folder.mkdir()
    names = importing.write(folder)

    def search() -> None:
        client.START_S = 1.5
        client.CULPRITS = 20
        sys.path.insert(0, str(folder))

    cells = [cell("ok"), *(cell(f"{name}:run", timeout_s=1.0) for name in names)]
    runner = bench.run(cells, modules=tuple(names), before=search)
    ahead = {
        "raises": "ValueError: not today",
        "exits": "SystemExit: I am done",
        "interrupts": "KeyboardInterrupt: no",
        "leaves": "ended with exit code 7",
        "aborts": "was killed by SIGABRT",
        "segfaults": "was killed by SIGSEGV",
        "hangs": "took too long",
        "closes": "over it",
        "redirects": "changed DGBENCH_CACHE while it was loaded; it was put back",
        "threads": "it should have one",
        "wrong": "SyntaxError",
    }
    own = {
        "raises": ("crash", "ValueError: not today"),
        "exits": ("crash", "SystemExit: I am done"),
        "interrupts": ("crash", "KeyboardInterrupt: no"),
        "leaves": ("crash", "exit code 7 and without a result"),
        "aborts": ("crash", "killed by SIGABRT"),
        "segfaults": ("crash", "killed by SIGSEGV"),
        "hangs": ("time", "limit of 1 s"),
        "wrong": ("crash", "SyntaxError"),
    }
    for name in importing.HARM:
        with bench.fault(f"{name}, ahead"):
            bench.said(runner.notes, ahead.get(name, ""))
            bench.named(runner.row("ok"), "ok")
        with bench.fault(f"{name}, in its cell"):
            bench.named(runner.row(f"harm_{name}:run"), *own.get(name, ("ok",)))
    bench.resumed(runner, modules=())
