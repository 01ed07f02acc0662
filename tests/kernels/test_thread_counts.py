"""Every operator gives the same bytes on 1, 2 and 8 threads, and its scenario the same calls."""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Final

import numpy as np
import pytest
import torch
from entry_calls import Call, arguments, arrays_of, entry_points, seen
from entry_scenarios import SCENARIOS

from dgbench.kernels_cuda.workspace import Workspace

pytestmark = pytest.mark.machines_arithmetic

MANY: Final = 4500
"""Vertices: enough for every loop that shares out its work to do so."""
THREADS: Final = (1, 2, 8)
ADDED_IN_PARTS: Final = {
    "dense_norm_backward", "dense_norm_forward", "evolve_gru_backward", "frame_dense_backward",
    "gru_scan_backward", "lstm_scan_backward", "time_lstm_backward",
}  # fmt: skip
"""Sums over all vertices in floats, of which each thread adds a part: the same to rounding."""
NOT_COMPARED: Final = frozenset({"time_items", "hand_out", "weighted_time", "ListCache.fetch"})
"""Entry points that write seconds, and a cache whose lock threads take in any order."""
KNOWN: Final = {name: arguments(entry) for name, entry in entry_points().items()}


def run_of(name: str, threads: int) -> list[tuple[str, Any]]:
    """(entry point, state of its outputs and its answer) of every call."""
    states: list[tuple[str, Any]] = []

    def watch(call: Call) -> Any:
        answer = call.run()
        if call.entry not in NOT_COMPARED and "CopyThread" not in call.entry:
            states.append((call.entry, state(call, answer)))
        return answer

    operators = [m for n, m in sys.modules.items() if n.startswith("dgbench.kernels_cuda.")]
    for workspace in (x for m in operators for x in vars(m).values() if isinstance(x, Workspace)):
        workspace.clear()  # no remains of the run before in what is not written
    before = torch.get_num_threads()
    try:
        torch.manual_seed(0)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(True)  # new tensors begin with known numbers
        with seen(watch):
            SCENARIOS[name](MANY)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)
    return states


def state(call: Call, answer: Any) -> Any:
    """The arrays that a call may have written, whole or as a digest, and its answer."""
    listed = zip(KNOWN[call.entry], call.given, strict=True)
    written = arrays_of([value for argument, value in listed if argument.writable])
    if call.entry in ADDED_IN_PARTS:
        return [array.copy() for array in written]
    parts = answer if isinstance(answer, (tuple, list)) else [answer]
    written += [one for one in parts if isinstance(one, np.ndarray)]
    return [hashlib.blake2b(array.tobytes()).hexdigest() for array in written], [
        one for one in parts if isinstance(one, (int, float))
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_results_do_not_depend_on_the_number_of_threads(name):
    alone = run_of(name, THREADS[0])
    for threads in THREADS[1:]:
        several = run_of(name, threads)
        assert [entry for entry, _ in several] == [entry for entry, _ in alone]
        for (entry, one), (_, other) in zip(alone, several, strict=True):
            if entry not in ADDED_IN_PARTS:
                assert one == other, f"{entry} on {threads} threads"
                continue
            for a, b in zip(one, other, strict=True):
                tolerance = 2e-5 if a.dtype == np.float32 else 1e-12
                scale = float(np.abs(a).max(initial=0)) or 1.0
                np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)
