"""The registry of injected faults, and what runs them.

A kind of fault is a function in `tests/faults/cases/*.py` under `@fault(name, count=...)` that
injects `count` faults, each inside `with bench.fault(name)`; fewer are a loss. With `each=True` it
is called once a fault, in a fresh folder, and is one fault itself (`bench.number` says which).
Whatever is raised in a fault is a loss; `bench.skip(reason)` leaves a kind out here. After every
call the frame looks for itself: no process of it lives, no temporary file is left.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import time
import traceback
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.bench import Bench

Case = Callable[["Bench"], Any]


class Skipped(Exception):
    """This machine lacks what a kind needs."""


class Sampled(Exception):
    """The first fault of a kind was injected, and a quick campaign asks for no more."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault."""

    name: str
    about: str
    count: int
    each: bool
    function: Case


@dataclass(slots=True)
class Report:
    """Outcome of a kind: faults injected and passed, and the losses."""

    kind: Kind
    injected: int = 0
    passed: int = 0
    losses: list[str] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0


KINDS: dict[str, Kind] = {}


def fault(name: str, *, count: int, about: str, each: bool = False) -> Callable[[Case], Case]:
    """Register a kind of fault; see the head of this module."""

    def register(function: Case) -> Case:
        KINDS[name] = Kind(name, about, count, each, function)
        return function

    return register


def chosen(only: Iterable[str]) -> list[Kind]:
    """Kinds whose name, or whose module, contains one of `only` (none given: all)."""
    from tests.faults import cases

    for module in sorted(m.name for m in pkgutil.iter_modules(cases.__path__)):
        importlib.import_module(f"tests.faults.cases.{module}")
    words = list(only)

    def wanted(kind: Kind) -> bool:
        module = kind.function.__module__.rpartition(".")[2]
        return not words or any(word in kind.name or word == module for word in words)

    return [kind for kind in KINDS.values() if wanted(kind)]


def run_kind(kind: Kind, seed: int, root: Path, *, quick: bool = False) -> Report:
    """Inject all faults of a kind (`quick`: the first), each call in a folder below `root`."""
    from tests.faults.bench import Bench

    report = Report(kind)
    count = 1 if quick else kind.count
    begin = time.monotonic()
    for number in range(count if kind.each else 1):
        salt = zlib.crc32(f"{kind.name}/{seed}/{number}".encode())
        bench = Bench(root, report, number, random.Random(salt), quick=quick)
        try:
            if kind.each:
                with bench.fault(f"number {number}"):
                    kind.function(bench)
            else:
                kind.function(bench)
        except Skipped as reason:
            report.skipped = str(reason)
        except Sampled:
            pass
        except Exception as error:
            report.losses.append(f"the whole kind: {brief(error)}")
        finally:
            bench.end()
        if report.skipped:
            break
    if not report.skipped and report.injected < count:
        report.losses.append(f"only {report.injected} of {count} faults were injected")
    report.seconds = time.monotonic() - begin
    return report


def brief(error: BaseException) -> str:
    """An error in a few lines: what it says, and where in the cases it was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "faults" in f.filename]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    name = "" if type(error).__name__ == "Loss" else f"{type(error).__name__}: "
    return f"{name}{str(error).strip()[:1200] or type(error).__name__}{where}"
