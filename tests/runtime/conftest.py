"""Settings for the tests of the runtime."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from os_threads import copy_threads


@pytest.fixture(autouse=True)
def no_copy_thread_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does to a link, its thread has ended when the test has."""
    yield
    if "transfer" not in request.path.name:  # opens no link, and the look is costly
        return
    if copy_threads():  # a link that only the collector can reach ends its thread when it goes
        gc.collect()
    assert copy_threads() == 0
