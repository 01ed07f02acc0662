"""Rounds that are added while something is undecided: who gets them, when they end, and what the
intervals say then. Runs are simulated, but for one."""

from __future__ import annotations

import math
from collections import defaultdict

import msgspec
import pytest
from fake_papers import cell, make_paper
from passed_checks import PASSED

from dgbench.harness.plan import Plan, RoundsRule
from dgbench.harness.plan.plan import NOISE_S, PROCESS_S
from dgbench.harness.plan.rounds import RoundsRecord, stages
from dgbench.harness.probes.disturbance import disturbance
from dgbench.harness.runner.adding import RoundAdder
from dgbench.harness.store import Row
from dgbench.harness.store.standing import mark_replaced
from dgbench.lab.compare import paired
from dgbench.lab.judging import judging
from dgbench.lab.table import Observation

ENDLESS = RoundsRule(most=20, budget_s=1e9)


class Memory:
    """A store without files that keeps the last plan as JSON."""

    def __init__(self, rows=()):
        self.written_rows, self.plan = list(rows), b""

    def rows(self):
        return list(mark_replaced(self.written_rows))

    def write_plan(self, plan):
        self.plan = msgspec.json.encode(plan)


def race(*groups, repeats=5, rule=ENDLESS, contenders="ab"):
    cells = [cell(who, repeats=repeats, group=str(g)) for g in groups for who in contenders]
    return Plan.build([make_paper(*cells)], None, "quick", control="none", rounds=rule)


def timed_row(planned, number, time, **fields):
    one = planned.cell
    sample = Observation(metric="step_time", value=time, samples=[time])
    return Row(
        id=f"{planned.hash}-r{number}", cell_hash=planned.hash, paper=one.paper,
        experiment=one.experiment, params=dict(one.params), group=one.group, round=number,
        observed=[sample], checks=[PASSED], **{"seconds": 1.0} | fields,
    )  # fmt: skip


def simulate(plan, look, time_of, store=None, most=10**9, notes=None, **fields):
    """Run a plan as the runner does, at most so many processes; the store.

    Args:
        time_of: from (cell, round) to seconds of a step. fields: of rows, by a function of both.
    """
    store = store or Memory()
    adder = RoundAdder(plan, store, look)
    notes = [] if notes is None else notes
    while True:
        done = {(row.cell_hash, row.round) for row in store.written_rows}
        for step in plan.steps:
            planned = plan.cells[step.index]
            if (planned.hash, step.round) in done:
                continue
            if len(store.written_rows) == most:
                return store
            adder.settle(planned, step.round)
            more = {name: of(planned.cell, step.round) for name, of in fields.items()}
            row = timed_row(planned, step.round, time_of(planned.cell, step.round), **more)
            adder.stamp(row)
            store.written_rows.append(row)
        if not adder.add(notes.append):
            store.record = adder.record
            return store


def ratios(rows, floor=0.0):
    by_group = defaultdict(list)
    for row in rows:
        by_group[row.paper, row.experiment, row.group].append(row)
    with judging(floor):
        return {key: paired(mine, {"how": "a"}, {"how": "b"}) for key, mine in by_group.items()}


def undecided(floor=0.0):
    """A look that opens the groups whose interval holds an end of the band."""
    return lambda rows: {key for key, one in ratios(rows, floor).items() if one.open}


def rounds_by_cell(rows):
    found = defaultdict(set)
    for row in rows:
        found[row.group, row.params["how"]].add(row.round)
    return found


@pytest.mark.parametrize(
    ("first", "most", "expected"),
    [(5, 10, [5, 10]), (5, 20, [5, 10, 20]), (5, 5, [5]), (5, 6, [5]), (8, 20, [8, 16, 20])],
)
def test_looks_lie_ever_further_apart_because_each_widens_all_intervals(first, most, expected):
    assert stages(first, most) == expected


def test_a_run_ends_within_its_budget_whatever_its_own_processes_take():
    given = []
    for taken in (0.0, 7.0, 20.0, 40.0):
        own = timed_row(race("limits").cells[0], 1, 1.0, seconds=taken)
        own.paper, own.experiment, own.cell_hash = "-", "machine", "limits"
        plan = race("g", "h", rule=RoundsRule(most=10, budget_s=50.0))
        everything = lambda rows: {(r.paper, r.experiment, r.group) for r in rows}  # noqa: E731
        store = simulate(plan, everything, lambda *_: 1.0, Memory([own] if taken else []))
        rows = store.written_rows
        spent = sum(row.seconds + PROCESS_S for row in rows)
        planned = 2 * 2 * 5 * (1.0 + PROCESS_S) + taken
        assert spent <= max(50.0, planned + PROCESS_S)
        assert store.record.spent_s["fake"] >= round(spent, 1)
        given.append(len(rows))
    assert sorted(given, reverse=True) == given
    assert given[0] == 2 * 2 * 10
    assert given[-1] == 2 * 2 * 5 + 1


def test_groups_have_their_own_rounds_and_plain_intervals_where_the_budget_ends_before():
    plan = race("g", rule=RoundsRule(most=10, budget_s=3.0))
    store = simulate(plan, lambda rows: {("fake", "behave", "g")}, lambda *_: 1.0)
    assert len(store.rows()) == 10
    assert {row.looks for row in store.rows()} == {0}


