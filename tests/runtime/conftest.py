"""Settings for the tests of the runtime."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_copy_thread_is_left() -> Iterator[None]:
    """Whatever a test does to a link, its thread has ended when the test has."""
    yield
    left = [t for t in threading.enumerate() if t.name == "dgbench-copy"]
    for thread in left:  # of a link that was dropped, not closed: its end is under way
        thread.join(timeout=10)
    assert not [t.name for t in left if t.is_alive()]
