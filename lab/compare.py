"""Ratios between contenders, formed from rows pair by pair.

Rows are anything with the attributes of `harness.store.Row`; this module imports nothing of the
harness, so experiments and checks may use it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from dgbench.lab.judging import current_floor, note_decision, note_ratio
from dgbench.lab.table import Entry, Observation, Table, in_ratios
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.statistics import ConfidenceInterval, paired_ratio, pooled_ratio, side

T = TypeVar("T")
Start = tuple[str, int, str]
"""Run, how often it had been resumed, and key of its provenance: one start of it, at one commit."""

CONTROL = "control"
"""Parameter that marks the second A of an A/A pair; such rows belong to no contender."""
CONTROL_RATIO = "control_ratio"
"""Metric of an A/A pair that took turns inside one process."""
AGAIN = "again"
"""Name of the second side of an A/A pair whose first side is a contender of a race in turns."""
OWN_DATA = "content"
"""Parameter of a cell that runs on a dataset of the user's: the hash of what that holds. No claim
of a paper rests on such a row."""


TURN_INTERVAL = "95 % interval of the median over turns"
"""Caption of a figure whose intervals are those of ratios over the turns of one process."""
ROUND_INTERVAL = "95 % interval over processes, over turns where one ran"
"""The same where cells run in several rounds: where vertices and blocks come to lie in memory is
settled once a process, so that many turns of one process tell a gain too sharply."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio numerator/denominator of one quantity.

    Attributes:
        value: the ratio (geometric mean over pairs, and over groups where there are several).
        low, high: 95 % interval, or None where a group has a single pair. Where the number of
            rounds hung on looks at the data, it holds at all of them together (`level_of`).
        n: number of pairs.
        processes: pairs of processes that its smallest group rests on.
        floor: relative noise floor; a difference inside it is none.
        rows: ids of the rows it rests on.
        deviation: largest relative deviation from the reference among these rows, or None where
            nothing was compared.
        twin: whether any of the rows used a synthetic twin.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    rows: list[str] = field(default_factory=list)
    deviation: float | None = None
    twin: bool = False
    processes: int = 1
    floor: float = field(default_factory=current_floor)

    @property
    def side(self) -> int:
        """1 or -1 where it is decided on which side of 1x it lies (`runtime.statistics.side`), else
        0."""
        return self.beyond(1.0)

    def beyond(self, bar: float) -> int:
        """1 or -1 where it is decided on which side of a bar it lies, by more than the noise floor,
        else 0."""
        note_decision(self)
        if self.low is None or self.high is None:
            return 0
        return side(self.low / bar, self.high / bar, self.floor)

    @property
    def open(self) -> bool:
        """True if the interval holds an end of the noise floor's band: more rounds may decide."""
        if self.low is None or self.high is None:
            return False
        wide = 1 + self.floor
        return any(self.low <= edge <= self.high for edge in (1 / wide, wide))

    def against(self, other: Ratio) -> int:
        """1 if this ratio's whole interval lies above the other's by more than the floor, -1 if
        below, else 0."""
        note_decision(self)
        note_decision(other)
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return 0
        return side(self.low / other.high, self.high / other.low, max(self.floor, other.floor))


def level_of(rows: Iterable[Any]) -> float:
    """Level of an interval over these rows.

    Where rounds were added until a claim was decided, the data were looked at up to `looks` times,
    and the interval of every look has the level 1 - 0.05 / looks: by Bonferroni's inequality all
    of them together hold the ratio in 95 % of runs, whatever made the rounds end (repeated
    confidence intervals, Jennison and Turnbull 1989).
    """
    return 1 - 0.05 / max((getattr(row, "looks", 0) or 1 for row in rows), default=1)


def paired(
    rows: Iterable[Any],
    numerator: Mapping[str, Any],
    denominator: Mapping[str, Any],
    metric: str = "step_time",
) -> Ratio | None:
    """The ratio of what two contenders observed of a metric without dimensions, see `ratio`.

    Args:
        rows: rows of any status; only `ok`, un-instrumented ones are used.
        numerator, denominator: params that tell the two contenders apart, such as
            `{"system": "pygt"}` and `{"system": "pipad"}` (of times that is the speed-up of pipad
            over pygt).
    """
    table = Table.of(rows)
    sides = (table.where(metric, **wanted) for wanted in (numerator, denominator))
    return ratio(*(Table(one for one in side if not one.of.dims) for side in sides))


