"""Where a step's time goes on a device: kernels, launches, copies and waits, by torch's profiler.

For each workload and contender: milliseconds of a step as it runs otherwise, then, of a few steps
under the profiler, calls into the CUDA runtime per step, time on the device, and the kernels and
operators that take most. On a CPU there are operators only.

One JSON line per workload and contender goes to --out, a table to standard output.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

import torch
from gpu_timing import wait
from torch.profiler import ProfilerActivity, profile

from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.meter import Meter
from dgbench.runtime.statistics import median
from dgbench.systems.base import get_system
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODELS, workload

CONTENDERS: dict[str, tuple[str, dict[str, bool]]] = {
    "pipad": ("pipad", {}),
    "pipad, pipeline off": ("pipad", {"pipeline": False}),
    "pipad, cuda_graphs off": ("pipad", {"cuda_graphs": False}),
    "pygt": ("pygt", {}),
}
RUNTIME = {
    "launches": ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"),
    "graphs": ("cudaGraphLaunch",),
    "copies": ("cudaMemcpyAsync", "cudaMemcpy"),
    "waits": ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
    "allocations": ("cudaMalloc", "cudaFree", "cudaHostAlloc"),
}


def ready(name: str, graph: str, model: str, device: str, preset: str) -> Any:
    """A trainer that has made its steady steps possible: buffers, graphs, a tuner's choice."""
    system_name, switches = CONTENDERS[name]
    system = get_system(system_name)
    task = workload(BY_NAME[graph], model, preset)
    known = {t.name for t in system.techniques}
    if reasons := [f"no switch {s}" for s in switches if s not in known]:
        raise DgbenchError("; ".join(reasons))
    if reasons := system.unsupported(task, device):
        raise DgbenchError("; ".join(reasons))
    trainer = system.open(task, device=device, switches=switches, meter=Meter(device=device))
    trainer.prepare()
    for frame in range(6):
        trainer.step(frame % trainer.num_frames)
    return trainer


def timed(trainer: Any, device: str, seconds: float) -> tuple[list[float], int]:
    """Seconds of each of several steps, and the frame after them."""
    took: list[float] = []
    end, frame = time.monotonic() + seconds, 6
    while len(took) < 5 or (time.monotonic() < end and len(took) < 200):
        wait(device)
        start = time.perf_counter()
        trainer.step(frame % trainer.num_frames)
        wait(device)
        took.append(time.perf_counter() - start)
        frame += 1
    return took, frame


def profiled(trainer: Any, device: str, frame: int, steps: int) -> dict[str, Any]:
    """Profiler counts per step over `steps` steps."""
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as found:
        for number in range(steps):
            trainer.step((frame + number) % trainer.num_frames)
        wait(device)
    calls: Counter[str] = Counter()
    kernels: list[tuple[float, float, str]] = []
    operators: list[tuple[float, float, str]] = []
    for event in found.key_averages():
        calls[event.key] += event.count
        on_device = getattr(event, "self_device_time_total", 0)
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.append((on_device / steps, event.count / steps, event.key))
        else:
            operators.append((event.self_cpu_time_total / steps, event.count / steps, event.key))
    counted = {what: sum(calls[name] for name in names) / steps for what, names in RUNTIME.items()}
    return {
        **counted,
        "device_us": sum(us for us, _, _ in kernels),
        "kernels": sum(count for _, count, _ in kernels),
        "top_kernels": sorted(kernels, reverse=True)[:12],
        "top_operators": sorted(operators, reverse=True)[:12],
    }


def shown(graph: str, model: str, name: str, line: dict[str, Any]) -> list[str]:
    if "failed" in line:
        return [f"{graph:16}{model:12}{name:24}{line['failed']}"]
    text = [
        f"{graph:16}{model:12}{name:24}{line['step_ms']:8.3f} ms  device "
        f"{line['device_us'] / 1e3:7.3f} ms  kernels {line['kernels']:6.1f}  "
        + "  ".join(f"{what} {line[what]:.1f}" for what in RUNTIME)
    ]
    for title, key in (("kernel", "top_kernels"), ("operator", "top_operators")):
        for us, count, what in line[key][: 8 if name == "pipad" else 0]:
            text.append(f"    {title:9}{us:9.1f} us {count:7.1f} x  {what[:90]}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the rows, one JSON a line")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--datasets", nargs="*", default=["pems08"], choices=sorted(BY_NAME))
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS),
                        choices=list(CONTENDERS))  # fmt: skip
    parser.add_argument("--preset", default="full", choices=("quick", "full"))
    parser.add_argument("--steps", type=int, default=10, help="under the profiler")
    parser.add_argument("--seconds", type=float, default=60, help="begin nothing after this long")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; nothing to measure")
    end = time.monotonic() + options.seconds
    for graph in options.datasets:
        for model in options.models:
            for name in options.contenders:
                if time.monotonic() > end:
                    print(f"{graph} {model} {name}: out of time", flush=True)
                    continue
                line: dict[str, Any] = {"dataset": graph, "model": model, "contender": name}
                try:
                    trainer = ready(name, graph, model, options.device, options.preset)
                    took, frame = timed(trainer, options.device, 0.5)
                    line |= {"step_ms": 1e3 * median(took), "step_s": took}
                    line |= profiled(trainer, options.device, frame, options.steps)
                    line["notes"] = list(getattr(trainer, "notes", []))
                    line["report"] = dict(trainer.report())
                    trainer.close()
                except (DgbenchError, RuntimeError) as error:
                    line["failed"] = f"{type(error).__name__}: {error}"
                with open(options.out, "a") as file:
                    file.write(json.dumps(line) + "\n")
                print("\n".join(shown(graph, model, name, line)), flush=True)


if __name__ == "__main__":
    main()
