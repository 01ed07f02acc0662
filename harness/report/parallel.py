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

log = logging.getLogger(__name__)

PATIENCE_S: Final = 300.0

_work: Callable[[int], Any] | None = None  # forked processes find their work here


def side_by_side(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """`work` of every item, in order; one process per processor, results are pickled.

    Where nothing can be forked, or a process is lost, or none comes back for `PATIENCE_S`, what is
    left is done here instead. What `work` raises is raised.
    """
    global _work
    workers = min(len(items), len(os.sched_getaffinity(0)) if _can_fork() else 1)
    if workers < 2:
        return [work(item) for item in items]
    _work = lambda place: work(items[place])  # noqa: E731
    done: dict[int, Any] = {}
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _leave_signals)
    try:
        places = {pool.submit(_forked, place): place for place in range(len(items))}
        while places:
            ready, _ = wait(places, timeout=PATIENCE_S, return_when=FIRST_COMPLETED)
            if not ready:
                raise TimeoutError(f"nothing came back for {PATIENCE_S:.0f} s")
            for future in ready:
                done[places.pop(future)] = future.result()
    except (BrokenProcessPool, TimeoutError, pickle.PicklingError) as error:
        log.warning("side by side failed (%s), going on one by one", error)
    except BaseException:  # Ctrl-C, SIGTERM: Python would wait for what they are at
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        _work = None
        pool.shutdown(wait=False, cancel_futures=True)
    return [done[n] if n in done else work(item) for n, item in enumerate(items)]


def _leave_signals() -> None:
    """Leave Ctrl-C to the process that forked this one, and end at once on SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _forked(place: int) -> Any:
    if _work is None:
        raise RuntimeError("a process was forked before its work was known")
    return _work(place)


def _can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods() and hasattr(os, "sched_getaffinity")
