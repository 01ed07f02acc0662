"""Forked runner: runs the cells it is given, and reports through a pipe."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch  # noqa: F401 - before any fork, or every cell would import it anew

import dgbench.datasets.store  # noqa: F401
from dgbench.harness.plan import Plan
from dgbench.harness.runner import Listener, client, run_plan
from dgbench.harness.store import Row, Store
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import Cell
from tests.faults import papers
from tests.faults.forked_server import Subprocess


class _Teller(Listener):
    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell, self.number = tell, 0

    def on_start(self, cell: Cell, round: int) -> None:
        self.number += 1
        self.tell(start=cell.params.get("how", cell.experiment), number=self.number)

    def on_row(self, row: Row) -> None:
        self.tell(row=row.id, status=row.status)

    def on_note(self, text: str) -> None:
        self.tell(note=text)


@dataclass(frozen=True, slots=True)
class Order:
    """Arguments of a forked runner."""

    cells: list[Cell]
    resume: Path | None
    preset: str
    control: str
    root: Path
    settings: dict[str, Any]

    def run(self, tell: Callable[..., None]) -> int:
        """Do as `dgbench run` does; returns its exit code."""
        if self.resume is None:
            paper = papers.make_paper(*self.cells)
            plan = Plan.build([paper], None, self.preset, control=self.control)
            store = Store.create(self.root, {"papers": ["faulty"], "experiments": []}, plan)
        else:
            store = Store.open(self.resume, writable=True)
            plan = msgspec.convert(store.read_plan(), Plan)
        given = {"limits": False, "modules": (), "threads": 1, "lookup": papers.lookup}
        with store:
            tell(path=str(store.path))
            summary = run_plan(plan, store, listener=_Teller(tell), **{**given, **self.settings})
        tell(
            end=summary.sentence,
            interrupted=summary.interrupted,
            trouble=summary.trouble,
            rows=summary.rows,
            kept=summary.kept,
            restarts=summary.restarts,
        )
        return 130 if summary.interrupted else int(bool(summary.trouble))


def be_runner(
    folder: Path,
    tmp: Path,
    pipe: int,
    order: Order,
    real: bool,
    before: Callable[[], Any] | None,
) -> NoReturn:
    """The forked process: run, tell, leave without a look back."""

    def tell(**event: Any) -> None:
        os.write(pipe, json.dumps(event).encode() + b"\n")

    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(folder / "runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["TMPDIR"] = str(tmp)
        # what torch compiles is shared by all runs of a user, so it is no leftover of this one
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torchinductor")
        tempfile.tempdir = None
        gc.freeze()
        if not real:
            client.subprocess = Subprocess  # type: ignore[assignment]
        if before is not None:
            before()
        code = order.run(tell)
    except DgbenchError as error:
        tell(error=str(error), hint=error.hint)
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            tell(error=f"{type(error).__name__}: {error}", hint="a traceback")
        code = 70
    finally:
        os._exit(code)
