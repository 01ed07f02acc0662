"""The arena: frozen tasks, what enters them, and the table of their races."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.harness.terminal.arena import arena_races, race_table
from dgbench.lab.arena import ArenaCase, ArenaTask, Entrant, QualitySource, races
from dgbench.lab.arena_quality import trained_quality
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.arena import PAPER
from dgbench.systems.arena import training as training_module
from dgbench.systems.base import stream
from dgbench.systems.base.registry import get_system
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
    plain: dict[str, Any] = {
        "id": f"r{number}", "paper": "arena", "experiment": "toy", "params": params,
        "group": "toy/one", "round": number, "device": "cpu", "preset": "smoke", "status": "ok",
        "reason": "", "time": None, "instrumented": False, "replaced": False, "looks": 0,
        "deviation": {},
        "notes": [], "checks": [], "data": {}, "observations": found.observations,
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **fields})


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


@pytest.mark.parametrize(
    "changed",
    [{"what": "another toy"}, {"unit": "dolls"}, {"cases": ()}, {"quality": "some"}, {"version": 2},
     {"settings": {"frame": 8}}, {"time": "step_time"}],
)  # fmt: skip
def test_what_defines_a_task_changes_its_digest(changed: dict[str, Any]) -> None:
    assert replace(TASK, **changed).digest != TASK.digest


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
    assert second.ratio is not None
    assert second.ratio.value == pytest.approx(2.0)
    assert third.ratio is not None
    mean = math.exp(sum(math.log(2 * (1 + 0.01 * k)) for k in range(4)) / 4)
    assert third.ratio.value == pytest.approx(mean)
    assert second.behind
    assert race.leaders == (first,)


def test_a_difference_inside_the_noise_floor_is_none() -> None:
    made = rounds(*({"a": d, "b": 1.05 * d} for d in (1.0, 1.1, 0.9)))
    (race,) = races(TASK, made)
    assert [one.name for one in race.leaders] == ["a"]
    (race,) = races(TASK, made, floor=0.06)
    assert {one.name for one in race.leaders} == {"a", "b"}


def test_races_of_a_run_have_the_floor_of_its_controls() -> None:
    """Five pairs of one thing with itself that lie 20 % apart hide a difference of 5 %."""
    made = rounds(*({"a": d, "b": 1.05 * d} for d in (1.0, 1.1, 0.9)))
    for number, ratio in enumerate((1.2, 1 / 1.2, 1.2, 1 / 1.2, 1.2)):
        noise = Measurement()
        noise.observe("control_ratio", ratio)
        made.append(row(20 + number, {}, observations=noise.observations, params={}))
    toy = SimpleNamespace(
        name="toy", arena_task=TASK, main_race=None,
        races=lambda rows, floor, **_: races(TASK, rows, floor=floor),
    )  # fmt: skip
    paper = SimpleNamespace(name="arena", experiments=(toy,))
    (race,) = arena_races([paper], made)
    assert {one.name for one in race.leaders} == {"a", "b"}
    (race,) = arena_races([paper], made[:3])
    assert [one.name for one in race.leaders] == ["a"]


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
    assert race.lead is not None
    assert race.lead.value == pytest.approx(3.0)
    assert parts(race) == ("b", "c", ["first"])
    (ours,) = race.additions
    assert ours.gain is not None
    assert ours.ratio is not None
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
    asked: list[Any] = []
    plugin.enters = ("snapshot-training@1",)
    monkeypatch.setattr(training_module, "timed", lambda *given, **named: _timed(asked, *given))
    found = task.run(cell, context)
    assert asked[0][0] == "plugin"
    (rate,) = (one for one in found.observations if one.metric == "throughput")
    assert rate.value == 129 * 16 / 0.5  # regions of England, snapshots of a frame


def _timed(asked: list[Any], *given: Any) -> Measurement:
    asked.append(given)
    found = Measurement()
    found.observe("step_time", 0.5)
    return found


def test_a_system_does_not_race_against_its_own_forms() -> None:
    entrants = TASK.entrants | {"b": Entrant("B", form_of="a")}
    apart = rounds(*({"a": d, "b": 1.01 * d, "c": 3 * d} for d in (1.0, 1.1, 0.9)))
    (race,) = races(replace(TASK, entrants=entrants), apart)
    assert race.rival is not None
    assert race.rival.name == "c"
    assert race.lead is not None
    assert race.lead.value == pytest.approx(3.0)
    assert race.decided
    (plain,) = races(TASK, apart)
    assert plain.rival is not None
    assert plain.rival.name == "b"
    alone = rounds(*({"a": d, "b": 2 * d} for d in (1.0, 1.1, 0.9)))
    (race,) = races(replace(TASK, entrants=entrants), alone)  # nobody else was there
    assert race.rival is not None
    assert race.rival.name == "b"
    close = rounds(
        {"c": 1.0, "a": 1.1, "b": 1.0},
        {"c": 1.1, "a": 1.0, "b": 1.1},
        {"c": 1.0, "a": 1.0, "b": 1.0},
    )
    (race,) = races(replace(TASK, entrants=entrants), close)
    assert not race.decided
    wide = rounds(*({"a": 1.0, "b": 2.0, "c": c} for c in (1.0, 9.0, 1.2)))
    (race,) = races(TASK, wide)  # "b" is the next and behind, "c" is not told from the first
    assert race.rival is not None
    assert any(one.behind for one in race.timed)
    assert not race.decided


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
    made = row(100 + (seed or 0), {}, paper="other", experiment="quality", preset="quality",
               params=params, observations=found.observations, run="kept1")  # fmt: skip
    for name, value in fields.items():
        setattr(made, name, value)
    return made


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
    rows.append(training(None, [0.2], method="edgebank"))
    judged = trained_quality(race, rows)
    assert judged is not None
    assert judged.quality is not None
    assert judged.run == "kept1"
    assert judged.epochs == 3
    assert not judged.below
    better = [*rows[:-1], training(None, [0.9], method="edgebank")]
    judged = trained_quality(race, better)
    assert judged is not None
    assert judged.below


@pytest.mark.parametrize(
    ("rows", "why"),
    [([], "no whole training"), ([training(1, [0.1])], "fewer than five"),
     ([training(s, [0.1], preset="quick") for s in range(5)], "no whole training"),
     ([training(s, [0.1], params={"dataset": "other", "model": "net"}) for s in range(5)],
      "no whole training")],
)  # fmt: skip
def test_without_enough_trainings_a_race_says_why(rows: list[Any], why: str) -> None:
    judged = trained_quality(quality_race(), rows)
    assert judged is not None
    assert judged.quality is None
    assert why in judged.reason
