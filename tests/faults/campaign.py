"""The registry of injected faults, and what runs them.

A kind of fault is a function in `tests/faults/cases/*.py`, found by being there:

    from tests.faults.bench import Bench
    from tests.faults.campaign import fault
    from tests.faults.papers import cell

    @fault("cell exits early", count=2, about="a cell leaves with a code of its own")
    def exits_early(bench: Bench) -> None:
        runner = bench.run([cell("ok"), cell("exit", code=3), cell("exit", code=9)])
        for row in runner.rows("exit"):                     # rows of that behaviour
            with bench.fault(f"code {row.params['code']}"):  # one injected fault, with its checks
                bench.named(row, "crash", f"SystemExit: {row.params['code']}")
        bench.resumed(runner)                                # rows intact, all steps have a row

`count` is how many faults the function injects; fewer are a loss, so that none gets lost silently.
With `each=True` the function is called once a fault, in a fresh folder, and is one fault itself
(`bench.number` says which); `bench.rng` is seeded by kind, seed and number. Whatever is raised in a
fault is a loss (`Loss`, any assertion, any error); `bench.skip(reason)` leaves a kind out here.

After every call the frame looks for itself: no process of it lives, no temporary file is left. See
`Bench` and `Runner`.
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


class Skipped(Exception):
    """This machine lacks what a kind needs."""


class Sampled(Exception):
    """The first fault of a kind was injected, and a quick campaign asks for no more."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `sample`: whether plain pytest runs it, too."""

    name: str
    about: str
    count: int
    each: bool
    sample: bool
    function: Callable[[Bench], Any]


@dataclass(slots=True)
class Report:
    """Outcome of a kind: faults injected and passed, the losses, and the checks that were made."""

    kind: Kind
    injected: int = 0
    passed: int = 0
    losses: list[str] = field(default_factory=list)
    skipped: str = ""
    checked: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    seconds: float = 0.0


KINDS: dict[str, Kind] = {}


def fault(
    name: str, *, count: int, about: str, each: bool = False, sample: bool = False
) -> Callable[[Callable[[Bench], Any]], Callable[[Bench], Any]]:
    """Register a kind of fault; see the head of this module."""

    def register(function: Callable[[Bench], Any]) -> Callable[[Bench], Any]:
        if name in KINDS and KINDS[name].function.__module__ != function.__module__:
            raise ValueError(f"two kinds of fault are called '{name}'")
        KINDS[name] = Kind(name, about, count, each, sample, function)
        return function

    return register


def load() -> dict[str, Kind]:
    """All kinds of `tests/faults/cases`, in the order of their modules."""
    from tests.faults import cases

    for module in sorted(m.name for m in pkgutil.iter_modules(cases.__path__)):
        importlib.import_module(f"tests.faults.cases.{module}")
    return KINDS


def chosen(only: Iterable[str], sample: bool = False) -> list[Kind]:
    """Kinds whose name, or whose module, contains one of `only` (none given: all)."""
    words = list(only)

    def wanted(kind: Kind) -> bool:
        module = kind.function.__module__.rpartition(".")[2]
        return not words or any(word in kind.name or word == module for word in words)

    return [k for k in load().values() if wanted(k) and (k.sample or not sample)]


def run_kind(kind: Kind, seed: int, root: Path, *, quick: bool = False) -> Report:
    """Inject all faults of a kind, each call in a folder of its own below `root`.

    Args:
        quick: only the first fault of the kind. Its other moments, places and bits are left to the
            whole campaign, and so is what a case checks behind its last fault.
    """
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
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
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
    first = f" from line {frames[0].lineno}" if len(frames) > 1 else ""
    text = str(error).strip() or type(error).__name__
    name = "" if type(error).__name__ == "Loss" else f"{type(error).__name__}: "
    return f"{name}{text[:1200]}{where}{first}"
