"""Lets each allocation of each call of `_cpu` fail in turn and says what became of the call.

A program of its own, `python allocation_probe.py OUT THREADS`, with `failing_allocations.cpp`
compiled and preloaded. A call fails again and again, an allocation later each time, until it
succeeds: what it then gives must be what the call gives to which nothing happened. One thread does
so in forks, so that a call that ends the process ends its fork. Several cannot, for a fork has none
but its own: there the calls that change no object fail where they stand.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from entry_calls import Call, arrays_of, entry_points, seen
from entry_probe import in_fork
from entry_rules import HELD, NOT_IN_A_FORK
from entry_scenarios import SCENARIOS

from dgbench.kernels_cuda import aggregate
from dgbench.kernels_cuda.csr import Csr

FEW = 100  # vertices: pools and tables have to grow
MANY = 6000  # vertices that loops share out among threads
HUB = 40_000
TRIED = 1
MAX_ALLOCATIONS = 400  # allocations of a call that fail in turn
SECONDS = 20
SHIM = ctypes.CDLL(None)


class Probe:
    """`report`: by entry point, how many allocations failed and what was wrong afterwards."""

    def __init__(self, threads: int) -> None:
        self.report: list[dict[str, Any]] = []
        self._threads = threads
        self._kinds: Counter[str] = Counter()
        self._held: dict[int, list[np.ndarray]] = {}

    def __call__(self, call: Call) -> Any:
        self._kinds[call.entry] += 1
        tried = self._kinds[call.entry] <= TRIED and call.entry not in NOT_IN_A_FORK
        tried = tried and (self._threads == 1 or call.owner is None)
        lines = self._failing(call) if tried else []
        own = self._held.get(id(call.owner), [])
        answer = call.run()
        if call.entry.endswith("__init__"):
            self._held[id(answer)] = arrays_of(call.given)
            self._held[-id(answer)] = [answer]  # alive, so that its id stays its own
        if tried:
            right = result_of(call.given, answer, call.owner, own)
            wrong = [line for line in lines if line not in ("refused", f"result {right}")]
            report = {"entry": call.entry, "failed": lines.count("refused"), "wrong": wrong}
            self.report.append(report)
        return answer

    def _failing(self, call: Call) -> list[str]:
        own = self._held.get(id(call.owner), [])
        if self._threads > 1:
            print(call.entry, flush=True)  # the last one, where the process ends
            return list(attempts(call, own, 0))
        lines: list[str] = []
        while not lines or not lines[-1].startswith(("result", "enough")):
            begin = sum(not line.startswith("result") for line in lines)
            lines += in_fork(lambda begin=begin: attempts(call, own, begin))
            if sum(line != "refused" for line in lines) > 3:
                break
        return lines


def attempts(call: Call, own: list[np.ndarray], begin: int) -> Iterator[str]:
    """`refused` for each allocation that failed, then `result` and what the call gave."""
    before = state_of(call.owner, own)
    for count in range(begin, MAX_ALLOCATIONS):
        given = fresh(call)
        signal.alarm(SECONDS)  # ends what hangs
        SHIM.fail_after(ctypes.c_long(count))
        try:
            answer = call.run(given)
        except MemoryError:
            SHIM.fail_after(ctypes.c_long(-1))
            same = state_of(call.owner, own) == before
            yield "refused" if same else f"changed by the failure of allocation {count}"
            if not same:
                return
        except BaseException as error:
            SHIM.fail_after(ctypes.c_long(-1))
            yield f"allocation {count}: {type(error).__name__}: {error}"
        else:
            SHIM.fail_after(ctypes.c_long(-1))
            yield f"result {result_of(given, answer, call.owner, own)}"
            return
    yield "enough"


def fresh(call: Call) -> list[Any]:
    """The arguments with copies of their arrays, but for those that an object goes on to use."""

    def copied(value: Any) -> Any:
        if isinstance(value, list):
            return [copied(one) for one in value]
        return value.copy() if isinstance(value, np.ndarray) else value

    return [
        value if f"{call.entry}.{name}" in HELD else copied(value)
        for name, value in zip(call.names, call.given, strict=True)
    ]


def result_of(given: list[Any], answer: Any, owner: Any, own: list[np.ndarray]) -> str:
    """A digest of all that a call gave: arrays, answer, and the state of its object."""
    parts = answer if isinstance(answer, (tuple, list)) else [answer]
    plain = [one for one in parts if isinstance(one, (int, float, dict))]
    arrays = [*arrays_of(given), *(one for one in parts if isinstance(one, np.ndarray))]
    return digest([*arrays, repr(plain), state_of(owner, own)])


def digest(parts: list[Any]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for part in parts:
        whole.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
    return whole.hexdigest()


def state_of(owner: Any, own: list[np.ndarray]) -> str:
    """A digest of what an object shows of itself, and of the arrays that it was given."""
    show = SHOWN.get(type(owner).__name__)
    return digest([*(show(owner) if show else []), *own])


METHODS = entry_points()  # as they are when nobody watches them


def show_store(store: Any) -> list[Any]:
    one = {name: METHODS[f"TemporalStore.{name}"] for name in ("degree", "deleted", "neighbours")}
    counts = [getattr(store, name) for name in dir(store) if name.startswith("num_")]
    shown: list[Any] = [counts, store.last_time, one["deleted"](store)]
    for vertex in range(store.num_vertices):
        size = one["degree"](store, vertex)
        row = [np.empty(size, dtype) for dtype in (np.int64, np.int64, np.float64)]
        one["neighbours"](store, vertex, *row)
        shown += row
    return shown


def show_tree(tree: Any) -> list[Any]:
    name = type(tree).__name__
    weights = np.empty(FEW, np.int64 if name == "SegmentTreeInt" else np.float64)
    METHODS[f"{name}.weights"](tree, weights)
    return [tree.total, weights]


def show_cache(cache: Any) -> list[Any]:
    return [METHODS[f"RowCache.{name}"](cache) for name in ("order", "hits")]


SHOWN: dict[str, Callable[[Any], list[Any]]] = {
    "TemporalStore": show_store,
    "SegmentTreeInt": show_tree,
    "SegmentTreeFloat": show_tree,
    "RowCache": show_cache,
}


def multiply_hub() -> None:
    """A product with a row so long that several threads add it up."""
    indptr = torch.tensor([0, *range(HUB, HUB + 20_001)])
    csr = Csr(indptr, torch.arange(HUB + 20_000, dtype=torch.int32) % HUB, HUB)
    aggregate.spmm(csr, torch.ones(HUB, 3))


def main() -> None:
    threads = int(sys.argv[2])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)  # new tensors begin with known numbers
    gc.freeze()
    gc.disable()
    probe = Probe(threads)
    with seen(probe):
        if threads > 1:
            multiply_hub()
        for run in SCENARIOS.values():
            run(FEW if threads == 1 else MANY)
    signal.alarm(0)
    Path(sys.argv[1]).write_text(json.dumps(probe.report))


if __name__ == "__main__":
    main()
