"""Rounds beyond those that cells ask for, where a claim or an answer in words is undecided.

Every timed group has its own five rounds. Then the results are looked at: a group that something
undecided rests on (`harness.claims.open_groups`) gets as many rounds again, and so on until all is
decided, the group has the most that the preset allows, or the paper's budget of seconds is spent.
All cells of a group get the same rounds.

When a group may be looked at is settled before its last own round begins, from what its processes
cost and never from what they found, and stands in its rows: intervals over them are corrected for
so many looks (`lab.compare.level_of`). A group that the budget could give no further rounds is not
looked at, and its intervals are plain.

All of it follows from the rows and the plan that a run keeps: one that was cut goes on with the
same rounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

import msgspec

from dgbench.harness.plan.plan import NOISE_S, PROCESS_S, GroupKey, Plan, PlannedCell
from dgbench.harness.plan.presets import MIN_ROUNDS
from dgbench.harness.store.row import LACKING, Row

FEWEST: Final = 2
"""Rounds that a group gets at once at least: one in each order of its contenders."""
SHARED_MACHINE: Final = 0.5
"""Share of a paper's timed processes that were disturbed above which no round is repeated."""


@dataclass(frozen=True, slots=True)
class AddedRounds:
    """Outcome of a look: what open and decided groups get.

    Attributes:
        given: rounds by group, open ones only. denied: open groups that the budget has no rounds
            for. ended: open groups that have the most. decided: groups that were looked at and
            need no more.
    """

    given: dict[GroupKey, int]
    denied: list[GroupKey]
    ended: list[GroupKey]
    decided: list[GroupKey]


@dataclass(slots=True)
class TimedGroup:
    """Cells that run in every round of a group, and what a further round of them costs."""

    key: GroupKey
    cells: list[PlannedCell]
    cost_s: float

    @property
    def rounds(self) -> int:
        """Rounds that count: a repeated one counts once."""
        return self.cells[0].cell.repeats - (self.cells[0].again is not None)

    @property
    def stages(self) -> list[int]:
        """Rounds after which it is looked at."""
        return self.cells[0].stages or []

    @property
    def wanted(self) -> int:
        """Rounds until the next look; 0 after the last one, or where the budget cut a stage."""
        place = self.stages.index(self.rounds) + 1 if self.rounds in self.stages else 0
        return self.stages[place] - self.rounds if 0 < place < len(self.stages) else 0

    def extend(self, rounds: int) -> None:
        """Give all of its cells so many rounds more."""
        for planned in self.cells:
            repeats = planned.cell.repeats + rounds
            planned.cell = msgspec.structs.replace(planned.cell, repeats=repeats)


class RoundsRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of the groups of a run that may get further rounds, as `run.json` keeps it.

    Attributes:
        budget_s: seconds of a paper up to which rounds are added. spent_s: what its processes
            took, by paper, with its share of the run's own.
        looks: after how many rounds groups were looked at -> how many of them.
        added: rounds beyond the planned ones by group, as `paper/experiment/group`.
        repeated: groups of which a disturbed round ran once more.
        decided, ended, denied: groups that were decided at their last look, undecided after the
            most rounds, and undecided as the budget ended.
    """

    budget_s: float
    spent_s: dict[str, float] = {}
    looks: dict[str, int] = {}
    added: dict[str, int] = {}
    repeated: int = 0
    decided: int = 0
    ended: int = 0
    denied: int = 0

    @classmethod
    def of(cls, plan: Plan, rows: Sequence[Row], found: AddedRounds | None) -> RoundsRecord | None:
        """The record of a plan with a rule, or None where no group may get rounds."""
        if plan.rounds is None:
            return None
        papers = _papers(plan)
        groups = [group for paper in papers for group in timed_groups(plan, paper, rows)]
        if not groups:
            return None
        looks = Counter(after for one in groups for after in one.stages if after <= one.rounds)
        more = {"/".join(one.key): one.rounds - one.stages[0] for one in groups if one.stages}
        budget = plan.rounds.budget_s
        found = found or AddedRounds({}, [], [], [])
        return cls(
            budget_s=budget,
            spent_s={name: round(_seconds_of(plan, name, rows), 1) for name in papers},
            looks={str(after): looks[after] for after in sorted(looks)},
            added={name: count for name, count in more.items() if count},
            repeated=sum(group.cells[0].again is not None for group in groups),
            decided=len(found.decided),
            ended=len(found.ended),
            denied=len(found.denied),
        )

    @classmethod
    def kept(cls, info: Mapping[str, Any]) -> RoundsRecord | None:
        """The record in a run's `run.json`; None where there is none that can be read."""
        try:
            return msgspec.convert(info.get("rounds"), cls)
        except msgspec.ValidationError:
            return None

    @property
    def sentence(self) -> str:
        """The record in words, for terminal and pages."""
        budget = f"the budget of {self.budget_s:g} s a paper"
        if not self.looks:
            return f"rounds: as planned; {budget} allowed no more"
        parts = [f"{_groups(self.decided)} decided"]
        if self.added:
            counts = self.added.values()
            parts.append(f"{_groups(len(counts))} got {_span(counts)} more")
        if self.repeated:
            parts.append(f"{self.repeated} repeated one that was disturbed")
        if self.ended or self.denied:
            why = [f"{self.ended} after the most rounds"] if self.ended else []
            why += [f"{self.denied} because {budget} ended"] if self.denied else []
            parts.append(f"{self.ended + self.denied} still undecided ({', '.join(why)})")
        return f"rounds: {', '.join(parts)}"


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count} groups"


