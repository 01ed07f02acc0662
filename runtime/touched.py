"""Record of what this process touched: device, data and libraries.

A plan says what was asked for; the process that did the work says what it reached. Work on a
device is what torch has allocated there and how often the compiled operators were given one of its
streams. A CUDA context, an event or a look at the driver is no work. Like `errors` and `meter`
this module imports nothing of dgbench.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_cuda: Counter[str] = Counter()
_opened: dict[tuple[str, str, float, bool], None] = {}
_measured: dict[str, Any] = {}
_compared: dict[str, float] = {"depth": 0, "seconds": 0.0}
_others: dict[int, int] = {}
_joined: Counter[str] = Counter()


def clear() -> None:
    """Begin the record anew, as at the start of a process that is a fork of another."""
    _cuda.clear()
    _opened.clear()
    _measured.clear()
    _others.clear()
    _joined.clear()
    _compared.update(depth=0, seconds=0.0)


def note_launch() -> None:
    """A compiled operator was given a stream of a CUDA device."""
    _cuda["launches"] += 1


def note_opened(dataset: str, kind: str, scale: float = 1.0, *, bundled: bool = False) -> None:
    """Data was opened.

    Args:
        dataset: name of its card.
        kind: `real`, `subset` or `twin`.
        scale: size factor of a twin.
        bundled: whether it is a copy that dgbench carries.
    """
    _opened[dataset, kind, float(scale), bundled] = None


def end_measurement() -> None:
    """Mark the end of the measurement: memory and work of the later comparison do not count."""
    if not _measured:
        peak = _peak_resident() + sum(_others.values())
        _measured.update(cuda=_cuda + _torch_work(), peak_rss_bytes=peak)


@contextmanager
def comparing() -> Iterator[None]:
    """Time within is spent on comparing results with a reference; may be nested, and decorate."""
    begin = time.perf_counter()
    _compared["depth"] += 1
    try:
        yield
    finally:
        _compared["depth"] -= 1
        if not _compared["depth"]:
            _compared["seconds"] += time.perf_counter() - begin


def add_rank(record: Mapping[str, Any]) -> None:
    """Take in the `record` of a rank that this process has launched."""
    _joined["processes"] += 1
    for name, count in record.get("cuda", {}).items():
        _cuda[name] += int(count)
    for data in record.get("data", ()):
        note_opened(**data)


def add_process(pid: int) -> None:
    """Count the memory of another process that works for this one: the most that it held so far."""
    _joined["processes"] += pid not in _others
    _others[pid] = _peak_resident(str(pid))


def record() -> dict[str, Any]:
    """Everything touched so far, of this process and of its ranks that have ended.

    Returns:
        `device`: `cuda` where work reached one, else `cpu`; `cuda`: `launches` of the compiled
        operators, `allocations` and `peak_bytes` of torch, absent without a device; `data`: what
        was opened, each with `dataset`, `kind`, `scale` and `bundled`; `peak_rss_bytes` up to
        the end of the measurement, where that was said; `check_s`: seconds of `comparing`;
        `joined`: processes that worked for this one, where there were some.
    """
    cuda = _measured["cuda"] if _measured else _cuda + _torch_work()
    found: dict[str, Any] = {"device": "cuda" if cuda else "cpu"}
    if cuda:
        found["cuda"] = dict(cuda)
    found["data"] = [
        dict(zip(("dataset", "kind", "scale", "bundled"), opened, strict=True))
        for opened in _opened
    ]
    if _measured:
        found["peak_rss_bytes"] = _measured["peak_rss_bytes"]
    if _joined["processes"]:
        found["joined"] = _joined["processes"]
    if _compared["seconds"]:
        found["check_s"] = _compared["seconds"]
    return found


def libraries() -> dict[str, str]:
    """Versions of the packages that this process has loaded, by the name they are imported by."""
    found = {}
    for name, module in list(sys.modules.items()):
        if "." in name or name.startswith("_") or name in sys.stdlib_module_names:
            continue
        version = getattr(module, "__version__", None)
        if isinstance(version, str) and name != "dgbench":
            found[name] = str(version)  # torch has a class of its own
    return dict(sorted(found.items()))


def _peak_resident(process: str = "self") -> int:
    """Most memory that a process held so far, bytes; 0 where the system does not tell."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as file:
            lines = [line for line in file if line.startswith("VmHWM:")]
        return int(lines[0].split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        return 0


def _torch_work() -> Counter[str]:
    """Allocations on all devices, as torch's allocator counts them."""
    torch = sys.modules.get("torch")
    work: Counter[str] = Counter()
    if torch is None or not torch.cuda.is_initialized():
        return work
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        work["allocations"] += int(stats.get("allocation.all.allocated", 0))
        work["peak_bytes"] += int(stats.get("allocated_bytes.all.peak", 0))
    return +work
