"""Tuned division of the arena: each contender with settings of its own, searched under one budget.

A search begins at the settings of the base division and changes one at a time: threads first, then
switches in the order in which the system declares them. A change that is faster stays. Trials
decide nothing but the settings: what is reported is timed and compared afresh, as in the base
division. The first process of a cell searches, later ones take over what it chose.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dgbench.lab.arena import ArenaTask, Entrant
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.lab.grid import by_preset
from dgbench.runtime.errors import CheckFailed, DgbenchError
from dgbench.runtime.meter import Meter
from dgbench.runtime.readback import AHEAD, Readback
from dgbench.runtime.steady import measure_steady
from dgbench.runtime.threads import threads
from dgbench.systems.base import kept
from dgbench.systems.base.race import open_trainer, timed
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import System
from dgbench.systems.base.workload import Workload


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """Limits of the search for the settings of one contender, the same for all.

    Attributes:
        trials: settings that are timed, at most, those of the base division included.
        seconds: of all trials, with preparation; none begins later.
        trial_s: seconds of steady steps of a trial.
    """

    trials: int
    seconds: float
    trial_s: float


BUDGETS: Final[Mapping[str | None, SearchBudget]] = {
    "smoke": SearchBudget(trials=5, seconds=8.0, trial_s=0.02),
    "quick": SearchBudget(trials=12, seconds=20.0, trial_s=0.06),
    None: SearchBudget(trials=32, seconds=300.0, trial_s=0.5),
}
"""The budget of a contender by preset, None for those that are not named."""
MIN_GAIN: Final = 0.02
"""Share of the time that a change must save to stay: below it is the noise of a trial."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Threads and switches of a contender."""

    threads: int
    switches: Mapping[str, bool] = field(default_factory=dict)

    def with_threads(self, count: int) -> Setting:
        """The same switches with another number of threads."""
        return replace(self, threads=count)

    def flipped(self, switch: str) -> Setting:
        """The same with one switch on that was off, or off that was on."""
        return replace(self, switches={**self.switches, switch: not self.switches[switch]})


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Setting that a search chose, the trials that it took, and why others could not run."""

    setting: Setting
    trials: int
    refused: Sequence[str] = ()


def thread_counts(most: int) -> list[int]:
    """Numbers of threads that a search tries, from `most` down: that one and powers of two."""
    return [most, *(1 << n for n in reversed(range(most.bit_length())) if 1 << n != most)]


def free_switches(system: System, entrant: Entrant, form: Mapping[str, bool]) -> list[str]:
    """Names of the switches that a search may change.

    These are published techniques that keep the mathematics and that the contender's form leaves
    open; none for a form that is the system without any technique. Additions of dgbench belong to
    an entrant that is a system with them.
    """
    if form and not any(form.values()):
        return []
    return [
        one.name
        for one in system.techniques
        if one.exact and one.name not in form and (entrant.adds_to or not one.ours)
    ]


def search(
    start: Setting,
    free: Sequence[str],
    seconds_of: Callable[[Setting], float],
    budget: SearchBudget,
    clock: Callable[[], float] = time.perf_counter,
) -> SearchResult:
    """Search for the fastest setting within a budget.

    Args:
        start: setting of the base division, with a value of each free switch; timed first, and
            twice, as a process is cold at first.
        free: names of switches that may change.
        seconds_of: seconds of a step with a setting. A DgbenchError says that it cannot run.

    Raises:
        DgbenchError: `start` cannot run.
    """
    begin, best, refused = clock(), start, []
    best_s, trials = min(seconds_of(start) for _ in range(2)), 2
    counts = thread_counts(start.threads)[1:]
    for change in (*counts, *free):
        if trials >= budget.trials or clock() - begin > budget.seconds:
            break
        setting = best.with_threads(change) if isinstance(change, int) else best.flipped(change)
        trials += 1
        try:
            seconds = seconds_of(setting)
        except DgbenchError as error:
            refused.append(f"{setting_words(setting, start)}: {error}")
            continue
        if seconds < (1 - MIN_GAIN) * best_s:
            best, best_s = setting, seconds
    return SearchResult(best, trials, refused)


def setting_words(setting: Setting, start: Setting) -> str:
    """A setting by what it changes of another: `1 thread, reuse off`."""
    changed = [
        f"{name} {'on' if on else 'off'}"
        for name, on in setting.switches.items()
        if start.switches.get(name) != on
    ]
    return ", ".join([f"{setting.threads} thread{'s' * (setting.threads != 1)}", *changed])


def tuned_training(
    task: ArenaTask, form: str, system_name: str, workload: Workload, context: RunContext,
    *, switches: Mapping[str, bool] | None, epochs: int,
) -> Measurement:  # fmt: skip
    """`timed` with the settings that a search chose for a contender.

    Args:
        task: whose entrant it is. form: its name there.
        switches: that its form sets.
    """
    system, budget = get_system(system_name), by_preset(BUDGETS, context.preset)
    free = free_switches(system, task.entrants.get(form, Entrant(form)), switches or {})
    start = Setting(context.threads, system.switches(switches))
    key = kept.kept_key(("tuned", task.digest, form, repr(workload), start.threads, free))
    known = kept.read(key)
    if known is None:
        result = search(
            start, free, lambda one: _step_s(system, workload, context, one, budget), budget
        )
    else:
        result = SearchResult(Setting(known["threads"], known["switches"]), known["trials"])
    chosen = result.setting
    kept.write(key, {"threads": chosen.threads, "switches": dict(chosen.switches),
                     "trials": result.trials})  # fmt: skip
    with threads(chosen.threads):
        measured = timed(
            system_name, workload, context, epochs=epochs, switches=dict(chosen.switches)
        )
    measured.observe("tuned_setting", chosen.threads, of="threads")
    measured.observe("tuned_setting", result.trials, of="trials")
    for name, on in chosen.switches.items():
        if on != start.switches[name]:
            measured.observe("tuned_setting", int(on), of=name)
    measured.notes += [
        f"tuned: {setting_words(chosen, start)}, chosen in {result.trials} of at most "
        f"{budget.trials} trials; searched: threads, {', '.join(free) or 'no switches'}",
        f"no batch was searched: {task.batch}",
        *(f"a trial could not run with {words}" for words in result.refused),
    ]
    return measured


def _step_s(
    system: System, workload: Workload, context: RunContext, setting: Setting, budget: SearchBudget
) -> float:
    """Seconds of a steady step of a trainer that is opened for it, like `timed` with no checks.

    Raises:
        UnsupportedError: the system cannot train with the setting.
        CheckFailed: a loss is not finite.
    """
    with threads(setting.threads):
        meter = Meter(device=context.device)
        trial = replace(context, meter=meter, instrumented=False)
        trainer = open_trainer(system, workload, trial, setting.switches)
        try:
            trainer.prepare()
            pending: deque[Readback] = deque()
            steps = 0

            def step() -> None:
                nonlocal steps
                pending.append(trainer.enqueue(steps % trainer.num_frames))
                steps += 1
                if len(pending) > AHEAD and not math.isfinite(pending.popleft().value()):
                    raise CheckFailed(f"the loss of step {steps - AHEAD} is not finite")

            return measure_steady(step, budget_s=budget.trial_s).time
        finally:
            trainer.close()


def tuned_turns(
    race: Callable[[RunContext], Measurement], task: ArenaTask, case: str, context: RunContext
) -> Measurement:
    """A race in turns in which each contender has the number of threads that it is fastest with.

    Its contenders are settings of switches already. A trial is the whole race with one number of
    threads. The race is then run afresh with each number that was chosen, and the numbers and
    checks of those that chose it are kept: turns of two contenders pair where both chose the same.
    """
    budget = by_preset(BUDGETS, context.preset)

    def with_threads(count: int) -> Measurement:
        with threads(count):
            meter = Meter(device=context.device)
            return race(replace(context, threads=count, control=False, meter=meter))

    def named(one: Any) -> Any:
        return one.dims.get(task.contender)

    key = kept.kept_key(("tuned", task.digest, case, context.threads))
    known = kept.read(key) or _fastest_threads(with_threads, task, context.threads, budget)
    kept.write(key, known)
    chosen, trials = dict(known["threads"]), int(known["trials"])
    merged = Measurement()
    for count in sorted(set(chosen.values()), reverse=True):
        part = with_threads(count)
        mine = {name for name, its in chosen.items() if its == count}
        first = not merged.observations
        merged.observations += [
            one for one in part.observations
            if "baseline" not in one.dims and (named(one) in mine or (first and not named(one)))
        ]  # fmt: skip
        merged.checks += [one for one in part.checks if not one.system or one.system in mine]
        merged.deviation |= {
            of: max(gap, merged.deviation.get(of, 0.0)) for of, gap in part.deviation.items()
        }
        merged.data = merged.data or part.data
        merged.notes += [words for words in part.notes if words not in merged.notes]
    for name, count in chosen.items():
        merged.observe("tuned_setting", count, of="threads", **{task.contender: name})
        merged.observe("tuned_setting", trials, of="trials", **{task.contender: name})
    merged.notes += [
        f"tuned: threads of each contender, chosen in {trials} of at most {budget.trials} trials",
        f"no batch was searched: {task.batch}",
    ]
    return merged


def _fastest_threads(
    race: Callable[[int], Measurement], task: ArenaTask, most: int, budget: SearchBudget
) -> dict[str, Any]:
    """Number of threads that each contender of a race in turns is fastest with, and the trials."""
    begin, trials = time.perf_counter(), 0
    best: dict[str, tuple[float, int]] = {}
    for count in thread_counts(most)[: budget.trials]:
        if time.perf_counter() - begin > budget.seconds * len(best or "1"):
            break
        trials += 1
        logs: dict[str, float] = {}
        for one in race(count).observations:
            name = one.dims.get(task.contender)
            timed_here = one.metric == task.time and not {"clock", "caches"} & one.dims.keys()
            if timed_here and name is not None:
                logs[name] = logs.get(name, 0.0) + math.log(one.value)
        for name, total in logs.items():
            if name not in best or total < best[name][0] + math.log(1 - MIN_GAIN):
                best[name] = total, count
    return {"threads": {name: count for name, (_, count) in best.items()}, "trials": trials}
