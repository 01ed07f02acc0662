"""First values of parameters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.RLock()


@contextmanager
def drawn_by(seed: int) -> Iterator[None]:
    """Draw first values by a seed, whatever other threads draw; torch's own draws go on afterwards.

    Modules draw theirs from the one generator that a process has.
    """
    with _lock, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
