"""Races of operators: contenders take turns on the same inputs, inside one process.

What disturbs the machine then disturbs all of them, and ratios are formed turn by turn. Results are
compared with an independent reference before anything is timed, and again afterwards. A peer that
is not installed, fails, is wrong or is too slow is left out with a note; ours must be right.

On a device, turns are timed by its events with cold caches; see `timing.DeviceTimer`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any, ClassVar, Final

import torch
from msgspec.structs import replace

from dgbench.lab.charts import chart
from dgbench.lab.compare import (
    TURN_INTERVAL,
    Ratio,
    observe_speedup,
    ratio_of,
    take_control,
    with_control,
)
from dgbench.lab.estimates import PaperForms
from dgbench.lab.experiment import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.grid import Grid, by_preset
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import NUMERIC, ResultCheck
from dgbench.lab.table import Table
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.operators.timing import CallSetting, Timer, open_timer

OURS: Final = "dgbench"
FORMS: Final = PaperForms("operators")
Call = Callable[[int], Any]
"""One call of an operator; its argument is the turn, for inputs or seeds of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCase:
    """Contenders of one cell on its inputs, and what their results are compared with.

    Attributes:
        calls: by method; `OURS` is among them.
        check: (method, turn, result) -> comparison with the reference; None where there is nothing
            to compare, as of a copy that shows the machine's limit.
        baselines: (method, baselines that its speed-up is over); by default ours over all others.
        left_out: peers that do not run here, with the reasons.
        bars: (method, name, seconds that its call may take); a speed-up over each is observed.
        before: by method, what makes each of its calls ready and is not timed.
        warm: methods whose inputs may lie in a device's cache; others find theirs in its memory.
        work: (metric of kind rate, dimensions, what one call works on), for all methods.
        observe: further numbers: (metric, value, dimensions).
        data: of the row, where the inputs are of a dataset.
    """

    calls: Mapping[str, Call]
    check: Callable[[str, int, Any], ResultCheck | None]
    baselines: tuple[tuple[str, tuple[str, ...]], ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    bars: tuple[tuple[str, str, float], ...] = ()
    before: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    warm: tuple[str, ...] = ()
    work: tuple[tuple[str, Mapping[str, Any], float], ...] = ()
    observe: tuple[tuple[str, float | int, Mapping[str, Any]], ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


class OperatorRace(Grid):
    """Workloads on each of which an operator races its peers in turns; each has a cell of its own.

    Attributes:
        workloads: params of cells by preset (`None` for presets not named).
        turns: timed turns by preset; at least `least_turns` are taken, more within `limit_s`.
        slow_s: seconds of a call above which a peer is left out.
        shortest_turn_s: a turn repeats a shorter call; 0 where a call changes what is there.
        devices: on which it races; one of the CPU alone does so whatever a run is asked for.
        threads: of torch and of ours; None for as many as the run has.
        clock: wall time, or processor time where one thread works.
        alone: whether it needs no peer and no bar.
        packages: of which one must be installed, where no peer runs without; () needs none.
        rivals: what answers compare with.
        limits: methods that show what the machine allows, and are no rivals.
        label: format of params that names a workload in figures.
        sweep: (param, words of the axis) of a figure of times over a size, or None.
        panel: params of which that figure has a panel for each value.
        figure_forms: further figures.
    """

    paper = "operators"
    group: ClassVar[str] = ""  # each cell is one of its own, see `cell`
    own_data = "operators are raced on graphs and sequences that are drawn"
    repeats: ClassVar[Any] = {"smoke": 1, None: 5}
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, None: 600}
    turns: ClassVar[Any] = {"smoke": 2, "quick": 3, None: 15}
    limit_s: ClassVar[Any] = {"smoke": 0.0, "quick": 0.4, None: 20.0}
    least_turns: ClassVar[Any] = {"smoke": 2, "quick": 2, None: 7}
    slow_s: ClassVar[float] = 5.0
    shortest_turn_s: ClassVar[float] = 0.002
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    threads: ClassVar[int | None] = None
    clock: ClassVar[Callable[[], float]] = staticmethod(time.perf_counter)
    alone: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()
    rivals: ClassVar[str] = "the best peer"
    limits: ClassVar[tuple[str, ...]] = ()
    workloads: ClassVar[Mapping[str | None, Sequence[Mapping[str, Any]]]]
    label: ClassVar[str]
    sweep: ClassVar[tuple[str, str] | None] = None
    panel: ClassVar[tuple[str, ...]] = ()
    figure_forms: ClassVar[tuple[FigureForm, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Plan races of the CPU alone as cells of the CPU."""
        super().__init_subclass__()
        cls.device = "cpu" if cls.devices == ("cpu",) else ""

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        """Inputs on a torch device, contenders and reference of a workload.

        Raises UnsupportedError.
        """
        raise NotImplementedError

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        # `operator` keeps a wrong result of one race from making those of all others void.
        return ({"operator": self.name, **one} for one in by_preset(self.workloads, preset))

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        found = super().cells(preset, device)
        if self.device or device in self.devices:
            return found
        why = f"needs {'a GPU' if device == 'cpu' else 'the CPU'}: it is about that device alone"
        return [replace(cell, unavailable=why) for cell in found[:1]]  # one says it for all

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        missing = "" if not self.packages or any(map(find_spec, self.packages)) else (
            f"no peer is installed: {' or '.join(self.packages)}"
        )  # fmt: skip
        group = "/".join(str(value) for value in params.values())
        return super().cell(
            params,
            preset,
            **{"group": group, "interleaved": True, "unavailable": missing, **fields},
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        timer = open_timer("cpu" if self.device else context.device, self.clock)
        with torch_threads(self.threads or context.threads):
            case = self.case(cell.params, context.preset, timer.place)
            control = self.controls(cell, context)
            return self._race(case, context.preset, timer, control=control)

    def _race(
        self, case: OperatorCase, preset: Preset, timer: Timer, *, control: bool
    ) -> Measurement:
        found = Measurement(data=dict(case.data))
        calls = self._sound(case, found, timer)
        settings = {name: CallSetting(case.before.get(name), name in case.warm) for name in calls}
        samples = self._take_turns(
            with_control(calls, on=control), with_control(settings, on=control), preset, timer
        )
        take_control(found, samples)
        after = len(next(iter(samples.values()))) + 1
        for name in list(samples):
            check = case.check(name, after, calls[name][0](after))
            if check is not None and not self._accept(name, check, "after timing", found):
                del samples[name]
        baselines = case.baselines or ((OURS, tuple(name for name in calls if name != OURS)),)
        for method, seconds in samples.items():
            typical = median(seconds)
            found.observe("operation_time", typical, samples=seconds, method=method)
            for metric, dims, amount in case.work:
                found.observe(metric, amount / typical, method=method, **dims)
            timer.observe(method, partial(calls[method][0], after), settings[method], found)
        for method, others in baselines:
            for other in others:
                if method in samples and other in samples:
                    observe_speedup(
                        found, samples[other], samples[method], method=method, baseline=other
                    )
        for method, bar, seconds in case.bars:
            if taken := samples.get(method):
                limit = [seconds] * len(taken)
                observe_speedup(found, limit, taken, method=method, baseline=bar)
        if not self.alone and not any(one.metric == "speedup" for one in found.observations):
            raise UnsupportedError("no peer runs here", hint="; ".join(found.notes))
        timer.finish(found)
        found.observe("turns", after - 1)
        for metric, value, dims in case.observe:
            found.observe(metric, value, **dims)
        return found

    def _sound(
        self, case: OperatorCase, found: Measurement, timer: Timer
    ) -> dict[str, tuple[Call, float]]:
        """Contenders that are here, right and fast enough, with seconds of a call."""
        found.notes += [f"{name} is left out: {why}" for name, why in case.left_out.items()]
        calls: dict[str, tuple[Call, float]] = {}
        for name, call in case.calls.items():
            try:
                result = call(0)
            except Exception as error:
                if name == OURS:
                    raise
                found.notes.append(f"{name} is left out: {first_line(error)}")
                continue
            check = case.check(name, 0, result)
            del result
            if check is not None and not self._accept(name, check, "before timing", found):
                continue
            seconds = timer.once(partial(call, 0))
            if seconds > self.slow_s and name != OURS:
                found.notes.append(f"{name} is left out: a call takes {seconds:.2g} s")
                continue
            if self.shortest_turn_s > 0:  # calls may still prepare at their second time
                seconds = min(seconds, timer.once(partial(call, 0)))
            calls[name] = call, seconds
        return calls

    def _accept(self, name: str, check: ResultCheck, when: str, found: Measurement) -> bool:
        """Keep a check; a peer whose result is wrong is noted instead, and False."""
        if not check.passed and not own_form(name):
            found.notes.append(f"{name} is left out: {check.words}")
            return False
        part = ", ".join(text for text in (when, check.part) if text)
        kept = ResultCheck(
            of=check.of, against=check.against, gap=check.gap, tolerance=check.tolerance,
            compared=check.compared, system=name, part=part,
            plain=check.plain,
        )  # fmt: skip
        found.checks.append(kept)
        if name == OURS and check.of in NUMERIC:
            gap = max(check.gap, found.deviation.get("output", 0.0))
            found.deviation["output"] = gap
        return True

    def _take_turns(
        self,
        calls: Mapping[str, tuple[Call, float]],
        settings: Mapping[str, CallSetting],
        preset: Preset,
        timer: Timer,
    ) -> dict[str, list[float]]:
        """Seconds of a call of each contender in each turn, every second turn in reverse order."""
        wanted, least = by_preset(self.turns, preset), by_preset(self.least_turns, preset)
        limit_s = by_preset(self.limit_s, preset)
        repeats = {
            name: min(50, max(1, math.ceil(self.shortest_turn_s / max(spent, 1e-6))))
            for name, (_, spent) in calls.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        begin = time.perf_counter()
        for turn in range(1, wanted + 1):
            if turn > least and time.perf_counter() - begin > limit_s:
                break
            for name in calls if turn % 2 else reversed(calls):
                call = partial(calls[name][0], turn)
                seconds[name].append(timer.turn(call, repeats[name], settings[name]))
        return seconds

    # Figures and words

    def figures(self) -> list[FigureSpec]:
        drawn = [
            chart("speedup", self.name, self.title, self.speedup_points,
                  xlabel="speed-up over the peer", interval=TURN_INTERVAL),
        ]  # fmt: skip
        if self.sweep:
            axis, words = self.sweep
            times = observed(
                "operation_time", per=("method", axis, *self.panel), caches=None, clock=None
            )
            times_over_size = Sweep(
                f"{self.name}_time", f"{self.title}: time of a call", times.pooled("median"),
                panel=", ".join(f"{{{name}}}" for name in self.panel), series="method", x=axis,
                gaps={"series": OURS}, xlabel=words, ylabel="s a call", base=2,
            )  # fmt: skip
            drawn.append(times_over_size.figure(self.name, FORMS))
        return [*drawn, *(one.figure(self.name, FORMS) for one in self.figure_forms)]

    def workload(self, params: Mapping[str, Any]) -> str:
        """A workload in words."""
        return self.label.format(**params)

    def speedup_points(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Ours over each peer on each workload; a cell or a peer without numbers is a gap."""
        ratios = speedups(rows, self.name)
        peers = list(dict.fromkeys((method, peer) for _, method, peer in ratios))
        bad = {self.workload(row.params): why for row, why in failures(rows, self.name)}
        good = {self.workload(dict(params)): params for params, _, _ in ratios}
        found = Table.of(rows, experiment=self.name)
        turns = found.where("turns").numbers("group")
        points = []
        for name in [*good, *bad]:
            for method, peer in peers or [(OURS, "peers")]:
                point: dict[str, Any] = {"system": method, "baseline": peer}
                if len(good) + len(bad) == 1:
                    point |= {"row": f"over {peer}", "panel": name}
                else:
                    point |= {"row": name, "panel": f"over {peer}"}
                points.append(point)
                ratio = ratios.get((good.get(name, ()), method, peer))
                if ratio is None:
                    point["failed"] = bad.get(name) or _gap(found.rows, good[name], peer)
                    continue
                row = next(row for row in found.rows if row.id in ratio.rows)
                point |= {
                    "value": ratio.value, "low": ratio.low, "high": ratio.high,
                    "n": ratio.n if ratio.n > 1 else turns[row.group],
                    "row_ids": ratio.rows, "deviation": ratio.deviation,
                }  # fmt: skip
        return points

    def answer(self, rows: Sequence[Any]) -> str:
        best: dict[Any, Ratio] = {}
        for (params, method, peer), ratio in speedups(rows, self.name).items():
            if method != OURS or peer in self.limits:
                continue
            if params not in best or ratio.value < best[params].value:
                best[params] = ratio
        if not best:
            return ""
        low, high = (pick(best, key=lambda key: best[key].value) for pick in (min, max))
        if len(best) == 1:
            return f"It is {best[low].value:.2g}x as fast as {self.rivals} ({self._said(low)})."
        return (
            f"It is {best[low].value:.2g}x ({self._said(low)}) to {best[high].value:.2g}x "
            f"({self._said(high)}) as fast as {self.rivals} on each of {len(best)} workloads."
        )

    def _said(self, params: tuple) -> str:
        return self.workload(dict(params))


def own_form(method: str) -> bool:
    """Return True if a method is ours or another form of it, named `dgbench, FORM`: no peer."""
    return method.partition(",")[0] == OURS


def speedups(rows: Sequence[Any], experiment: str) -> dict[tuple[tuple, str, str], Ratio]:
    """Speed-ups by (params of the cell, method, baseline), pooled over processes."""
    found: dict[tuple[tuple, str, str], list] = {}
    for one in Table.of(rows, experiment=experiment).where("speedup"):
        key = tuple(one.row.params.items()), one["method"], one["baseline"]
        found.setdefault(key, []).append(one)
    pooled = {key: ratio_of(Table(entries)) for key, entries in found.items()}
    return {key: ratio for key, ratio in pooled.items() if ratio is not None}


def _gap(rows: Sequence[Any], params: tuple, peer: str) -> str:
    """Why a workload has no ratio over a peer: a note of its row, or that there is no such form."""
    notes = [note for row in rows if tuple(row.params.items()) == params for note in row.notes]
    said = [note.partition(": ")[2] for note in notes if note.startswith(f"{peer} is left out")]
    return f"skipped: {said[0]}" if said else "not-supported: it has no such form"


def failures(rows: Sequence[Any], experiment: str) -> list[tuple[Any, str]]:
    """One row with its reason for each cell of which no process gave numbers."""
    mine = [row for row in rows if row.experiment == experiment and "control" not in row.params]
    good = {tuple(row.params.items()) for row in mine if row.status == "ok"}
    bad = {tuple(row.params.items()): row for row in mine if row.status != "ok"}
    return [
        (row, f"{row.status}: {row.reason}") for params, row in bad.items() if params not in good
    ]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads for torch and the compiled operators; as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def import_dgl() -> Any:
    """The module dgl. Raises what its import raises."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes one into the home folder
    import dgl
    import dgl.function
    import dgl.ops

    return dgl


def first_line(error: Exception) -> str:
    """Kind and first line of an error, as the reason of a peer that is left out."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
