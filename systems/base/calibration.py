"""Where what a system measured of a machine is kept, and what tells machines apart.

A calibration is a file of numbers that a system measures once (`dgbench calibrate`) and reads
when it trains. It belongs to one machine and one kind of device.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from dgbench.runtime.machine import cache_root, cpu_name
from dgbench.runtime.threads import one_thread

FOLDER = "calibration"
_ROOM = "set DGBENCH_CACHE to a folder with room to write"


def machine_of(device: str) -> dict[str, Any]:
    """Name of the processor or GPU that `device` (`cpu`, `cuda`) means, and torch's threads."""
    import torch

    if torch.device(device).type == "cuda":
        if not torch.cuda.is_available():
            return {"name": "no CUDA device"}
        return {"name": torch.cuda.get_device_name(torch.device(device))}
    return {"name": cpu_name(), "threads": torch.get_num_threads()}


def calibration_path(system: str, device: str) -> Path:
    """`<cache>/calibration/<system>/<machine>-<device>.json` for this machine.

    The number of threads is part of a CPU's name: kernels gain differently on two and on twenty.
    """
    machine = machine_of(device)
    words = [str(machine["name"])]
    if "threads" in machine:
        words.append(f"{machine['threads']}t")
    slug = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-") or "unknown"
    kind = device.partition(":")[0]
    return cache_root() / FOLDER / system / f"{slug}-{kind}.json"


def check_writable(path: Path) -> None:
    """Raise StoreError if `path` could not be written, so that nothing is measured in vain."""
    import tempfile

    from dgbench.runtime.errors import StoreError

    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise StoreError(
            f"'{path}' cannot be written: {error.strerror or error}", hint=_ROOM
        ) from error


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers see the old one or the whole new one.

    Raises:
        StoreError: the folder cannot be made or written.
    """
    import tempfile

    from dgbench.runtime.errors import StoreError

    name = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)  # mkstemp's 0600 would hide a shared cache from others
        os.replace(name, path)
    except OSError as error:
        if name is not None and os.path.exists(name):
            os.unlink(name)
        raise StoreError(
            f"'{path}' cannot be written: {error.strerror or error}",
            hint=_ROOM,
        ) from error


@one_thread()
def copy_rate(budget_s: float) -> float:
    """Bytes per second that one thread copies, read and written counted, at its best."""
    import torch

    source = torch.ones(16 << 20)
    target = torch.empty_like(source).copy_(source)
    best, end = float("inf"), time.perf_counter() + budget_s
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best