def ratio_of(found: Table) -> Ratio | None:
    """The ratio that processes formed over their turns, one observation each, pooled over them;
    with a single process the interval is that over its turns."""
    if not found:
        return None
    values = found.values
    pooled = _mean_ratio(values, [_node(one.row) for one in found], level_of(found.rows))
    if len(values) == 1:
        pooled = pooled._replace(low=found[0].of.low, high=found[0].of.high)
    return _resting_on(found.rows, pooled, len(found.rows))


def ratio_of_turns(slow: Sequence[float], fast: Sequence[float], rows: Sequence[Any]) -> Ratio:
    """The median ratio of seconds of paired turns of one process, bounded by order statistics."""
    return _resting_on(rows, paired_ratio(slow, fast, method="sign"), 1)


def ratio_of_values(
    values: Sequence[float],
    rows: Sequence[Any],
    processes: int,
    *,
    median: bool = False,
    nodes: Sequence[str] | None = None,
) -> Ratio:
    """The mean of ratios that were formed process by process, or turn by turn of one process.

    Args:
        values: a ratio each. rows: that they stand in. processes: that they come from.
        median: their median, bounded by order statistics, where single turns have outliers.
        nodes: that the processes ran on, one a value; one node where None.
    """
    level = level_of(rows) if processes > 1 else level_of(())
    if median:
        found = paired_ratio(values, [1.0] * len(values), method="sign", level=level)
    else:
        found = _mean_ratio(values, nodes, level)
    return _resting_on(rows, found, processes)


def _mean_ratio(
    values: Sequence[float], nodes: Sequence[str] | None, level: float
) -> ConfidenceInterval:
    """The mean of ratios of one group."""
    ones = [1.0] * len(values)
    return pooled_ratio([(values, ones)], nodes=None if nodes is None else [nodes], level=level)


def observe_ratio(
    found: Any,
    metric: str,
    slow: Sequence[float],
    fast: Sequence[float],
    *,
    mean: bool = False,
    **dims: Any,
) -> None:
    """Observe how many times longer `slow` takes than `fast`, from the times of paired turns.

    Order statistics bound the median ratio, since single turns have outliers; fewer than six turns
    have no interval.

    Args:
        slow, fast: seconds of each turn; neighbours in time have one index.
        mean: the geometric mean with its t interval instead, where there are few turns.
        dims: of the ratio, usually `setting` (the fast one) and `baseline`.
    """
    turns = paired_ratio(slow, fast, method="t" if mean else "sign")
    whole = turns.low is not None and turns.high is not None
    low, high = (turns.low, turns.high) if whole else (None, None)
    found.observe(metric, turns.value, low=low, high=high, **dims)


def observe_control(
    found: Any, first: Sequence[float], second: Sequence[float], **dims: Any
) -> None:
    """Observe an A/A pair: the times of one setting in paired turns of two trainers of it."""
    observe_ratio(found, CONTROL_RATIO, first, second, mean=True, **dims)


def with_control(
    contenders: Mapping[str, T], *, on: bool = True, pair: str | None = None
) -> dict[str, T]:
    """The contenders, and one of them once more as `AGAIN`, which takes its turns last.

    Args:
        on: False leaves them as they are. pair: name of the one; None: the first.
    """
    again = {AGAIN: contenders[next(iter(contenders)) if pair is None else pair]} if on else {}
    return {**contenders, **again}


def take_control(
    found: Any, seconds: dict[str, list[float]], *, pair: str | None = None, **dims: Any
) -> None:
    """Observe the A/A pair of a race and take its second side out of `seconds`: it is no contender.

    Args:
        seconds: of each turn by contender; without `AGAIN` nothing happens.
        pair: as in `with_control`. dims: of the ratio, besides `setting`.
    """
    second = seconds.pop(AGAIN, None)
    if second is not None:
        first = next(iter(seconds)) if pair is None else pair
        observe_control(found, seconds[first], second, setting=first, **dims)


def observe_speedup(found: Any, slow: Sequence[float], fast: Sequence[float], **dims: Any) -> None:
    """Observe `speedup` by `observe_ratio`."""
    observe_ratio(found, "speedup", slow, fast, **dims)


