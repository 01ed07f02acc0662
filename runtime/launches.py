"""Kernels and runtime calls of a call on a device, as torch's profiler records them."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass
class KernelLaunch:
    """Launches of one kernel; None where the profiler did not say.

    Attributes:
        name: without template arguments. seconds: of all launches together.
        registers: of a thread. shared: bytes of a block. occupancy: share of a processor's warps.
    """

    name: str
    seconds: float
    count: int
    registers: int | None = None
    shared: int | None = None
    occupancy: float | None = None


RUNTIME_CALLS = {
    "graphs": ("cudaGraphLaunch",),
    "copies": ("cudaMemcpyAsync", "cudaMemcpy"),
    "waits": ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
    "allocations": ("cudaMalloc", "cudaFree", "cudaHostAlloc"),
}
"""Kind -> calls of the runtime that cost the host time beside launches."""


def profile_call(call: Callable[[], object]) -> dict[str, Any]:
    """The profiler's trace of one call, the device included."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "trace.json"
        seen.export_chrome_trace(str(path))
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def read_trace(trace: dict[str, Any]) -> list[KernelLaunch]:
    """Kernels of a trace, those of one name and shape together, the longest first."""
    found: dict[tuple[str, int | None], KernelLaunch] = {}
    for event in trace.get("traceEvents", ()):
        if event.get("cat") != "kernel":
            continue
        facts = event.get("args", {})
        registers, occupied = (
            facts.get(key) for key in ("registers per thread", "est. achieved occupancy %")
        )
        name = short_name(str(event.get("name", "")))
        share = None if occupied is None else float(occupied) / 100
        one = found.setdefault(
            (name, registers),
            KernelLaunch(name, 0.0, 0, registers, facts.get("shared memory"), share),
        )
        one.seconds += 1e-6 * float(event.get("dur", 0.0))
        one.count += 1
    return sorted(found.values(), key=lambda one: -one.seconds)


def count_calls(trace: dict[str, Any]) -> dict[str, int]:
    """Calls of the CUDA runtime in a trace by kind."""
    names = Counter(
        event.get("name")
        for event in trace.get("traceEvents", ())
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
    )
    return {kind: sum(names[name] for name in called) for kind, called in RUNTIME_CALLS.items()}


def short_name(name: str) -> str:
    """`void space::kernel<int>(float*)` as `kernel`."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", name, maxsplit=1)[0].rpartition("::")[2]