def test_the_budget_goes_to_the_cheapest_open_groups_and_the_rest_is_said():
    def seconds(one, number):
        return {"cheap": 1.0, "dear": 3.0, "dearest": 9.0}[one.group]

    own = 2 * 5 * (1.0 + 3.0 + 9.0 + 3 * PROCESS_S + NOISE_S)  # and five pairs for the floor
    plan = race("dearest", "dear", "cheap", rule=RoundsRule(most=10, budget_s=own + 40.0))
    everything = lambda rows: {(r.paper, r.experiment, r.group) for r in rows}  # noqa: E731
    store = simulate(plan, everything, lambda *_: 1.0, seconds=seconds)
    seen = rounds_by_cell(store.rows())
    # A round costs little more than 2, 6 and 18 s: five of the cheap one, four of the next.
    ends = {group: len(seen[group, "a"]) for group in ("cheap", "dear", "dearest")}
    assert ends == {"cheap": 10, "dear": 9, "dearest": 5}
    assert all(seen[group, "a"] == seen[group, "b"] for group in ends)
    assert "1 after the most rounds, 2 because the budget" in store.record.sentence
    looks = {row.group: row.looks for row in store.rows() if row.round == 5}
    assert looks == {"cheap": 2, "dear": 2, "dearest": 2}
    record = store.record
    assert record.added == {"fake/behave/cheap": 5, "fake/behave/dear": 4}
    assert record.looks == {"5": 3, "10": 1}
    assert record.budget_s == own + 40.0 >= record.spent_s["fake"] > own
    assert RoundsRecord.kept({"rounds": msgspec.to_builtins(record)}) == record
    assert RoundsRecord.kept({"rounds": {"looks": 3}}) is RoundsRecord.kept({}) is None


def test_a_contender_that_never_works_gets_no_rounds_and_the_others_stay_together():
    plan = race("g", contenders="abc", rule=RoundsRule(most=10, budget_s=1e9))
    store = simulate(
        plan, lambda rows: {("fake", "behave", "g")}, lambda *_: 1.0,
        status=lambda one, number: "crash" if one.params["how"] == "c" else "ok",
    )  # fmt: skip
    ends = {how: max(rounds) for (_, how), rounds in rounds_by_cell(store.rows()).items()}
    assert ends == {"a": 10, "b": 10, "c": 5}


@pytest.mark.parametrize("cut", [9, 21])
def test_a_run_that_was_cut_goes_on_with_the_same_rounds(cut):
    def times(one, number):
        wave = math.sin(7.0 * number + len(one.group) + ord(one.params["how"]))
        return 1.0 + 0.01 * wave + 0.3 * (one.group == "far" and one.params["how"] == "a")

    def disturbed(one, number):
        return "a neighbour" if (one.group, number) == ("near", 2) else ""

    def fresh():
        return race("near", "far", rule=RoundsRule(most=10, budget_s=60.0))

    whole = simulate(fresh(), undecided(), times, disturbed=disturbed)
    plan = fresh()
    first = simulate(plan, undecided(), times, most=cut, disturbed=disturbed)
    if first.plan:
        plan = msgspec.json.decode(first.plan, type=Plan)
    rest = simulate(plan, undecided(), times, store=first, disturbed=disturbed)
    assert [r.id for r in rest.written_rows] == [r.id for r in whole.written_rows]
    assert [(r.looks, r.repeats) for r in rest.rows()] == [
        (r.looks, r.repeats) for r in whole.rows()
    ]
    assert rest.record == whole.record


@pytest.mark.parametrize("hit", ["ab", "a", ""])
def test_a_repeat_counts_only_where_it_was_less_disturbed(hit):
    def disturbed(one, number):
        bad = {2: "a", 6: hit}.get(number, "")
        return "a neighbour" if one.group == "g" and one.params["how"] in bad else ""

    store = simulate(race("g", "h"), lambda rows: set(), lambda *_: 1.0, disturbed=disturbed)
    rows = store.rows()
    assert {r.round for r in rows if r.repeats} == {6}
    assert {(r.group, r.round) for r in rows if r.replaced} == {("g", 6 if hit else 2)}
    assert ratios(rows)["fake", "behave", "g"].n == 5
    cut = mark_replaced([r for r in store.written_rows if (r.round, r.params["how"]) != (6, "b")])
    assert {r.round for r in cut if r.replaced} == {6}  # a repeat that was cut replaces nothing


@pytest.mark.parametrize(
    ("probes", "said"),
    [
        ({}, ""),
        ({"other_cpu_percent": 20.0, "stolen_cpu_percent": 2.0, "cpu_throttled": 0}, ""),
        ({"other_cpu_percent": 60.0}, "other processes"),
        ({"gpu_throttle": ["hardware thermal slowdown"]}, "the GPU was throttled"),
        ({"context_switches_involuntary": 900}, "900 involuntary"),
        ({"context_switches_involuntary": 300}, ""),
    ],
)
def test_a_disturbance_is_what_lies_beyond_its_limit(probes, said):
    usual = {"context_switches_involuntary": 50, "cpu_waiting_percent": 10.0}
    earlier = [Row(id=f"e{n}", seconds=1.0, probes=usual) for n in range(2)]
    row = Row(id="r", seconds=1.0, probes=usual | probes)
    found = disturbance(row, earlier)
    assert said in found
    assert bool(found) == bool(said)