def ratio(numerator: Table, denominator: Table) -> Ratio | None:
    """The ratio numerator/denominator of observations of the same group, round and start of a run.

    Args:
        numerator, denominator: observations of one metric. Dimensions of which the two sides have
            no value in common (the system, the setting) tell them apart; all others say which
            observations belong together.

    Returns:
        The ratio (of times: how many times faster the denominator is), or None where no pair
        exists. Values that are not positive form no pair.

    Raises:
        InvalidInputError: the dimensions do not tell which observations belong together.
    """
    cells: dict[_Meeting, tuple[list[Entry], list[Entry]]] = defaultdict(lambda: ([], []))
    for place, entries in enumerate((numerator, denominator)):
        for one in entries:
            cells[_meeting(one.row)][place].append(one)
    apart = _apart(numerator, denominator)
    groups: _Groups = defaultdict(lambda: defaultdict(dict))
    used: dict[str, Any] = {}
    for meeting, (tops, bottoms) in cells.items():
        where = f"group '{meeting.group[1]}', round {meeting.round[1]}"
        for key, top, bottom in _match_entries(tops, bottoms, apart, where):
            first, second = float(top.value), float(bottom.value)
            if first > 0 and second > 0:
                groups[meeting.group][key][meeting.round] = first, second
                used[top.row.id], used[bottom.row.id] = top.row, bottom.row
    if not groups:
        return None
    return _resting_on(list(used.values()), *_pooled(groups, level_of(used.values())))


def ratio_over_workloads(values: Iterable[tuple[Any, float]], metric: str) -> Ratio | None:
    """Geometric mean over workloads of ratios of processes; None where none is positive.

    Workloads are those named (groups of rows, and what one row has several of), so that their
    differences are no noise. One with a single process leaves the mean without an interval.
    """
    numbers: dict[str, int] = defaultdict(int)
    sides: tuple[list[Entry], list[Entry]] = [], []
    for row, value in values:
        numbers[row.id] += 1
        for entries, name, number in zip(sides, ("first", "second"), (value, 1.0), strict=True):
            dims = {"part": str(numbers[row.id]), "setting": name}
            entries.append(Entry(row, Observation(metric=metric, value=number, dims=dims)))
    return ratio(*map(Table, sides))


_Groups = dict[tuple[str, str], dict[tuple, dict[tuple[str, int, Start], tuple[float, float]]]]
"""(experiment, group) -> what is compared -> (node, round, start) -> (numerator, denominator)."""


def _pooled(groups: _Groups, level: float) -> tuple[ConfidenceInterval, int]:
    """The pooled ratio of all groups, and the pairs of processes that the smallest rests on.

    What is compared inside one group ran in the same rounds, often over one denominator, so that
    the ratios of a round vary together: they are averaged round by round before anything is said
    about their spread. Rounds that some of them lack leave them apart.
    """
    pairs: list[tuple[list[float], list[float]]] = []
    weights: list[float] = []
    nodes: list[list[str]] = []
    for compared in groups.values():
        rounds = [sorted(one) for one in compared.values()]
        if len(compared) > 1 and all(one == rounds[0] for one in rounds):
            each = [[one[number] for one in compared.values()] for number in rounds[0]]
            pairs.append(
                ([_mean(top for top, _ in one) for one in each],
                 [_mean(bottom for _, bottom in one) for one in each])
            )  # fmt: skip
            weights.append(len(compared))
            nodes.append([node for node, *_ in rounds[0]])
        else:
            for one in compared.values():
                tops, bottoms = zip(*one.values(), strict=True)
                pairs.append((list(tops), list(bottoms)))
                weights.append(1)
                nodes.append([node for node, *_ in one])
    fewest = min(len(tops) for tops, _ in pairs)
    return pooled_ratio(pairs, weights=weights, nodes=nodes, level=level), fewest


def _mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _resting_on(rows: Sequence[Any], found: ConfidenceInterval, processes: int) -> Ratio:
    ratio = Ratio(
        value=found.value,
        low=found.low,
        high=found.high,
        n=found.n,
        rows=[row.id for row in rows],
        deviation=max((abs(gap) for row in rows for gap in row.deviation.values()), default=None),
        twin=any(bool(row.data.get("twin")) for row in rows),
        processes=processes,
    )
    note_ratio(ratio)
    return ratio


