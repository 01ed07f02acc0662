"""Settings of one system that take turns inside one process, step by step on the same frames.

What disturbs the machine then disturbs all of them, and ratios are formed turn by turn.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dgbench.runtime.errors import CheckFailed
from dgbench.runtime.statistics import paired_ratio, pooled_ratio
from dgbench.systems.base import RunContext, Workload
from dgbench.systems.base.compare import Ratio
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import TOLERANCE, open_trainer, relative
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import Trainer


@dataclass(frozen=True, slots=True)
class Truth:
    """What the reference answers in float64 on frame 0.

    Attributes:
        output: of the last snapshot. gradients: by name.
        allowed: relative deviation that is float32 rounding on this workload: `TOLERANCE`, or
            twice that of the reference in float32 where it is more, as with batch norms over
            columns that are nearly constant.
        data: the `data` field of a measurement.
    """

    output: Tensor
    gradients: dict[str, Tensor]
    allowed: float
    data: dict[str, Any]

    @classmethod
    def of(cls, task: Workload, context: RunContext) -> Truth:
        """Ask the reference in float64 and in float32."""
        plain = get_system("reference")
        found = []
        for system in (type(plain)(torch.float64), plain):
            trainer = open_trainer(system, task, context, None)
            data = describe(trainer.data)  # type: ignore[attr-defined]
            found.append(cls(trainer.evaluate(0), trainer.gradients(0), TOLERANCE, data))
            trainer.close()
        exact, rounded = found
        noise = exact.gap(rounded.output, rounded.gradients)
        return replace(exact, allowed=max(TOLERANCE, 2 * noise))

    def gap(self, output: Tensor, gradients: Mapping[str, Tensor]) -> float:
        """Relative deviation of an output, or of all gradients as one vector if that is more."""
        flat = [
            torch.cat([of[name].double().flatten() for name in self.gradients])
            for of in (gradients, self.gradients)
        ]
        return max(relative(output, self.output), relative(*flat))

    def check(self, name: str, trainer: Trainer) -> float:
        """The gap of a trainer; raises CheckFailed where it is more than rounding."""
        gap = self.gap(trainer.evaluate(0), trainer.gradients(0))
        if not gap <= self.allowed:
            raise CheckFailed(
                f"'{name}' deviates from the reference by {gap:.2g}, allowed are {self.allowed:.2g}"
            )
        return gap


def take_turns(
    trainers: Mapping[str, Trainer], least: int, budget_s: float
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds of each step by setting, and the bytes that a step sends (mean of the first)."""
    found: dict[str, list[float]] = {name: [] for name in trainers}
    sent: dict[str, int] = {}
    frames = next(iter(trainers.values())).num_frames
    names = list(trainers)
    begin, turn = time.perf_counter(), -2  # two turns warm up
    while turn < least or time.perf_counter() - begin < budget_s:
        if turn == 0:
            for trainer in trainers.values():
                trainer.meter.reset()
        for name in names if turn % 2 == 0 else reversed(names):
            start = time.perf_counter()
            trainers[name].step((turn + 2) % frames)
            if turn >= 0:
                found[name].append(time.perf_counter() - start)
        turn += 1
        if turn == least:  # the same frames in every run
            for name, trainer in trainers.items():
                sent[name] = trainer.meter.counters["bytes_h2d_counted"] // least
    return found, sent


def gains(name: str, slow: Sequence[float], fast: Sequence[float]) -> dict[str, float]:
    """Values of a row: `gain`, `low` and `high` of this name, from the times of paired turns.

    Order statistics bound the median ratio, since single turns have outliers; fewer than six turns
    have no interval.
    """
    ratio = paired_ratio(slow, fast, method="sign")
    found = {f"gain {name}": ratio.value}
    if ratio.low is not None and ratio.high is not None:
        found |= {f"low {name}": ratio.low, f"high {name}": ratio.high}
    return found


def gain_of(rows: Sequence[Any], name: str) -> Ratio:
    """A gain over the rounds; with one round, the interval over its turns."""
    values = [row.values[f"gain {name}"] for row in rows]
    pooled = pooled_ratio([(values, [1.0] * len(values))])
    low, high = pooled.low, pooled.high
    if len(rows) == 1:
        low, high = (rows[0].values.get(f"{end} {name}") for end in ("low", "high"))
    return Ratio(
        value=pooled.value,
        low=low,
        high=high,
        n=pooled.n,
        rows=[row.id for row in rows],
        deviation=max(row.deviation["output"] for row in rows),
        twin=any(bool(row.data.get("twin")) for row in rows),
    )
