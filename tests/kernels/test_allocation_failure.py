"""Memory that runs out half way leaves every structure as it was, and a second try gives the rest.

Every allocation of a call fails in turn (`allocation_probe`), the last of them never: what the call
then gives must be what it gives where nothing ever failed. No call ends the process.
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

from dgbench.kernels_cuda.build_info import build_info

HERE: Final = Path(__file__).parent
SOURCES: Final = HERE.parents[1] / "kernels_cuda"
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

MEASURED: Final = frozenset({"weighted_time"})
"""Entry points that return seconds."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that lets allocations fail."""
    built = tmp_path_factory.mktemp("allocations") / "libfailing.so"
    source = HERE / "failing_allocations.cpp"
    flags = ["-O1", "-std=c++17", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *flags, "-o", str(built), str(source), "-ldl"], check=True)
    return built


def reports_of(shim: Path, threads: int) -> dict[str, list[dict[str, Any]]]:
    """Outcomes of the calls of each entry point."""
    out = shim.with_name(f"report{threads}.json")
    environment = os.environ | {"LD_PRELOAD": str(shim), "OMP_NUM_THREADS": str(threads)}
    program = [sys.executable, str(HERE / "allocation_probe.py"), str(out), str(threads)]
    subprocess.run(program, check=True, env=environment, timeout=300)
    found = defaultdict(list)
    for report in json.loads(out.read_text()):
        found[report["entry"]].append(report)
    return found


@pytest.fixture(scope="module")
def reports(shim: Path) -> dict[str, list[dict[str, Any]]]:
    """Of one thread."""
    return reports_of(shim, 1)


@pytest.fixture(scope="module")
def reports_of_threads(shim: Path) -> dict[str, list[dict[str, Any]]]:
    """Of four, on any machine."""
    return reports_of(shim, 4)


def wrong_of(reports: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    """By entry point: changed something, ended the process, gave something else afterwards."""
    return {
        entry: lines
        for entry, some in reports.items()
        if (lines := [line for one in some for line in one["wrong"] if line != "enough"])
        and entry not in MEASURED
    }


def failed_of(reports: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """By entry point: allocations that failed."""
    return {entry: sum(one["failed"] for one in some) for entry, some in reports.items()}


@pytest.mark.nightly
def test_a_failed_allocation_changes_nothing_and_ends_nothing(reports):
    assert not wrong_of(reports)


@pytest.mark.nightly
def test_nor_does_one_of_several_threads(reports_of_threads):
    assert not wrong_of(reports_of_threads)


@pytest.mark.nightly
def test_every_structure_had_its_allocations_fail(reports):
    failed = failed_of(reports)
    for entry in (
        "TemporalStore.insert", "TemporalStore.add_vertices", "TemporalStore.delete_edges",
        "TemporalStore.drop", "TemporalStore.older", "TemporalStore.reload", "RowCache.lookup",
        "RowCache.update", "RowCache.grow", "SegmentTreeInt.__init__", "ListCache.__init__",
        "build_tcsr", "transpose", "weighted_keys", "take_rows", "EdgeSnapshots.fill",
    ):  # fmt: skip
        assert failed[entry] > 0, entry
    assert sum(failed.values()) > 500


@pytest.mark.nightly
def test_every_parallel_region_with_memory_of_its_own_had_it_fail(reports_of_threads):
    failed = failed_of(reports_of_threads)
    for entry in (
        "spmm", "aggregate_parts", "aggregate_parts_scatter", "build_edge_table", "count_grids",
        "count_groups", "EdgeSnapshots.__init__", "induce", "label_sweep", "merge_exclusive",
        "sample_roots", "sample_subgraphs", "sample_tcsr", "temporal_sample", "trace_rows",
    ):  # fmt: skip
        assert failed[entry] > 0, entry


def test_no_list_is_taken_by_a_conversion_that_may_not_throw():
    taken = [
        path.name
        for pattern in ("*.cpp", "*.hpp", "*.h", "*.cuh")
        for path in SOURCES.rglob(pattern)
        if "#include <nanobind/stl/vector.h>" in path.read_text()
    ]
    assert not taken
