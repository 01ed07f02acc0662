"""Dead networks are seen in every family of workloads; `nox -s liveness` walks all of papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest
import torch
from dgc_tiny import random_sequence
from dgc_tiny import tiny_workload as tiny_sequences
from interactions_tiny import tiny_data as tiny_interactions
from interactions_tiny import tiny_task as tiny_interaction_task
from stream_faults import around
from stream_tiny import tiny_stream
from stream_tiny import tiny_task as tiny_stream_task
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.datasets import EventStream, Origin
from dgbench.harness.store.row import Row
from dgbench.harness.store.standing import judged
from dgbench.lab.experiment import RunContext
from dgbench.lab.result_checks import LIVENESS, ResultCheck, close
from dgbench.systems.base import get_system, liveness, race
from dgbench.systems.base import interaction_checks as checks_of_interactions
from dgbench.systems.base import interaction_trainer as interactions
from dgbench.systems.base import sequences as sequence_base
from dgbench.systems.base import stream as stream_base
from dgbench.systems.base import timeline as timeline_base
from dgbench.systems.base import training as frame_base
from dgbench.systems.base.interaction_checks import ProbeLiveness, check_now, compare, probe
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.base.liveness import ALL_LAYERS
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.esdg.experiments.fig7 import random_graphs
from dgbench.systems.esdg.oracle import TimelineOracle
from dgbench.systems.gnnflow.experiments.trainer_checks import trainer_checks

Checks = list[ResultCheck]
After = Callable[[Any], None]


@dataclass(frozen=True)
class Family:
    """Family of workloads: how it trains and is checked, and how its network dies.

    Attributes:
        run: trains a few steps, lets `After` do something to the trainer, and checks it.
        layer: a layer behind the first, by the beginning of its parameters' names.
        cut: part of the names of parameters, and the value with which what follows is cut off.
        builders: (module, name) of what makes its networks.
    """

    run: Callable[[After], Checks]
    layer: str
    cut: tuple[str, float]
    builders: tuple[tuple[Any, str], ...]


def _frames(after: After) -> Checks:
    task, system = tiny_workload(model="mpnn_lstm"), get_system("pipad")
    trainer = system.open(task)
    trainer.prepare()
    losses = [trainer.step(step) for step in range(3)]
    after(trainer)
    return race.checked_after(system, trainer, task, RunContext("cpu", "smoke", 1), losses)


def _timeline(after: After, later: bool = False) -> Checks:
    data, task = random_graphs(48, steps=9), TimelineWorkload(dataset="random", model="tm_gcn")
    oracle, trainers = TimelineOracle(task, data), {"plain": PlainTimeline(task, data)}
    before = None if later else oracle.first_results(trainers)
    for _ in range(3):
        trainers["plain"].step()
    after(trainers["plain"])
    return oracle.later_checks(trainers) if later else oracle.checks_of(trainers, before)


def _sequences(after: After) -> Checks:
    task, data = tiny_sequences(), random_sequence(12, 6, 14, seed=3)
    oracle, trainer = SequenceOracle(task, data), PlainSequences(task, data)
    for _ in range(3):
        trainer.step()
    after(trainer)
    return oracle.check_used({"plain": trainer})


def _stream(after: After) -> Checks:
    task = tiny_stream_task("graphsage")
    data = tiny_stream(task, events=120, nodes=20)
    trainer: Any = get_system("gnnflow").open(task, data=data)  # type: ignore[arg-type,call-arg]
    trainer.insert(120)
    for step in range(ALL_LAYERS):
        trainer.step(step % trainer.num_frames)
    after(trainer)
    return trainer_checks({"gnnflow": trainer}, task, data)


def _interactions(after: After) -> Checks:
    task = tiny_interaction_task()
    data = tiny_interactions(task, events=120, nodes=10)
    trainer: Any = get_system("dygnn").open(task, data=data)  # type: ignore[arg-type,call-arg]
    trainer.prepare()
    groups = list(trainer.groups(0, data.train_end))
    for step in range(ALL_LAYERS):
        trainer.train_group(groups[step % len(groups)])
    after(trainer)
    return check_now(trainer, "here")


FRAMES, TIMELINES = ((frame_base, "build_model"),), ((timeline_base, "build_model"),)
BOTH = tuple((one, "build_interaction_model") for one in (interactions, checks_of_interactions))
FAMILIES = {
    "frames": Family(_frames, "lstm_2", ("conv_1.bias", -1e3), FRAMES),
    "timelines": Family(_timeline, "conv_2", ("conv_1.weight", -1.0), TIMELINES),
    "timelines, later": Family(
        partial(_timeline, later=True), "conv_2", ("conv_1.weight", -1.0), TIMELINES
    ),
    "vertex-steps": Family(
        _sequences, "linear", ("conv_1_c.bias", -1e3), ((sequence_base, "build_model"),)
    ),
    "streams": Family(
        _stream, "layers.1", ("layers.0.own.bias", -1e3), ((stream_base, "build_stream_model"),)
    ),
    "interactions": Family(_interactions, "merge", ("interact.bias", -1e3), BOTH),
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=9))


def _dead(checks: Checks) -> list[str]:
    return [check.words for check in checks if check.of == LIVENESS and not check.passed]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_live_network_passes_and_says_how_alive_it_is(name) -> None:
    checks = FAMILIES[name].run(lambda trainer: None)
    assert all(check.passed for check in checks)
    (live,) = [check for check in checks if check.of == LIVENESS]
    wanted = {"outputs", "moved"} | ({"gradients"} if "later" not in name else set())
    assert live.alive.keys() == wanted
    assert all(value >= liveness.BARS[key] for key, value in live.alive.items())


def _built(monkeypatch, family: Family, change: Callable[[str, torch.Tensor], None]) -> None:
    """Let `change` see all parameters of networks of a family when they are made."""
    for module, name in family.builders:

        def built(was: Any, *given: Any, **named: Any) -> Any:
            model = was(*given, **named)
            with torch.no_grad():
                for key, parameter in model.named_parameters():
                    change(key, parameter)
            return model

        around(module, name, built)(monkeypatch)


@pytest.mark.parametrize("death", ["zeros", "units", "layer"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_dead_network_fails(monkeypatch, name, death) -> None:
    """Of zeros, with units that are cut off, or with a layer that is not trained."""
    family = FAMILIES[name]
    part, value = family.cut
    first: dict[str, torch.Tensor] = {}

    def change(key: str, parameter: torch.Tensor) -> None:
        if death == "zeros" and not key.startswith("head"):
            parameter.zero_()
        elif death == "units" and part in key:
            parameter.fill_(value)
        first.setdefault(key, parameter.detach().clone())

    @torch.no_grad()
    def thaw(trainer: Any) -> None:
        for key, parameter in trainer.model.named_parameters():
            if death == "layer" and key.startswith(family.layer):
                parameter.copy_(first[key])

    _built(monkeypatch, family, change)
    words = _dead(family.run(thaw))
    assert words
    assert death != "layer" or all("moved" in one for one in words)


def test_a_row_of_a_dead_network_is_void_with_the_reason() -> None:
    """Liveness alone compares nothing."""
    right = close("outputs", [1.0], [1.0], 1e-5, against="float64 oracle", system="pipad")
    found = liveness.check({"outputs": (0.003, "")}, against="float64 oracle", system="pipad")
    row = Row(
        id="1-r1", paper="pipad", experiment="fig10", status="check", reason="dead",
        params={"system": "pipad", "dataset": "d"}, checks=[right, *found],
    )  # fmt: skip
    rival = msgspec.structs.replace(row, id="1-r2", status="ok", checks=[right], round=2)
    assert [one.status for one in judged([row, rival])] == ["check", "void"]
    (live,) = liveness.check({"outputs": (1.0, "")}, against="float64 oracle")
    assert live.passed
    alone = Row(id="1-r1", paper="pipad", experiment="fig10", checks=[live])
    assert judged([alone])[0].status == "void"


def test_measures() -> None:
    both = {"outputs": (0.9, "")}, {"outputs": (0.04, "")}
    assert not liveness.check(*both, against="float64 oracle")[0].passed  # the smaller counts
    some, rows = torch.zeros(100, 4), torch.arange(100) < 20
    some[:10] = torch.rand(10, 4) + 1
    assert liveness.live_share(some) == pytest.approx(0.1)
    assert liveness.live_share(some, rows) == pytest.approx(0.5)
    rounding = 1e-9 * torch.rand(100, 4) + 1
    for dead in (0 * some, 0 * some + 1, rounding, some * torch.nan):
        assert liveness.live_share(dead) == 0
    gradients = {"a.weight": torch.tensor([3.0]), "b.0.bias": torch.tensor([4.0])}
    assert liveness.smallest_gradient([gradients]) == (pytest.approx(0.6), "a")
    ages = {**gradients, "time.weight": torch.tensor([1e9])}
    assert liveness.smallest_gradient([ages])[1] == "a"


def test_first_events_of_vertices_which_change_nothing_do_not_count() -> None:
    """Of eight events the ends of one alone had been seen before."""
    task = tiny_interaction_task(model="jodie", propagation=False)
    pairs = torch.tensor([[0, 1], *([2 * k, 2 * k + 1] for k in range(8))])
    stream = EventStream.build(
        pairs[:, 0], pairs[:, 1], torch.arange(9.0).double(), num_nodes=16, origin=Origin("new")
    )
    data = interaction_data(stream, task)
    trainer: Any = get_system("jodie").open(task, data=data)  # type: ignore[arg-type,call-arg]
    trainer.prepare()
    trainer.train_group([torch.tensor([0])])
    found = probe(trainer, 1, 9)
    seen: list[ProbeLiveness] = []
    compare(task, data, trainer.state(), found, "here", alive=seen)
    ((share,),) = (one.changed for one in seen)
    assert share > 0.2, "both ends of the first event take it in, and 14 others nothing"


def test_layers_that_old_states_hardly_reach_count_where_they_did_not_move() -> None:
    found = {"push.weight": torch.full((2,), 1e-9), "head.weight": torch.ones(2)}
    moved = {"push": 0.1, "head": 0.1}
    for gap, least, names in (
        (0.1, 1e-5, {"head.weight"}), (0.1, 0.0, set(found)), (0.0, 1e-5, set(found)),
    ):  # fmt: skip
        assert set(liveness.taking_part([found], moved | {"push": gap}, least=least)[0]) == names
