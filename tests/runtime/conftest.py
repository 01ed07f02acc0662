"""Settings for the tests of the runtime."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

TASKS = Path("/proc/self/task")


def copy_threads() -> int:
    """Threads of this process that copy for a link; 0 where the system does not tell."""
    names = []
    for task in TASKS.glob("*/comm"):
        with suppress(OSError):  # it ended meanwhile
            names.append(task.read_text().strip())
    return names.count("dgbench-copy")


@pytest.fixture(autouse=True)
def no_copy_thread_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does to a link, its thread has ended when the test has."""
    yield
    if "transfer" not in request.path.name:  # opens no link, and the look is costly
        return
    if copy_threads():  # a link that only the collector can reach ends its thread when it goes
        gc.collect()
    assert copy_threads() == 0
