"""The tuned division of the arena: what is searched, under which budget, apart from the base."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dgbench.harness.plan import Plan
from dgbench.harness.terminal.arena import race_table, tuned_hint
from dgbench.lab.arena import BASE, DIVISION, TUNED, Entrant, races
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.systems.arena import PAPER, tuned
from dgbench.systems.arena.tuned import SearchBudget, Setting, free_switches, search, thread_counts
from dgbench.systems.base.kept import begin_kept, kept_in_process
from dgbench.systems.base.registry import get_paper, get_system

BUDGET = SearchBudget(trials=6, seconds=100.0, trial_s=0.01)
SNAPSHOTS = next(one for one in PAPER.experiments if one.name == "snapshot-training")
PUBLISHED, OURS = "pipad, as published", {"fused_gates", "compiled_step", "cache_rule", "resident"}


def seconds_by(gains: dict[Any, float], seen: list[Setting]) -> Any:
    """Seconds of a setting: a product of gains by number of threads and by switches that are on."""

    def seconds(setting: Setting) -> float:
        seen.append(setting)
        total = gains.get(setting.threads, 1.0)
        for name, on in setting.switches.items():
            total *= gains.get(name, 1.0) if on else 1.0
        return total

    return seconds


def test_a_search_keeps_each_change_that_is_faster() -> None:
    start = Setting(4, {"good": False, "bad": True, "same": False, "slight": False})
    gains = {4: 2.0, 2: 1.0, 1: 3.0, "good": 0.5, "bad": 1.5, "slight": 0.99}
    seen: list[Setting] = []
    budget = replace(BUDGET, trials=99)
    result = search(start, list(start.switches), seconds_by(gains, seen), budget)
    assert result.setting.threads == 2
    assert result.setting.switches == {"good": True, "bad": False, "same": False, "slight": False}
    assert result.trials == len(seen) == 2 + 2 + 4  # the first setting twice
    assert thread_counts(6) == [6, 4, 2, 1]
    assert thread_counts(1) == [1]


@pytest.mark.parametrize(
    ("budget", "trials"),
    [(BUDGET, 6), (replace(BUDGET, trials=3), 3), (replace(BUDGET, seconds=7.0), 4)],
)
def test_a_search_ends_with_its_budget(budget: SearchBudget, trials: int) -> None:
    """Each trial takes two seconds; none begins after the last second."""
    start = Setting(2, dict.fromkeys("abcdefgh", False))
    seen: list[Setting] = []
    result = search(start, list("abcdefgh"), seconds_by({}, seen), budget, lambda: 2.0 * len(seen))
    assert result.trials == len(seen) == trials


def test_additions_of_dgbench_are_searched_for_nobody_else() -> None:
    """Of PiPAD as published what its form sets stays, too; without techniques nothing is tried."""
    system = get_system("pipad")
    entrants = SNAPSHOTS.arena_task.entrants
    published = free_switches(system, entrants[PUBLISHED], system.forms[PUBLISHED])
    assert {"reuse", "pipeline", "tuner"} <= set(published)
    assert not set(published) & (OURS | {"arena", "slice_coalescing"})
    with_ours = free_switches(system, entrants["pipad"], {})
    assert set(with_ours) >= OURS | set(published)
    bare = "pipad, all off"
    assert free_switches(system, entrants[bare], system.forms[bare]) == []
    stale = [one.name for one in get_system("dgc").techniques if not one.exact]
    assert stale
    assert not set(stale) & set(free_switches(get_system("dgc"), Entrant("DGC"), {}))


def cell_of(system: str, *divisions: Any) -> Any:
    cells = SNAPSHOTS.in_divisions(*divisions).cells("smoke", "cpu")
    (cell,) = (one for one in cells if one.params["system"] == system)
    return cell


def settings_of(measurement: Measurement) -> list[Any]:
    return [one for one in measurement.observations if one.metric == "tuned_setting"]


def test_a_tuned_row_is_checked_like_the_base_and_says_what_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = RunContext("cpu", "smoke", 2, budget_s=0.02)
    base = SNAPSHOTS.run(cell_of(PUBLISHED, BASE), context)
    begin_kept({})
    opened: list[tuple[Any, dict[str, bool], int]] = []

    def spied(system: Any, workload: Any, context: Any, switches: Any) -> Any:
        opened.append((workload, dict(switches), torch.get_num_threads()))
        return open_trainer(system, workload, context, switches)

    open_trainer = tuned.open_trainer
    monkeypatch.setattr(tuned, "open_trainer", spied)
    budget = SearchBudget(trials=5, seconds=600.0, trial_s=0.01)
    monkeypatch.setattr(tuned, "BUDGETS", {None: budget})  # a busy machine is slow
    cell = cell_of(PUBLISHED, TUNED)
    before = torch.get_num_threads()
    found = SNAPSHOTS.run(cell, context)
    assert torch.get_num_threads() == before
    chosen = settings_of(found)
    values = {one.dims["of"]: one.value for one in chosen}
    assert values["trials"] == len(opened) == budget.trials
    assert values["threads"] in (1, 2)
    assert {count for *_, count in opened} == {1, 2}
    assert all(check.passed for check in found.checks)
    assert [one.of for one in found.checks] == [one.of for one in base.checks]  # of drawn frames
    # No batch is searched, which would be another training, and nothing of ours is tried.
    task = SNAPSHOTS.workload(SNAPSHOTS.arena_task.case_of(cell.params), "smoke")
    assert {workload for workload, *_ in opened} == {task}
    assert any(SNAPSHOTS.arena_task.batch in words for words in found.notes)
    assert not any(on for _, switches, _ in opened for name, on in switches.items() if name in OURS)
    # A later process of the run takes over what the first one chose.
    made, _ = kept_in_process()
    begin_kept(made, sealed=True)
    opened.clear()
    again = SNAPSHOTS.run(cell, replace(context, round=2))
    assert not opened
    assert settings_of(again) == chosen


def test_the_base_division_has_the_same_cells_whatever_runs_beside_it() -> None:
    for one in PAPER.experiments:
        base = one.cells("quick", "cpu")
        assert one.in_divisions(BASE).cells("quick", "cpu") == base
        both = one.in_divisions(BASE, TUNED).cells("quick", "cpu")
        assert both[: len(base)] == base
        assert not any(DIVISION in cell.params for cell in base)
        apart = both[len(base) :]
        assert apart == one.in_divisions(TUNED).cells("quick", "cpu")
        assert {cell.params[DIVISION] for cell in apart} == {TUNED}
        assert not {cell.group for cell in apart} & {cell.group for cell in base}
        assert not any(one.controls(cell) for cell in apart)
    plan = Plan.build([get_paper("arena")], ["snapshot-training"], "quick", "cpu")
    assert not any(DIVISION in planned.cell.params for planned in plan.cells)


def rows_of(seconds: dict[str, float], division: str = "") -> list[Any]:
    """Three processes of each of some systems."""
    made = []
    for name, taken in seconds.items():
        for number in (1, 2, 3):
            observed = Measurement()
            observed.observe("step_time", taken, samples=[taken] * 3)
            observed.observe("throughput", 100 / taken, of="vertex_steps")
            if division:
                for of, value in (("threads", 2), ("trials", 5), ("reuse", 0)):
                    observed.observe("tuned_setting", value, of=of)
            case = SNAPSHOTS.arena_task.cases[0].name
            params = {**SNAPSHOTS.params(case), "system": name}
            params |= {DIVISION: division} if division else {}
            made.append(SimpleNamespace(
                id=f"{name}{division}{number}", paper="arena", experiment="snapshot-training",
                params=params, group=f"g{division}", round=number, device="cpu", preset="quick",
                status="ok", reason="", time=taken, instrumented=False, replaced=False, looks=0,
                deviation={}, notes=[], checks=[], data={}, observations=observed.observations,
                run="r", resumed=0, provenance="", node="",
            ))  # fmt: skip
    return made


def test_tuned_rows_change_nothing_of_the_base_race() -> None:
    base = rows_of({"reference": 2.0, PUBLISHED: 1.0})
    beside = rows_of({"reference": 0.1, PUBLISHED: 0.2, "pygt": 0.01}, TUNED)
    assert SNAPSHOTS.races([*base, *beside]) == SNAPSHOTS.races(base)
    (race,) = SNAPSHOTS.races([*beside, *base])
    assert [one.name for one in race.timed] == [PUBLISHED, "reference"]
    assert [one.tuned for one in race.timed] == [None, None]
    (other,) = SNAPSHOTS.races([*base, *beside], division=TUNED)
    assert [one.name for one in other.timed] == ["pygt", "reference", PUBLISHED]
    chosen = other.timed[0].tuned
    assert chosen is not None
    assert (chosen.threads, chosen.trials, dict(chosen.switches)) == (2, 5, {"reuse": False})
    assert race_table([race]) == race_table(SNAPSHOTS.races(base))
    assert "3 times" in tuned_hint([other])
    assert tuned_hint([]) == ""
    assert not races(SNAPSHOTS.arena_task, base, division=TUNED)
