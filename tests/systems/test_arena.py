"""The arena: frozen tasks, what enters them, and the table of their races."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dgbench.harness.plan import Plan
from dgbench.harness.store.row import Row
from dgbench.harness.terminal.arena import arena_races, race_table, tuned_hint
from dgbench.lab.arena import (
    BASE,
    DIVISION,
    TUNED,
    ArenaCase,
    ArenaTask,
    Entrant,
    QualitySource,
    races,
)
from dgbench.lab.arena_quality import trained_quality
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.arena import PAPER, tuned
from dgbench.systems.arena import training as training_module
from dgbench.systems.arena.tuned import SearchBudget, Setting, free_switches, search, thread_counts
from dgbench.systems.base import stream
from dgbench.systems.base.kept import begin_kept, kept_in_process
from dgbench.systems.base.registry import get_paper, get_system
from dgbench.systems.gnnflow.experiments import fig8
from dgbench.systems.gnnflow.experiments.quality import whole_task
from dgbench.systems.gnnflow.experiments.settings import EPOCHS

DIGESTS = {
    "snapshot-training@1": "f837503b3e79805d",
    "timeline-training@1": "a529eef6cf1ef087",
    "stream-training@2": "e6db9508137b0784",
    "temporal-sampling@1": "16c5691bbccf8d83",
    "graph-update@1": "71dc2f53ece94630",
    "weighted-draw@1": "1dfe90ccb4aad71f",
}
"""Of each version. A definition that changed needs a new version, and its digest a new line."""

TASK = ArenaTask(
    name="toy", version=1, title="Toying", what="a toy", quality="none", unit="toys",
    cases=(ArenaCase("one", "Graph", ("smoke",), {}),),
    entrants={"a": Entrant("A", "released", "released"), "b": Entrant("B"), "c": Entrant("C")},
    contender="setting", time="operation_time", rate=("throughput", {"of": "items"}),
    factors={"first": ("b", "c"), "second": ("c", "a")},
)  # fmt: skip


def experiment(name: str) -> Any:
    return next(one for one in PAPER.experiments if one.name == name)


def row(number: int, seconds: dict[str, float], **fields: Any) -> Any:
    """A process of the toy task: seconds of a call by contender."""
    found = Measurement()
    for name, taken in seconds.items():
        found.observe("operation_time", taken, samples=[taken] * 3, setting=name)
        found.observe("throughput", 100 / taken, setting=name, of="items")
    params = {"task": TASK.label, "definition": TASK.digest, "case": "one"}
    plain = {
        "id": f"r{number}", "paper": "arena", "experiment": "toy", "params": params,
        "group": "toy/one", "round": number, "preset": "smoke",
        "observed": found.observations,
    }  # fmt: skip
    return Row(**{**plain, **fields})


def rounds(*seconds: dict[str, float]) -> list[Any]:
    return [row(number, one) for number, one in enumerate(seconds, 1)]


def test_definitions_are_frozen() -> None:
    assert replace(TASK, entrants={}, factors={}).digest == TASK.digest
    found = {one.arena_task.label: one.arena_task.digest for one in PAPER.experiments}
    assert found == DIGESTS


def test_a_case_on_another_dataset_is_a_race_of_its_own() -> None:
    case = ArenaCase("g/x", "Graph, X", ("smoke",), {"dataset": "g"})
    task = replace(TASK, cases=(case,))
    params = {"task": task.label, "definition": task.digest, "case": "g/x", "dataset": "g"}
    times = {"a": 1.0, "b": 2.0}
    moved = task.on_dataset(params, "mine")
    rows = [row(1, times, params=params), row(2, times, params=moved)]
    assert [one.case.name for one in races(task, rows)] == ["g/x", "mine/x"]
    assert task.on_dataset(moved, "other")["case"] == "other/x"
    other = {**moved, "dataset": "other"}  # not what the definition says
    assert [one.case.name for one in races(task, [row(1, times, params=other)])] == []


def test_streams_are_raced_as_their_whole_trainings_are_set(monkeypatch) -> None:
    """A rate stands beside the quality of the same task: not one setting differs."""
    racing = experiment("stream-training")
    raced: list[Any] = []
    monkeypatch.setattr(fig8, "race", lambda names, task, *_, **__: raced.append(task))
    monkeypatch.setattr(stream, "load_stream", lambda task: None)
    context = SimpleNamespace(preset="smoke", device="cpu", control=False, round=1)
    frozen = {k: v for k, v in racing.arena_task.settings.items() if k != "epochs"}
    for case in racing.arena_task.cases:
        host = case.settings["race"].partition("/")[2]
        params = {k: v for k, v in case.settings.items() if k != "race"}
        cell = SimpleNamespace(params=params, paper="gnnflow", experiment=host)
        fig8.Fig8().run(cell, context)
        assert raced[-1] == whole_task(params["dataset"], params["model"])
        assert {key: getattr(raced[-1], key) for key in frozen} == frozen
    assert racing.arena_task.settings["epochs"] == EPOCHS


def test_ratios_are_to_the_fastest_round_by_round() -> None:
    """A drift that all contenders share leaves no trace in the ratios."""
    drift = [1.0, 1.7, 0.6, 1.2]
    made = rounds(*({"a": d, "b": 2 * d, "c": 2 * d * (1 + 0.01 * k)} for k, d in enumerate(drift)))
    (race,) = races(TASK, made)
    assert [one.name for one in race.timed] == ["a", "b", "c"]
    first, second, third = race.timed
    assert first.ratio is None
    assert first.rate == pytest.approx((100 + 100 / 1.2) / 2)  # of 100, 58.8, 166.7 and 83.3
    assert second.ratio.value == pytest.approx(2.0)
    mean = math.exp(sum(math.log(2 * (1 + 0.01 * k)) for k in range(4)) / 4)
    assert third.ratio.value == pytest.approx(mean)
    assert second.behind
    assert race.leaders == (first,)


def test_races_of_a_run_have_the_floor_of_its_controls() -> None:
    """Five pairs of one thing with itself that lie 20 % apart hide a difference of 5 %."""
    made = rounds(*({"a": d, "b": 1.05 * d} for d in (1.0, 1.1, 0.9)))
    for number, ratio in enumerate((1.2, 1 / 1.2, 1.2, 1 / 1.2, 1.2)):
        noise = Measurement()
        noise.observe("control_ratio", ratio)
        made.append(row(20 + number, {}, observed=noise.observations, params={}))
    toy = SimpleNamespace(
        name="toy", arena_task=TASK, main_race=None,
        races=lambda rows, floor, **_: races(TASK, rows, floor=floor),
    )  # fmt: skip
    paper = SimpleNamespace(name="arena", experiments=(toy,))
    for rows, leaders in ((made, {"a", "b"}), (made[:3], {"a"})):
        (race,) = arena_races([paper], rows)
        assert {one.name for one in race.leaders} == leaders


def parts(race: Any) -> tuple[str, str, list[str]] | None:
    """Pair and names of factors of a race's breakdown."""
    whole = race.breakdown
    return whole and (whole.slow, whole.fast, list(whole.parts))


