"""Facts about this machine. Nothing here starts a thread or touches a GPU's context."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from dgbench.runtime.memory import memory_limit


def machine_facts() -> dict[str, Any]:
    """Everything worth keeping beside a result: cpu, memory, system, compiler, GPUs."""
    return {
        "cpu": cpu_facts(),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_limit_bytes": memory_limit(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "compiler": compiler("c++") or compiler("g++"),
        "nvcc": compiler("nvcc"),
        "gpus": gpu_facts(),
    }


def cpu_facts() -> dict[str, Any]:
    """Model, cores, usable cores, frequency governor and vector widths."""
    found: dict[str, Any] = {
        "model": platform.processor() or "unknown",
        "cores": psutil.cpu_count(logical=False) or 0,
        "threads": psutil.cpu_count() or 0,
        "usable": usable_cores(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not offered",
        "flags": [],
    }
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            found["model"] = value.strip()
        elif key.strip() == "flags":
            words = set(value.split())
            found["flags"] = [
                w for w in ("avx", "avx2", "fma", "avx512f", "amx_tile") if w in words
            ]
            break
    if sys.platform == "darwin":
        found["model"] = run_line(["sysctl", "-n", "machdep.cpu.brand_string"]) or found["model"]
    return found


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpu_facts() -> list[dict[str, Any]]:
    """Name, memory, driver and power limit of each GPU by NVML; empty without a driver."""
    from dgbench.harness.probes.nvml import Nvml

    with Nvml() as nvml:
        return nvml.describe()


def gpu_count() -> int:
    """GPUs that torch could use: NVML's count, 0 where torch was built without CUDA."""
    import torch

    if torch.version.cuda is None:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(gpu_facts())
    if visible is None:
        return count
    return min(count, len([part for part in visible.split(",") if part.strip() not in ("", "-1")]))


def compiler(name: str) -> str:
    """First line of `<name> --version` (the last line for nvcc), or "" where it is missing."""
    if shutil.which(name) is None:
        return ""
    text = run_line([name, "--version"], whole=True)
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1 if name == "nvcc" else 0].strip()


def run_line(command: list[str], *, whole: bool = False, cwd: Path | None = None) -> str:
    """Output of a short command (its first line, or all of it); "" where it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, cwd=cwd, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    if done.returncode != 0:
        return ""
    return done.stdout if whole else done.stdout.partition("\n")[0].strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