def _span(counts: Collection[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def stages(first: int, most: int) -> list[int]:
    """Rounds after which a group is looked at: each time twice as many, `most` at last."""
    found = [first]
    while found[-1] + FEWEST <= most:
        found.append(min(2 * found[-1], most))
    return found


def settle_stages(plan: Plan, paper: str, rows: Sequence[Row]) -> None:
    """Settle after which rounds the groups of a paper are looked at.

    These are the stages that a group could enter if it had all of the budget that the plan's own
    rounds leave.
    """
    if plan.rounds is None:
        return
    left = seconds_left(plan, paper, rows)
    for group in timed_groups(plan, paper, rows):
        every = stages(group.rounds, plan.rounds.most)
        reach = group.rounds + int(left // group.cost_s)
        entered = [b for a, b in pairwise(every) if a + FEWEST <= reach]
        for planned in group.cells:
            planned.stages = [every[0], *entered] if entered else []


def add_rounds(plan: Plan, rows: Sequence[Row], open_groups: Collection[GroupKey]) -> AddedRounds:
    """Add rounds to the open groups of a plan, the cheapest first, as far as the budget goes."""
    found = AddedRounds({}, [], [], [])
    for paper in _papers(plan):
        left = seconds_left(plan, paper, rows)
        for group in sorted(timed_groups(plan, paper, rows), key=lambda one: one.cost_s):
            if group.key not in open_groups:
                if group.stages:
                    found.decided.append(group.key)
                continue
            count = min(group.wanted, int(left // group.cost_s))
            if count < group.wanted:
                count -= count % FEWEST
            if count < 1:
                most = plan.rounds.most if plan.rounds is not None else group.rounds
                (found.ended if group.rounds >= most else found.denied).append(group.key)
                continue
            left -= count * group.cost_s
            group.extend(count)
            found.given[group.key] = count
    return found


def repeat_disturbed(plan: Plan, rows: Sequence[Row]) -> tuple[list[GroupKey], str]:
    """Add a round to each group with a disturbed one, as far as the budget goes.

    Each group repeats one round at most, the one with most disturbed processes.

    Returns:
        The groups, and a warning where more than half of a paper's timed processes were disturbed:
        on such a machine a repetition would be disturbed, too, and none is made.
    """
    found: list[GroupKey] = []
    warnings: list[str] = []
    for paper in _papers(plan):
        groups = timed_groups(plan, paper, rows)
        hashes = {planned.hash for group in groups for planned in group.cells}
        timed = [row for row in rows if row.cell_hash in hashes and not row.instrumented]
        disturbed = [row for row in timed if row.disturbed]
        if len(disturbed) > SHARED_MACHINE * len(timed):
            warnings.append(
                f"{len(disturbed)} of {len(timed)} timed processes of {paper} were disturbed "
                f"({disturbed[0].disturbed} and the like), so no round is repeated"
            )
            continue
        counts: dict[GroupKey, Counter[int]] = defaultdict(Counter)
        for row in disturbed:
            counts[row.paper, row.experiment, row.group][row.round] += 1
        left = seconds_left(plan, paper, rows)
        for group in groups:
            if group.key not in counts or group.cells[0].again or left < group.cost_s:
                continue
            left -= group.cost_s
            by_round = counts[group.key]
            worst = max(sorted(by_round), key=by_round.__getitem__)
            group.extend(1)
            for planned in group.cells:
                planned.again = (planned.cell.repeats, worst)
            found.append(group.key)
    return found, "; ".join(warnings)


def timed_groups(plan: Plan, paper: str, rows: Sequence[Row]) -> list[TimedGroup]:
    """Groups of a paper that may get rounds: their cells have the same, `MIN_ROUNDS` or more.

    Cells of which no process succeeded get none, nor do groups whose cells differ in rounds.
    """
    seconds = _seconds(plan, rows)
    failed = {row.cell_hash for row in rows} - {row.cell_hash for row in rows if row.ok}
    cells: dict[GroupKey, list[PlannedCell]] = defaultdict(list)
    for planned in plan.runnable:
        cell = planned.cell
        if cell.paper == paper and cell.repeats >= MIN_ROUNDS and planned.hash not in failed:
            cells[cell.paper, cell.experiment, cell.group].append(planned)
    return [
        TimedGroup(key, members, sum(seconds[planned.hash] for planned in members))
        for key, members in cells.items()
        if len({planned.cell.repeats for planned in members}) == 1
    ]


def seconds_left(plan: Plan, paper: str, rows: Sequence[Row]) -> float:
    """Seconds of a paper's budget that neither its rows took nor its planned processes will.

    A paper's share of the processes that the run has for itself counts, too: the machine's limits
    and the pairs for the noise floor.
    """
    if plan.rounds is None:
        return 0.0
    return max(0.0, plan.rounds.budget_s - _seconds_of(plan, paper, rows))


def _seconds_of(plan: Plan, paper: str, rows: Sequence[Row]) -> float:
    """Seconds that a paper's rows took and its planned processes will take, with its share of the
    run's own."""
    seconds = _seconds(plan, rows)
    mine = [row for row in rows if row.paper == paper]
    done = {(row.cell_hash, row.round, row.instrumented) for row in mine}
    lacking = {row.cell_hash for row in mine if row.status in LACKING}
    spent = sum(row.seconds + PROCESS_S for row in mine if row.seconds > 0)
    spent += _own_seconds(plan, rows) / max(1, len(_papers(plan)))
    for step in plan.steps:
        planned = plan.cells[step.index]
        due = (planned.hash, step.round, step.instrumented) not in done
        if planned.cell.paper == paper and due and planned.hash not in lacking:
            spent += seconds[planned.hash]
    return spent


def _own_seconds(plan: Plan, rows: Sequence[Row]) -> float:
    """Seconds that processes of the run's own took, and that pairs for its noise floor will."""
    own = [row for row in rows if row.paper == "-" and row.seconds > 0]
    pairs = [row.seconds for row in own if row.experiment == "noise"]
    due = max(0, 2 * plan.noise_pairs - len(pairs)) * (fmean(pairs) if pairs else NOISE_S)
    return due + sum(row.seconds + PROCESS_S for row in own)


def _seconds(plan: Plan, rows: Sequence[Row]) -> dict[str, float]:
    """Seconds of a process by cell: the mean of those that ran, else what the plan estimates."""
    times: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if not row.instrumented and row.seconds > 0:
            times[row.cell_hash].append(row.seconds + PROCESS_S)
    return {
        planned.hash: fmean(times[planned.hash])
        if planned.hash in times
        else max(planned.estimate_s, PROCESS_S)
        for planned in plan.cells
    }


def _papers(plan: Plan) -> list[str]:
    return list(dict.fromkeys(planned.cell.paper for planned in plan.runnable))