def test_additions_of_dgbench_do_not_rank_unless_asked_for() -> None:
    """`a` is `c` with additions: the race is of `c` and `b`, and the gain ends with `c`."""
    entrants = TASK.entrants | {
        "c": Entrant("C", form_of="a"), "a": Entrant("C + dgbench", adds_to="c"),
    }  # fmt: skip
    task = replace(TASK, entrants=entrants)
    made = rounds(*({"a": d, "b": 6 * d, "c": 2 * d} for d in (1.0, 1.1, 0.9)))
    (race,) = races(task, made)
    assert [one.name for one in race.timed] == ["c", "b"]
    assert [one.name for one in race.entries] == ["c", "b", "a"]
    assert race.lead.value == pytest.approx(3.0)
    assert parts(race) == ("b", "c", ["first"])
    (ours,) = race.additions
    assert (ours.gain.value, ours.ratio.value) == (pytest.approx(2.0), pytest.approx(0.5))
    assert "+ dgbench)" in race_table([race])
    (race,) = races(task, made, with_ours=True)
    assert [one.name for one in race.timed] == ["a", "c", "b"]
    assert not race.additions
    assert parts(race) == ("b", "a", ["first", "second"])
    (race,) = races(task, rounds(*({"a": d} for d in (1.0, 1.1, 0.9))))
    assert not race.timed  # of the published form nothing was timed
    assert [one.gain for one in race.additions] == [None]


