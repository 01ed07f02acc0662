"""Calls every entry point of `_cpu` with wrong arguments and says what became of each.

A program of its own, `python entry_probe.py OUT`: each call is tried in a fork, so that one that
crashes ends its fork only, and forks are sound here because nothing ever starts a thread.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from entry_calls import Call, arguments, arrays_of, entry_points, seen
from entry_mutations import Wrong, all_guarded, wrong_values
from entry_rules import AMOUNTS, HELD, LOOKED_THROUGH, NOT_IN_A_FORK, READ_ONLY, names
from entry_scenarios import SCENARIOS

from dgbench.kernels_cuda.build_info import build_info

FEW = 12  # vertices
TRIED = 2  # calls of an entry point whose arguments are mutated: of different kinds each
REFUSALS = (TypeError, ValueError, IndexError, MemoryError, RuntimeError)
SECONDS = 2


class Probe:
    """Tries wrong arguments on calls as they come; `report` has one line for each trial."""

    def __init__(self) -> None:
        self.report: list[dict[str, Any]] = []
        self._kinds: Counter[str] = Counter()
        self._seen: set[Any] = set()
        self._entries = {name: arguments(value) for name, value in entry_points().items()}

    def __call__(self, call: Call) -> Any:
        kind = call.entry, *(_kind_of(value) for value in call.given)
        new = kind not in self._seen and self._kinds[call.entry] < TRIED
        if new and call.entry not in NOT_IN_A_FORK:
            self._seen.add(kind)
            self._kinds[call.entry] += 1
            self._try(call)
        return call.run()

    def _try(self, call: Call) -> None:
        trials = list(self._trials(call))
        first = 0
        while first < len(trials):
            outcomes = in_fork(lambda begin=first: attempt(call, trials[begin:]))
            for (argument, wrong), outcome in zip(trials[first:], outcomes, strict=False):
                self.report.append(
                    {
                        "entry": call.entry,
                        "argument": argument,
                        "kind": wrong.kind,
                        "refused": wrong.refused,
                        "outcome": outcome,
                    }
                )
            first += len(outcomes)

    def _trials(self, call: Call) -> Iterator[tuple[str, Wrong]]:
        trusted = names(LOOKED_THROUGH)
        for after in (True, False):  # the right call touches nothing but its arrays
            yield "", Wrong("right", None, refused=False, after=after)
        for argument, value in zip(self._entries[call.entry], call.given, strict=True):
            name = f"{call.entry}.{argument.name}"
            for wrong in wrong_values(argument, value):
                content = " at " in wrong.kind or not isinstance(value, (np.ndarray, list))
                huge = wrong.value == 2**40 if isinstance(wrong.value, int) else False
                if not (content and name in trusted) and not (huge and name in AMOUNTS):
                    yield argument.name, wrong


def _kind_of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.ndim, value.size > 0
    return type(value).__name__


def attempt(call: Call, trials: list[tuple[str, Wrong]]) -> Iterator[str]:
    """Outcome after outcome, until something was taken that may have changed an object."""
    changes = call.owner is not None and type(call.owner).__name__ not in READ_ONLY
    sides = {after: in_guarded(call, after) for after in (True, False)}
    for argument, wrong in trials:
        given = list(sides[wrong.after])
        if argument:
            safe = is_dense(wrong.value)
            other = all_guarded(wrong.value, after=wrong.after) if safe else wrong.value
            given[call.names.index(argument)] = other
        before = [array.copy() for array in arrays_of(given)]
        signal.alarm(SECONDS)
        try:
            call.run(given)
        except REFUSALS as error:
            same = all(map(identical, before, arrays_of(given)))
            yield type(error).__name__ if same else f"wrote, then {type(error).__name__}"
        except BaseException as error:
            yield f"raised {type(error).__name__}: {error}"
        else:
            yield "taken"
            if changes:
                return
            sides[wrong.after] = in_guarded(call, wrong.after)


def in_guarded(call: Call, after: bool) -> list[Any]:
    """The right arguments, their arrays in guarded memory."""
    return [
        value if f"{call.entry}.{name}" in HELD else all_guarded(value, after=after)
        for name, value in zip(call.names, call.given, strict=True)
    ]


def is_dense(value: Any) -> bool:
    """Return True if a copy in guarded memory is as wrong as the value."""
    arrays = arrays_of([value])
    return bool(arrays) and all(a.flags.c_contiguous and a.flags.writeable for a in arrays)


def identical(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


def in_fork(outcomes: Any) -> list[str]:
    """Collect an iterator's outcomes in a fork; the last one says so if the fork died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        limit = 4 << 30
        if not build_info()["cpu"]["sanitizer"]:  # which takes far more addresses than memory
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            for outcome in outcomes():
                os.write(writer, (outcome.replace("\n", " ") + "\n").encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        found = lines.read().splitlines()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        found.append("hangs" if number == signal.SIGALRM else f"dies of {signal.strsignal(number)}")
    return found or ["ends without a word"]


def main() -> None:
    torch.set_num_threads(1)
    gc.freeze()  # so that a fork's collector touches no page of ours
    gc.disable()
    probe = Probe()
    with seen(probe):
        for run in SCENARIOS.values():
            run(FEW)
    Path(sys.argv[1]).write_text(json.dumps(probe.report))


if __name__ == "__main__":
    main()
