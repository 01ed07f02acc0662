"""Memory of this machine that a process may use: also below the limits of control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

PROC = Path("/proc/self")
_FILES = {
    "cgroup2": ("memory.max", "memory.current", ""),
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
"""Limit, usage, and prefix of the numbers in memory.stat that count groups below, by version."""


def memory_limit(proc: Path = PROC) -> int:
    """Bytes that this process may use: the machine's memory, or a control group's limit below it.

    Args:
        proc: folder of the process in /proc.
    """
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _groups(proc))])


def available_memory(proc: Path = PROC) -> int:
    """Bytes that can still be taken: what is free, or what a control group leaves.

    Args:
        proc: folder of the process in /proc.
    """
    left = [max(0, limit - used) for limit, used in _groups(proc)]
    return min([psutil.virtual_memory().available, *left])


def _groups(proc: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each control group that the process is in, nested ones first.

    Pages of files are no use: the kernel drops them where memory is short.
    """
    for version, folder, top in _places(proc):
        limit_file, usage_file, prefix = _FILES[version]
        for group in (folder, *folder.parents):
            limit, usage = _read(group / limit_file), _read(group / usage_file)
            if limit.isdigit() and usage.isdigit():
                pairs = (line.split() for line in _read(group / "memory.stat").splitlines())
                stat = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
                files = sum(stat.get(f"{prefix}{name}_file", 0) for name in ("active", "inactive"))
                yield int(limit), max(0, int(usage) - files)
            if group == top:
                break


def _places(proc: Path) -> Iterator[tuple[str, Path, Path]]:
    """Version, folder of the process's group and top folder of each hierarchy that may limit it."""
    paths = {}
    for line in _read(proc / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = path
    for line in _read(proc / "mountinfo").splitlines():
        mount, _, system = line.partition(" - ")
        version, _, options = system.split(" ", 2)
        if version not in paths or (version == "cgroup" and "memory" not in options.split(",")):
            continue
        root, top = mount.split(" ")[3:5]
        group = Path(paths[version])
        # A container may show its own group as the top folder, and name it as its host does.
        inside = group.relative_to(root) if group.is_relative_to(root) else Path()
        if ".." not in inside.parts:
            yield version, Path(top) / inside, Path(top)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