@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "paper"])
def test_every_case_of_a_preset_has_cells(preset: Any) -> None:
    for one in PAPER.experiments:
        cells = one.cells(preset, "cpu")
        wanted = {case.name for case in one.arena_task.cases if preset in case.presets}
        assert {cell.params["case"] for cell in cells if "cores" not in cell.unavailable} >= {
            case for case in wanted if not case.endswith("/4")
        }
        assert {cell.params["case"] for cell in cells} == wanted
        assert all(cell.params["definition"] == one.arena_task.digest for cell in cells)


def test_a_system_without_the_declaration_does_not_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin, which is imported in its cell's process alone, is asked there."""
    task = experiment("snapshot-training")
    plugin = type("Plugin", (type(get_system("reference")),), {"name": "plugin", "enters": ()})
    monkeypatch.setattr(training_module, "system_names", lambda: ["plugin", "reference"])
    monkeypatch.setattr(training_module, "third_party", lambda _: {"plugin": None})
    monkeypatch.setattr(training_module, "get_system", lambda _: plugin())
    (cell,) = (one for one in task.cells("smoke", "cpu") if one.params["system"] == "plugin")
    assert not cell.unavailable
    context = RunContext("cpu", "smoke", 1)
    with pytest.raises(UnsupportedError, match="does not enter snapshot-training@1"):
        task.run(cell, context)
    plugin.enters = ("snapshot-training@1",)
    measured = Measurement()
    measured.observe("step_time", 0.5)
    monkeypatch.setattr(training_module, "timed", lambda name, *_, **__: {"plugin": measured}[name])
    found = task.run(cell, context)
    (rate,) = (one for one in found.observations if one.metric == "throughput")
    assert rate.value == 129 * 16 / 0.5  # regions of England, snapshots of a frame


FORMS = replace(TASK, entrants=TASK.entrants | {"b": Entrant("B", form_of="a")})
DRIFT = (1.0, 1.1, 0.9)


@pytest.mark.parametrize(
    ("task", "seconds", "rival", "decided"),
    [(FORMS, [{"a": d, "b": 1.01 * d, "c": 3 * d} for d in DRIFT], "c", True),
     (TASK, [{"a": d, "b": 1.01 * d, "c": 3 * d} for d in DRIFT], "b", True),
     (FORMS, [{"a": d, "b": 2 * d} for d in DRIFT], "b", True),  # nobody else was there
     (FORMS, [{"c": 1.0, "a": 1.1, "b": 1.0}, {"c": 1.1, "a": 1.0, "b": 1.1},
              {"c": 1.0, "a": 1.0, "b": 1.0}], None, False),
     # "b" is the next and behind, "c" is not told from the first.
     (TASK, [{"a": 1.0, "b": 2.0, "c": c} for c in (1.0, 9.0, 1.2)], None, False)],
)  # fmt: skip
def test_a_system_does_not_race_against_its_own_forms(task, seconds, rival, decided) -> None:
    (race,) = races(task, rounds(*seconds))
    assert race.decided is decided
    assert rival is None or race.rival.name == rival


def test_a_chain_ends_where_a_factor_is_missing() -> None:
    """Factors of two chains never multiply: each is of contenders that the other does not have."""
    task = replace(TASK, factors={"x": ("b", "c"), "y": ("c", "a"), "z": ("d", "e")})
    assert task.chains == [("x", "y"), ("z",)]
    (race,) = races(task, rounds(*({"a": d, "b": 6 * d, "c": 2 * d} for d in (1.0, 1.1, 0.9))))
    assert parts(race) == ("b", "a", ["x", "y"])
    (race,) = races(task, rounds(*({"d": 3 * d, "e": d, "a": 5 * d} for d in (1.0, 1.1, 0.9))))
    assert parts(race) == ("d", "e", ["z"])


