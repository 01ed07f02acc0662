"""Every operator gives the same bytes on 1, 2 and 8 threads, and its scenario the same calls."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from entry_calls import Argument, Call, arguments, arrays_of, entry_points, seen
from entry_scenarios import SCENARIOS

from dgbench.kernels_cuda import build_info
from dgbench.kernels_cuda.workspace import Workspace

pytestmark = pytest.mark.machines_arithmetic

MANY: Final = 4500
"""Vertices: enough for every loop that shares out its work to do so."""

OPERATORS: Final = "dgbench.kernels_cuda."

THREADS: Final = (1, 2, 8)

ADDED_IN_PARTS: Final = frozenset(
    {
        "dense_norm_backward",
        "dense_norm_forward",
        "evolve_gru_backward",
        "frame_dense_backward",
        "gru_scan_backward",
        "lstm_scan_backward",
        "time_lstm_backward",
    }
)
"""Sums over all vertices in floats, of which each thread adds a part: the same to rounding."""

MEASURED: Final = frozenset({"time_items", "hand_out", "weighted_time"})
"""Entry points that write seconds."""

IN_ANY_ORDER: Final = frozenset({"ListCache.fetch"})
"""The cache that GNNFlow argues against: threads take its lock in any order, so hits differ."""


def workspaces() -> list[Workspace]:
    """Those of the operators, which are attributes of their modules."""
    operators = [m for name, m in sys.modules.items() if name.startswith(OPERATORS)]
    return [one for m in operators for one in vars(m).values() if isinstance(one, Workspace)]


def run_of(name: str, threads: int) -> list[tuple[str, Any]]:
    """(entry point, what its arrays hold afterwards and what it returned) of every call."""
    found: list[tuple[str, Any]] = []

    def watch(call: Call) -> Any:
        answer = call.run()
        if call.entry not in MEASURED | IN_ANY_ORDER and "CopyThread" not in call.entry:
            found.append((call.entry, state(call, answer)))
        return answer

    before = torch.get_num_threads()
    for workspace in workspaces():
        workspace.clear()  # no remains of the run before in what is not written
    try:
        torch.manual_seed(0)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(True)  # new tensors begin with known numbers
        with seen(watch):
            SCENARIOS[name](MANY)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)
    return found


def state(call: Call, answer: Any) -> Any:
    """The arrays that a call may have written, whole or as a digest, and its answer."""
    listed = zip(known_arguments(call.entry), call.given, strict=True)
    written = arrays_of([value for argument, value in listed if argument.writable])
    if call.entry in ADDED_IN_PARTS:
        return [array.copy() for array in written]
    parts = answer if isinstance(answer, (tuple, list)) else [answer]
    plain = [one for one in parts if isinstance(one, (int, float))]
    written += [one for one in parts if isinstance(one, np.ndarray)]
    return [hashlib.blake2b(array.tobytes()).hexdigest() for array in written], plain


@functools.cache
def known_arguments(entry: str) -> list[Argument]:
    return arguments(entry_points()[entry])


for _name in entry_points():  # before anything is replaced by what watches it
    known_arguments(_name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_results_do_not_depend_on_the_number_of_threads(name):
    alone = run_of(name, THREADS[0])
    for threads in THREADS[1:]:
        several = run_of(name, threads)
        assert [entry for entry, _ in several] == [entry for entry, _ in alone]
        different = Counter()
        for (entry, one), (_, other) in zip(alone, several, strict=True):
            if entry in ADDED_IN_PARTS:
                for a, b in zip(one, other, strict=True):
                    scale = float(np.abs(a).max(initial=0)) or 1.0
                    tolerance = 2e-5 if a.dtype == np.float32 else 1e-12
                    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)
            elif one != other:
                different[entry] += 1
        assert not different, f"{threads} threads"


def test_every_workspace_is_found():
    sources = Path(build_info.__file__).parent.rglob("*.py")
    made = sum(len(re.findall(r"= Workspace\(", path.read_text())) for path in sources)
    assert len({id(one) for one in workspaces()}) == made > 0


def test_operators_that_take_threads_are_all_among_them():
    takes = {
        name
        for name in entry_points()
        if any(argument.name == "threads" for argument in known_arguments(name))
    }
    called: set[str] = set()

    def watch(call: Call) -> Any:
        called.add(call.entry)
        return call.run()

    with seen(watch):
        for run in SCENARIOS.values():
            run(12)
    assert takes <= called
    assert takes >= ADDED_IN_PARTS
