"""Number of threads to compute with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


def default_threads() -> int:
    """Physical cores this process may run on; the logical ones where that is not known.

    Two threads of one core share its vector units, so more threads than cores only add noise.
    """
    import psutil

    usable = cores()
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))


def cores() -> int:
    """Logical cores this process may run on."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return usable or os.cpu_count() or 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for torch and the compiled operators, as many as before afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> AbstractContextManager[None]:
    """`threads(1)`."""
    return threads(1)