def training(seed: int | None, scores: list[float], method: str = "", **fields: Any) -> Any:
    """A whole training of the toy's model, or scores of a predictor that trains nothing."""
    found = Measurement()
    if method:
        found.observe("mrr", scores[-1], method=method)
    else:
        for epoch, score in enumerate(scores):
            found.observe("mrr", score, epoch=epoch, of="validation")
            found.observe("epoch_time", 1.0, epoch=epoch, clock="processor")
        found.observe("mrr", scores[-1])
    params = {"dataset": "graph", "part": "untrained" if method else "trained"}
    params |= {} if method else {"model": "net", "seed": seed}
    plain = {"params": params, "preset": "quality", "run": "kept1"} | fields
    return row(100 + (seed or 0), {}, paper="other", experiment="quality",
               observed=found.observations, **plain)  # fmt: skip


def quality_race() -> Any:
    case = ArenaCase("one", "Graph", ("smoke",), {"dataset": "graph", "model": "net"})
    task = replace(TASK, cases=(case,), trained=QualitySource("other", "quality", "mrr"))
    made = rounds(*({"a": d, "b": 2 * d} for d in (1.0, 1.1, 0.9)))
    for one in made:
        one.params["definition"] = task.digest
    return races(task, made)[0]


def test_quality_comes_from_whole_trainings_on_the_same_dataset_and_model() -> None:
    race = quality_race()
    rows = [training(seed, [0.1, 0.2, 0.3 + 0.001 * seed, 0.25]) for seed in range(1, 6)]
    for untrained, below in ((0.2, False), (0.9, True)):
        judged = trained_quality(race, [*rows, training(None, [untrained], method="edgebank")])
        assert (judged.run, judged.epochs, judged.below) == ("kept1", 3, below)


@pytest.mark.parametrize(
    ("rows", "why"),
    [([], "no whole training"), ([training(1, [0.1])], "fewer than five"),
     ([training(s, [0.1], preset="quick") for s in range(5)], "no whole training"),
     ([training(s, [0.1], params={"dataset": "other", "model": "net"}) for s in range(5)],
      "no whole training")],
)  # fmt: skip
def test_without_enough_trainings_a_race_says_why(rows: list[Any], why: str) -> None:
    judged = trained_quality(quality_race(), rows)
    assert judged.quality is None
    assert why in judged.reason


# --- the tuned division ---------------------------------------------------------------------------

BUDGET = SearchBudget(trials=6, seconds=100.0, trial_s=0.01)
SNAPSHOTS = next(one for one in PAPER.experiments if one.name == "snapshot-training")
PUBLISHED, OURS = "pipad, as published", {"fused_gates", "compiled_step", "cache_rule", "resident"}


def seconds_by(gains: dict[Any, float], seen: list[Setting]) -> Any:
    """Seconds of a setting: a product of gains by number of threads and by switches that are on."""

    def seconds(setting: Setting) -> float:
        seen.append(setting)
        on = [name for name, is_on in setting.switches.items() if is_on]
        return math.prod(gains.get(name, 1.0) for name in (setting.threads, *on))

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
    assert [thread_counts(count) for count in (6, 1)] == [[6, 4, 2, 1], [1]]


def test_a_search_ends_with_its_budget() -> None:
    """Each trial takes two seconds; none begins after the last second."""
    start = Setting(2, dict.fromkeys("abcdefgh", False))
    for change, trials in (({}, 6), ({"trials": 3}, 3), ({"seconds": 7.0}, 4)):
        seen: list[Setting] = []
        seconds, clock = seconds_by({}, seen), lambda seen=seen: 2.0 * len(seen)
        result = search(start, list("abcdefgh"), seconds, replace(BUDGET, **change), clock)
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
    chosen = {"threads": 2, "trials": 5, "reuse": 0} if division else {}
    made = []
    for (name, taken), number in product(seconds.items(), (1, 2, 3)):
        found = Measurement()
        found.observe("step_time", taken, samples=[taken] * 3)
        found.observe("throughput", 100 / taken, of="vertex_steps")
        for of, value in chosen.items():
            found.observe("tuned_setting", value, of=of)
        params = {**SNAPSHOTS.params(SNAPSHOTS.arena_task.cases[0].name), "system": name}
        params |= {DIVISION: division} if division else {}
        named = {"id": f"{name}{division}{number}", "experiment": "snapshot-training"}
        where = {"params": params, "group": f"g{division}"}
        made.append(row(number, {}, **named, **where, observed=found.observations))
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
