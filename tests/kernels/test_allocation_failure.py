"""Memory that runs out half way ends nothing and leaves every structure as it was.

Run as a program, `python test_allocation_failure.py OUT THREADS`, with `failing_allocations.cpp`
compiled and preloaded, this is the campaign itself: each allocation of a call fails in turn, the
last of them never, and the scenarios go on with what the call gave then.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from entry_calls import Call, entry_points, seen
from entry_scenarios import SCENARIOS

from dgbench.kernels_cuda.aggregate import spmm
from dgbench.kernels_cuda.build_info import build_info
from dgbench.kernels_cuda.csr import Csr

COMPILER: Final = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
FEW, MANY, HUB = 100, 6000, 40_000  # vertices: pools grow, loops are shared out, a row is cut
MAX_ALLOCATIONS = 400  # of a call that fail in turn
DROPPED: Final = frozenset({"FrameProduct.add", "FrameProductDouble.add"})
"""Methods that leave half of what they add: who builds such a product drops it at a failure."""
METHODS: Final = entry_points()  # as they are when nobody watches them
SHIM = ctypes.CDLL(None)


def state_of(owner: Any) -> list[Any]:
    """All that an object shows of itself."""
    name = type(owner).__name__
    if name == "TemporalStore":
        counts = [getattr(owner, one) for one in dir(owner) if one.startswith("num_")]
        shown = [counts, owner.last_time, METHODS["TemporalStore.deleted"](owner)]
        for vertex in range(owner.num_vertices):
            size = METHODS["TemporalStore.degree"](owner, vertex)
            row = [np.empty(size, dtype) for dtype in (np.int64, np.int64, np.float64)]
            METHODS["TemporalStore.neighbours"](owner, vertex, *row)
            shown += row
        return shown
    if name.startswith("SegmentTree"):
        weights = np.empty(FEW, np.int64 if name == "SegmentTreeInt" else np.float64)
        METHODS[f"{name}.weights"](owner, weights)
        return [owner.total, weights]
    if name == "RowCache":
        return [METHODS[f"RowCache.{one}"](owner) for one in ("order", "hits")]
    return []


class Probe:
    """Lets each allocation of the first call of each entry point fail, the last of them never.

    Attributes:
        failed: allocations by entry point. harm: what was changed by them.
    """

    def __init__(self) -> None:
        self.failed: dict[str, int] = {}
        self.harm: list[str] = []

    def __call__(self, call: Call) -> Any:
        method = call.owner is not None and torch.get_num_threads() > 1  # one thread tries these
        if call.entry in self.failed or call.entry in DROPPED or method:
            return call.run()
        print(call.entry, flush=True)  # the last one, where the process ends
        self.failed[call.entry] = 0
        before = pickle.dumps(state_of(call.owner))
        for count in range(MAX_ALLOCATIONS):
            signal.alarm(20)  # ends what hangs
            SHIM.fail_after(ctypes.c_long(count))
            try:
                answer = call.run()
            except MemoryError:
                self.failed[call.entry] += 1
            else:
                return answer
            finally:
                SHIM.fail_after(ctypes.c_long(-1))
            if pickle.dumps(state_of(call.owner)) != before:
                self.harm.append(f"{call.entry} changed by the failure of allocation {count}")
        return call.run()


def main() -> None:
    threads = int(sys.argv[2])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)  # new tensors begin with known numbers
    gc.freeze()
    gc.disable()
    probe = Probe()
    with seen(probe):
        if threads > 1:  # a product with a row so long that several threads add it up
            indptr = torch.tensor([0, *range(HUB, HUB + 20_001)])
            indices = torch.arange(HUB + 20_000, dtype=torch.int32) % HUB
            spmm(Csr(indptr, indices, HUB), torch.ones(HUB, 3))
        for run in SCENARIOS.values():
            run(FEW if threads == 1 else MANY)
    signal.alarm(0)
    Path(sys.argv[1]).write_text(json.dumps([probe.failed, probe.harm]))


ALLOCATES: Final = {
    1: "TemporalStore.insert TemporalStore.add_vertices TemporalStore.delete_edges "
    "TemporalStore.drop TemporalStore.older TemporalStore.reload RowCache.lookup RowCache.update "
    "RowCache.grow SegmentTreeInt.__init__ ListCache.__init__ build_tcsr transpose weighted_keys "
    "take_rows EdgeSnapshots.fill",
    4: "spmm aggregate_parts aggregate_parts_scatter build_edge_table count_grids count_groups "
    "EdgeSnapshots.__init__ induce label_sweep merge_exclusive sample_roots sample_subgraphs "
    "sample_tcsr temporal_sample trace_rows",
}


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs a compiler")
@pytest.mark.skipif(
    build_info()["cpu"]["sanitizer"] != "", reason="sanitizers bring an allocator of their own"
)
@pytest.mark.parametrize("threads", ALLOCATES)
def test_a_failed_allocation_changes_nothing_and_ends_nothing(threads, tmp_path):
    shim, out = tmp_path / "libfailing.so", tmp_path / "report.json"
    source = Path(__file__).with_name("failing_allocations.cpp")
    flags = ["-O1", "-std=c++17", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *flags, "-o", str(shim), str(source), "-ldl"], check=True)
    environment = os.environ | {"LD_PRELOAD": str(shim), "OMP_NUM_THREADS": str(threads)}
    program = [sys.executable, __file__, str(out), str(threads)]
    subprocess.run(program, check=True, env=environment, timeout=300)
    failed, harm = json.loads(out.read_text())
    assert not harm
    assert not [entry for entry in ALLOCATES[threads].split() if not failed[entry]]


if __name__ == "__main__":
    main()