def _apart(numerator: Table, denominator: Table) -> set[str]:
    """Dimensions of which the two sides have no value in common."""
    sides: list[dict[str, set]] = [defaultdict(set), defaultdict(set)]
    for found, table in zip(sides, (numerator, denominator), strict=True):
        for one in table:
            for name, value in one.place:
                found[name].add(value)
    return {name for name in {*sides[0], *sides[1]} if not sides[0][name] & sides[1][name]}


def _match_entries(
    tops: list[Entry], bottoms: list[Entry], apart: set[str], where: str
) -> list[tuple[tuple, Entry, Entry]]:
    if not tops or not bottoms:
        return []
    if len(tops) == 1 and len(bottoms) == 1:
        return [((), tops[0], bottoms[0])]

    above: dict[tuple, list[Entry]] = defaultdict(list)
    below: dict[tuple, list[Entry]] = defaultdict(list)
    for found, entries in ((above, tops), (below, bottoms)):
        for one in entries:
            found[tuple(pair for pair in one.place if pair[0] not in apart)].append(one)
    shared = [key for key in above if key in below]
    if not shared or any(len(above[key]) > 1 or len(below[key]) > 1 for key in shared):
        raise InvalidInputError(
            f"{where}: {len(tops)} observations over {len(bottoms)}, so pairs are ambiguous: "
            f"{Table(tops).words()} over {Table(bottoms).words()}",
            hint="select by the dimensions in which they differ",
        )
    return [(key, above[key][0], below[key][0]) for key in shared]


def without_control(rows: Iterable[Any]) -> list[Any]:
    """Rows without the A/A controls and without the machine's own rows (`paper == "-"`)."""
    return [r for r in rows if CONTROL not in r.params and r.paper != "-"]


def control_ratios(rows: Sequence[Any], *, disturbed: bool = False) -> list[float]:
    """A/A time ratios: one per round in which a control and its original both ran, and those of
    settings that took turns with themselves; `disturbed`: the pairs of which a process was
    disturbed, in place of all others."""
    firsts: dict[tuple, Any] = {}
    seconds: list[tuple[tuple, Any]] = []
    for row in rows:
        if not in_ratios(row) or not (row.time or 0) > 0:
            continue
        key = (_meeting(row), _frozen(row.params))
        if CONTROL in row.params:
            seconds.append((key, row))
        else:
            firsts[key] = row
    pairs = [
        (row.time / firsts[key].time, _disturbed(row) or _disturbed(firsts[key]))
        for key, row in seconds
        if key in firsts
    ]
    pairs += [
        (one.value, _disturbed(row))
        for row in rows
        if in_ratios(row)
        for one in row.observations
        if one.metric == CONTROL_RATIO
    ]
    return [ratio for ratio, hit in pairs if hit == disturbed]


def _disturbed(row: Any) -> bool:
    return bool(getattr(row, "disturbed", ""))


def start_of(row: Any) -> Start:
    """The start of a run that a row's process belongs to: only processes of one form pairs."""
    return getattr(row, "run", ""), getattr(row, "resumed", 0), getattr(row, "provenance", "")


def split_rounds(rows: Iterable[Any]) -> set[tuple[str, str, str, int]]:
    """Paper, experiment, group and round whose timed processes are of several starts of a run.

    Such processes form no pairs: minutes, and maybe commits, lie between them.
    """
    starts: dict[tuple[str, str, str, int], set[Start]] = defaultdict(set)
    for row in rows:
        if in_ratios(row):
            starts[row.paper, row.experiment, row.group, row.round].add(start_of(row))
    return {place for place, some in starts.items() if len(some) > 1}


class _Meeting(NamedTuple):
    """Experiment and group; node, number of the round and start of the run: rows form pairs where
    these are the same."""

    group: tuple[str, str]
    round: tuple[str, int, Start]


def _meeting(row: Any) -> _Meeting:
    return _Meeting(
        (f"{row.paper}/{row.experiment}", row.group), (_node(row), row.round, start_of(row))
    )


def _node(row: Any) -> str:
    """Label of the cluster's node that a row's process ran on; "" elsewhere."""
    return getattr(row, "node", "")


def _frozen(params: Mapping[str, Any]) -> tuple:
    """Params of a cell and of its A/A control, sorted by name."""
    return tuple(sorted((k, repr(v)) for k, v in params.items() if k != CONTROL))
