"""Quantities of races (`RaceRecord`) by dataset, part and contender, for figures and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Any

from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.runtime.statistics import geometric_mean
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, races, real
from dgbench.systems.dgc.experiments.race_runs import PARTS, PHASES, PLACED
from dgbench.systems.dgc.experiments.settings import standing_in

Numbers = Iterable[tuple[Mapping[str, Any], Estimate]]
"""Numbers with their dimensions, as `computed` takes them."""


def of_placements(
    metric: str, parts: Mapping[str, tuple[Any, ...]] = MappingProxyType({}), **where: Any
) -> MeasuredQuantity:
    """Numbers of the placements without chunks by dataset, and by these parts of it."""
    per = ("dataset", *parts, "setting")
    every = observed(metric, per=per, model=lambda name: True, setting=PLACED)
    return every.where(**parts, **where).pooled("median")


def phase_times(**parts: tuple[Any, ...]) -> dict[str, MeasuredQuantity]:
    """Seconds of an epoch in which ranks do not stand still for others, and in which they do."""
    spent = of_placements("phase_time", parts)
    own = tuple(phase for phase in PHASES if phase != "communicate")
    return {
        "compute": spent.where(phase=own).joined_over(sum, "phase"),
        "communicate": spent.where(phase="communicate"),
    }


def epoch_total(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, float]:
    """Median epoch of a contender, as the total of its bar."""
    every = of_placements("epoch_time", turn=lambda n: n is not None)
    epochs = every.per(*(name for name in PARTS if name in dims)).estimates(context)
    (total,) = (value for at, value in epochs.items() if {*at} <= dims.items())
    return {"total": total.value}


def races_on(context: EvaluationContext, experiment: str, *datasets: str) -> list[RaceRecord]:
    """Races of an experiment on these graphs of the paper, or on what stands in for each
    (`standing_in`), else on all; none of twins beside real ones."""
    every = races(context.rows, experiment)
    mine = [
        one for dataset in datasets
        for one in standing_in(dataset, every, lambda o: o.dataset, lambda o: o.twin)
    ] if datasets else every  # fmt: skip
    return real(mine) or mine


def of_races(
    experiment: str, numbers: Callable[[RaceRecord], Numbers], *per: str, on: Sequence[str] = ()
) -> MeasuredQuantity:
    """Numbers of each race, beside its dataset and part; see `races_on`."""
    return computed(
        lambda context: (
            ({"dataset": one.dataset, **one.part, **dims}, number)
            for one in races_on(context, experiment, *on)
            for dims, number in numbers(one)
        ),
        per=("dataset", *per),
    )


def gain(one: RaceRecord, slow: str, fast: str) -> Estimate:
    """Speedup of one contender over another, see `RaceRecord.gain`."""
    found = one.gain(slow, fast)
    return Estimate(found.value, found.low, found.high, one.rows, "ratio", None, found)


def over(first: Sequence[float], second: Sequence[float], rows: Sequence[Any]) -> Estimate:
    """Median over processes of a number over another; its ends are the least and the largest, so
    that it is beyond 1 where all processes agree."""
    ratios = [a / b if b else float("inf") for a, b in zip(first, second, strict=False)]
    return Estimate(median(ratios), min(ratios), max(ratios), tuple(rows), "timed")


def mean_of_processes(one: RaceRecord, metric: str, name: str) -> Estimate:
    """Geometric mean over processes of a contender's number, with its interval."""
    found = geometric_mean(one.each(metric, name))
    return Estimate(found.value, found.low, found.high, one.rows, "seeds")


def apart(first: Estimate, second: Estimate) -> Estimate:
    """A number over another; it is beyond 1 where their intervals do not meet."""
    rows, low, high = (*first.rows, *second.rows), None, None
    if first.low and first.high and second.low and second.high:
        low, high = first.low / second.high, first.high / second.low
    return Estimate(first.value / second.value, low, high, rows, "seeds")
