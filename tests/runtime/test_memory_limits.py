"""Memory that a process may use, below the limits of control groups of both versions."""

from __future__ import annotations

import psutil
import pytest

from dgbench.runtime.memory import available_memory, memory_limit

MIB = 1 << 20
V1 = ("cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
V2 = ("cgroup2", "memory.max", "memory.current", "")
NO_LIMIT = {"cgroup": str((1 << 63) - 4096), "cgroup2": "max"}


@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    ("limits", "mounted", "expected"),
    [
        ({"": None, "a": 64, "a/b": None}, "", 64),  # of a parent
        ({"": None, "a": 128, "a/b": 64}, "", 64),  # of the group itself
        ({"": 32, "a": 64, "a/b": 64}, "", 32),  # a container's own, seen as the top folder
        ({"": None, "a": None, "a/b": None}, "", None),
        ({"": 64}, "/a/b", 64),  # a container that names its group as its host does
        ({"": 64}, "/a/b/c", 64),  # mounted from elsewhere
    ],
)
def test_the_lowest_limit_of_all_groups_holds(tmp_path, version, limits, mounted, expected):
    kind, limit_file, usage_file, prefix = version
    top = tmp_path / "top"
    for name, limit in limits.items():
        group = top / name
        group.mkdir()
        text = NO_LIMIT[kind] if limit is None else str(limit * MIB)
        (group / limit_file).write_text(f"{text}\n")
        (group / usage_file).write_text(f"{24 * MIB}\n")
        # What was read from files may be dropped, what is held in memory not.
        numbers = {"anon": 8, "inactive_file": 12, "active_file": 4}
        lines = [f"{prefix}{key} {value * MIB}" for key, value in numbers.items()]
        (group / "memory.stat").write_text("\n".join(lines))
    controllers = "memory" if kind == "cgroup" else ""
    (tmp_path / "cgroup").write_text(f"9:name=systemd:/x\n4:{controllers}:/a/b\n")
    (tmp_path / "mountinfo").write_text(
        "22 31 0:27 / /proc rw shared:5 - proc proc rw\n"
        f"32 31 0:29 / {tmp_path} rw - cgroup cgroup rw,cpu\n"
        f"35 31 0:32 {mounted or '/'} {top} rw,relatime shared:9 - {kind} {kind} rw,memory\n"
    )
    total = psutil.virtual_memory().total
    assert memory_limit(tmp_path) == (total if expected is None else expected * MIB)
    if expected is not None:
        assert available_memory(tmp_path) == (expected - 8) * MIB


def test_without_control_groups_the_machine_counts(tmp_path):
    assert memory_limit(tmp_path) == psutil.virtual_memory().total
    assert 0 < available_memory() <= memory_limit() <= psutil.virtual_memory().total
