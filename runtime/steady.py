"""Timing a repeated step: how long it takes once it has settled."""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.precision import torch_settings

WINDOW = 3
"""Iterations whose median stands for "how long it takes now"."""

FALL = 0.05
"""Relative fall between two windows that still counts as warming up."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Samples of a settled step.

    Attributes:
        samples: seconds of each kept iteration, in order.
        warmup: iterations dropped at the beginning.
    """

    samples: list[float]
    warmup: int

    @property
    def time(self) -> float:
        """Median of the samples, seconds."""
        return statistics.median(self.samples)


@dataclass(frozen=True, slots=True)
class Loop:
    """Iterations and times of one call of `measure_steady`, as the harness itself counted them.

    Attributes:
        iterations, kept: calls of the step, and how many of them became samples.
        wall_s: seconds of all calls, by this module's clock, without what came between them.
        told_s: the same by the caller's clock. kept_s: those of the samples, by our clock.
        threads, settings: of torch when the last call was done (`runtime.precision`).
    """

    iterations: int
    kept: int
    wall_s: float
    told_s: float
    kept_s: float
    threads: int = 0
    settings: dict[str, Any] = field(default_factory=dict)


_LOOPS: deque[Loop] = deque(maxlen=1000)
_clock = time.perf_counter  # a plugin that puts another one into `time` does not reach this


def _torch_now() -> tuple[int, dict[str, Any]]:
    """Threads and settings of torch, where this process has it."""
    torch = sys.modules.get("torch")
    return (0, {}) if torch is None else (torch.get_num_threads(), torch_settings())


def seen_loops() -> list[Loop]:
    """The steady loops of this process, the last thousand, in order."""
    return list(_LOOPS)


def falling_warmup(samples: Sequence[float]) -> int:
    """Number of iterations at the beginning that count as warm-up.

    At least one (the first call pays for allocations and lazy set-up) and at most a third.
    Between these, iterations are dropped while the median of the next three is more than 5 %
    above the median of the three after them.
    """
    count = len(samples)
    if count < 2:
        return 0
    most = max(1, count // 3)
    dropped = 1
    while dropped < most:
        now = samples[dropped : dropped + WINDOW]
        later = samples[dropped + WINDOW : dropped + 2 * WINDOW]
        if not later or statistics.median(later) >= (1 - FALL) * statistics.median(now):
            break
        dropped += 1
    return dropped


def measure_steady(
    step: Callable[[], Any],
    *,
    budget_s: float,
    min_iters: int = 3,
    max_iters: int = 1000,
    sync: Callable[[], Any] | None = None,
    warmup_rule: Callable[[Sequence[float]], int] = falling_warmup,
    on_settled: Callable[[], Any] | None = None,
    between: Callable[[], Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Steady:
    """Call `step` until the budget is spent and return the settled samples.

    Args:
        step: one iteration, called without arguments.
        budget_s: seconds to aim for, warm-up included. At least `min_iters` samples are kept
            even if that takes longer; no iteration is begun that would end past the budget.
        min_iters, max_iters: fewest samples to keep, most iterations to run.
        sync: waits for the device (`torch.cuda.synchronize`); called inside the timed part.
        warmup_rule: samples -> how many to drop at the beginning.
        on_settled: called once after the first iteration (the least that is dropped), for
            instance to reset a meter.
        between: called before each iteration, outside of its time.
        clock: monotonic seconds.

    Raises:
        InvalidInputError: an argument is out of range.
    """
    if min_iters < 1 or max_iters < min_iters + 1:
        raise InvalidInputError(
            f"'min_iters' is {min_iters} and 'max_iters' {max_iters}; "
            "needed: 1 <= min_iters < max_iters"
        )
    gc.collect()
    samples: list[float] = []
    walls: list[float] = []
    begin = clock()
    while len(samples) < max_iters:
        if between is not None:
            between()
        start = clock()
        # One reading where the clocks are one: a process may lose its core between two.
        wall = start if clock is _clock else _clock()
        step()
        if sync is not None:
            sync()
        end = clock()
        walls.append((end if clock is _clock else _clock()) - wall)
        samples.append(end - start)
        if len(samples) == 1 and on_settled is not None:
            on_settled()
        if end - begin + samples[-1] > budget_s and len(samples) > min_iters:
            break
    dropped = min(warmup_rule(samples), len(samples) - min_iters)
    kept_s = math.fsum(walls[dropped:])
    kept, wall_s, told_s = len(walls) - dropped, math.fsum(walls), math.fsum(samples)
    loop = Loop(len(walls), kept, wall_s, told_s, kept_s, *_torch_now())
    _LOOPS.append(loop)
    return Steady(samples[dropped:], dropped)
