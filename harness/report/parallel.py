"""Work on several things side by side in forked processes: drawing is all of a report's time."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final

from dgbench.harness.signals import die_with_parent
from dgbench.runtime.errors import DgbenchError

log = logging.getLogger(__name__)

PATIENCE_S: Final = 900.0
"""Seconds without a result after which the work hangs."""

_work: Callable[[int], Any] | None = None  # forked processes find their work here


def side_by_side(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """`work` of every item, in order; one process per processor, results are pickled.

    Where nothing can be forked, or a process is lost, what is left is done here instead. What
    `work` raises is raised.

    Raises:
        DgbenchError: no result came for `PATIENCE_S`.
    """
    global _work
    workers = min(len(items), len(os.sched_getaffinity(0)) if _can_fork() else 1)
    if workers < 2:
        return [work(item) for item in items]
    _work = lambda place: work(items[place])  # noqa: E731
    done: dict[int, Any] = {}
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _begin, (os.getpid(),))
    try:
        places = {pool.submit(_forked, place): place for place in range(len(items))}
        while places:
            ready, _ = wait(places, timeout=PATIENCE_S, return_when=FIRST_COMPLETED)
            if not ready:
                raise DgbenchError(
                    f"a process that works on the report hangs: no result for {PATIENCE_S:.0f} s"
                )
            for future in ready:
                done[places.pop(future)] = future.result()
    except (BrokenProcessPool, pickle.PicklingError) as error:
        log.warning("side by side failed (%s), going on one by one", error)
    except BaseException:  # Ctrl-C, SIGTERM, a hang: Python would wait for what they are at
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        _work = None
        pool.shutdown(wait=False, cancel_futures=True)
    return [done[n] if n in done else work(item) for n, item in enumerate(items)]


def _begin(parent: int) -> None:
    """Leave Ctrl-C to the process that forked this one, end on SIGTERM and when that one ends."""
    die_with_parent()
    if os.getppid() != parent:  # it ended before
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _forked(place: int) -> Any:
    if _work is None:
        raise RuntimeError("a process was forked before its work was known")
    return _work(place)


def _can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods() and hasattr(os, "sched_getaffinity")
