"""Memory that runs out half way leaves every structure as it was, and a second try gives the rest.

Every allocation of a call fails in turn (`allocation_probe`), the last of them never: what the call
then gives must be what it gives where nothing ever failed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest
from entry_calls import entry_points

from dgbench.kernels_cuda.build_info import build_info

HERE: Final = Path(__file__).parent
COMPILER: Final = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or COMPILER is None,
        reason="needs a compiler, and a library that is loaded before all others",
    ),
    pytest.mark.skipif(
        build_info()["cpu"]["sanitizer"] != "", reason="sanitizers bring an allocator of their own"
    ),
]

ENDS_THE_PROCESS: Final = frozenset(
    {
        # Inside a parallel region an exception has nowhere to go.
        "aggregate_parts", "aggregate_parts_scatter", "build_edge_table", "count_grids",
        "count_groups", "count_supergraph", "DifferenceMerge.__init__", "EdgeSnapshots.__init__",
        "EdgeSnapshots.count", "EdgeSnapshots.fill", "fill_supergraph", "label_sweep",
        "place_grids", "sample_roots", "sort_grids", "spmm", "take_tcsr", "trace_rows",
        # While nanobind takes a sequence of arrays out of a list, or makes an object.
        "CopyThread.submit", "SegmentTreeFloat.__init__", "TemporalStore.__init__",
        "count_pieces", "count_shared", "count_union", "mark_presence", "merge_exclusive",
        "pack_pieces", "split", "split_traced", "unite", "unpack_offsets",
    }
)  # fmt: skip
"""Where `bad_alloc` ends the process. None of them is a method that changes a structure."""

MEASURED: Final = frozenset({"weighted_time"})
"""What it answers is seconds."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What became of the calls of each entry point."""
    folder = tmp_path_factory.mktemp("allocations")
    shim, out = folder / "libfailing.so", folder / "report.json"
    source = HERE / "failing_allocations.cpp"
    flags = ["-O1", "-std=c++17", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *flags, "-o", str(shim), str(source), "-ldl"], check=True)
    environment = os.environ | {"LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, str(HERE / "allocation_probe.py"), str(out)]
    subprocess.run(program, check=True, env=environment, timeout=300)
    found = defaultdict(list)
    for report in json.loads(out.read_text()):
        found[report["entry"]].append(report)
    return found


def test_a_failed_allocation_changes_nothing(reports):
    wrong = {
        entry: lines
        for entry, some in reports.items()
        if (lines := [line for one in some for line in one["wrong"] if line != "enough"])
        and entry not in ENDS_THE_PROCESS | MEASURED
    }
    assert not wrong


def test_every_structure_had_its_allocations_fail(reports):
    failed = {entry: sum(one["failed"] for one in some) for entry, some in reports.items()}
    for entry in (
        "TemporalStore.insert", "TemporalStore.add_vertices", "TemporalStore.delete_edges",
        "TemporalStore.drop", "TemporalStore.older", "TemporalStore.reload", "RowCache.lookup",
        "RowCache.update", "RowCache.grow", "SegmentTreeInt.__init__", "ListCache.__init__",
        "build_tcsr", "transpose", "weighted_keys", "take_rows",
    ):  # fmt: skip
        assert failed[entry] > 0, entry
    assert sum(failed.values()) > 500


def test_only_what_has_to_ends_the_process(reports):
    died = {
        entry
        for entry, some in reports.items()
        if any(line.startswith("dies") for one in some for line in one["wrong"])
    }
    assert died <= ENDS_THE_PROCESS
    assert set(entry_points()) >= ENDS_THE_PROCESS
