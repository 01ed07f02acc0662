"""The machine's own limits, measured in the same run as the results.

Three rates bound what any system here can do: copying memory, moving data to the device and
multiplying matrices. They are measured with torch's own operations, as anyone could.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from dgbench.lab.table import Observation, observation


def measure_limits(device: str = "cpu", *, budget_s: float = 2.0) -> list[Observation]:
    """Measure the limits of this machine; under 3 s on a CPU.

    Args:
        device: `cpu`, or `cuda` to add the device's and the transfer's limits.
        budget_s: seconds for all measurements of the CPU together.

    Returns:
        `bandwidth` and `product_rate` (float32) by `place` and, on the host, by `using` (one, or
        all threads of torch), and `threads`.
    """
    threads = torch.get_num_threads()
    share = budget_s / 4
    found = [observation("threads", threads)]
    # 128 MiB each: far beyond any cache, and still there on a small machine.
    source = torch.ones(32 << 20, dtype=torch.float32)
    target = torch.empty_like(source).copy_(source)
    left, right = torch.rand(768, 768), torch.rand(768, 768)
    product = torch.empty(768, 768)
    moved, work = 2 * source.nbytes, 2 * 768**3
    try:
        for using, count in (("one", 1), ("all", threads)):
            torch.set_num_threads(count)
            place: dict[str, Any] = {"place": "host", "using": using}
            rate = moved / best_time(lambda: target.copy_(source), share)
            found.append(observation("bandwidth", rate, **place))
            rate = work / best_time(lambda: torch.mm(left, right, out=product), share)
            found.append(observation("product_rate", rate, **place))
    finally:
        torch.set_num_threads(threads)
    return found + (_cuda_limits() if device.startswith("cuda") else [])


def best_time(step: Callable[[], object], budget_s: float) -> float:
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


def _cuda_limits() -> list[Observation]:
    def timed(step: Callable[[], object]) -> float:
        def synced() -> None:
            step()
            torch.cuda.synchronize()

        return best_time(synced, 0.2)

    count = 64 << 20
    there = torch.ones(count, device="cuda")
    other = torch.empty_like(there)
    here = torch.ones(count).pin_memory()
    square = torch.rand(8192, 8192, device="cuda")
    result = torch.empty_like(square)
    copies = {
        "device": (2 * there.nbytes, lambda: other.copy_(there)),
        "host to device": (here.nbytes, lambda: there.copy_(here, non_blocking=True)),
        "device to host": (here.nbytes, lambda: here.copy_(there, non_blocking=True)),
    }
    found = [
        observation("bandwidth", moved / timed(copy), place=place)
        for place, (moved, copy) in copies.items()
    ]
    rate = 2 * 8192**3 / timed(lambda: torch.mm(square, square, out=result))
    return [*found, observation("product_rate", rate, place="device")]
