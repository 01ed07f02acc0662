"""The machine's own limits, measured in the same run as the results.

Three rates bound what any system here can do: copying memory, moving data to the device and
multiplying matrices. They are measured with torch's own operations, as anyone could.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

GB = 1e9


def measure_limits(device: str = "cpu", *, budget_s: float = 2.0) -> dict[str, float]:
    """Measure the limits of this machine; under 3 s on a CPU.

    Args:
        device: `cpu`, or `cuda` to add the device's and the transfer's limits.
        budget_s: seconds for all measurements of the CPU together.

    Returns:
        `copy_gbs_1`, `copy_gbs_all` (GB/s read plus written, one and all threads of torch),
        `sgemm_gflops_1`, `sgemm_gflops_all`, `threads`; on CUDA also `device_copy_gbs`,
        `h2d_gbs`, `d2h_gbs` (pinned memory) and `device_sgemm_gflops`. 1 GB is 1e9 bytes.
    """
    threads = torch.get_num_threads()
    share = budget_s / 4
    found: dict[str, float] = {"threads": float(threads)}
    # 128 MiB each: far beyond any cache, and still there on a small machine.
    source = torch.ones(32 << 20, dtype=torch.float32)
    target = torch.empty_like(source).copy_(source)
    left, right = torch.rand(768, 768), torch.rand(768, 768)
    product = torch.empty(768, 768)
    moved, work = 2 * source.nbytes, 2 * 768**3
    try:
        for name, count in (("1", 1), ("all", threads)):
            torch.set_num_threads(count)
            found[f"copy_gbs_{name}"] = moved / GB / _best(lambda: target.copy_(source), share)
            rate = work / GB / _best(lambda: torch.mm(left, right, out=product), share)
            found[f"sgemm_gflops_{name}"] = rate
    finally:
        torch.set_num_threads(threads)
    if device.startswith("cuda"):
        found.update(_cuda_limits())
    return found


def _best(step: Callable[[], object], budget_s: float) -> float:
    """Seconds of the fastest of at least three calls: a limit is what the machine can do."""
    step()
    best, end = float("inf"), time.perf_counter() + budget_s * 0.8
    count = 0
    while count < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
        count += 1
    return best


def _cuda_limits() -> dict[str, float]:
    def timed(step: Callable[[], object]) -> float:
        def synced() -> None:
            step()
            torch.cuda.synchronize()

        return _best(synced, 0.2)

    count = 64 << 20
    there = torch.ones(count, device="cuda")
    other = torch.empty_like(there)
    here = torch.ones(count).pin_memory()
    square = torch.rand(8192, 8192, device="cuda")
    result = torch.empty_like(square)
    return {
        "device_copy_gbs": 2 * there.nbytes / GB / timed(lambda: other.copy_(there)),
        "h2d_gbs": here.nbytes / GB / timed(lambda: there.copy_(here, non_blocking=True)),
        "d2h_gbs": here.nbytes / GB / timed(lambda: here.copy_(there, non_blocking=True)),
        "device_sgemm_gflops": 2
        * 8192**3
        / GB
        / timed(lambda: torch.mm(square, square, out=result)),
    }
