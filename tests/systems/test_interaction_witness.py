"""Training on interactions beside a second implementation that shares no code with it.

As `test_stream_witness` does for streams: `tests.witness.interactions` agrees with every system,
and each fault that is planted in what systems and oracles share makes the two disagree. Over 500
lines: a few lines for each of these faults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as structs_replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from interactions_tiny import tiny_task
from torch import Tensor

from dgbench.datasets import EventStream, Origin
from dgbench.models.streaming import Dygnn, IntervalEdges, Jodie, TimeLstm
from dgbench.systems.base import interactions
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import InteractionWorkload, interaction_data
from dgbench.systems.dygnn.system import DygnnSystem
from dgbench.systems.jodie.system import JodieSystem
from dgbench.systems.tgcn.program import Program
from dgbench.systems.tgcn.system import TgcnSystem
from tests.witness.compared import disagreements
from tests.witness.interactions import InteractionWitness, Outcome

DOUBLE = torch.float64
NODES = 9


@lru_cache
def events_of(kind: str) -> EventStream:
    """61 events with ties, repeated pairs and self loops; of `days` a time value fills batches."""
    draw = torch.Generator().manual_seed(5)
    bipartite = kind == "bipartite"
    src = torch.randint(0, 4 if bipartite else 8, (61,), generator=draw)
    dst = torch.randint(4 if bipartite else 0, 8, (61,), generator=draw)
    src[20:23], dst[20:23] = src[20].clone(), dst[20].clone()
    if not bipartite:
        dst[[7, 30]] = src[[7, 30]]
    t = torch.randint(0, 40, (61,), generator=draw).sort().values.double()
    if kind == "days":
        sizes = torch.tensor([6, 23, 4, 8, 8, 12])
        t = torch.tensor([0, 1, 3, 4, 8, 9]).repeat_interleave(sizes).double()
    return EventStream.build(
        src, dst, 1000 + t, num_nodes=NODES, num_src=4 if bipartite else None, origin=Origin("tiny")
    )


def base(order: str) -> Callable[[InteractionWorkload, Any], InteractionTrainer]:
    """Opens the trainer that systems share."""
    return lambda task, data: InteractionTrainer(task, data, dtype=DOUBLE, order=order)


def baseline(
    padding: bool, sequential: bool = False
) -> Callable[[InteractionWorkload, Any], InteractionTrainer]:
    """Opens DyGNN or JODIE as plugins."""

    def opened(task, data):
        system = DygnnSystem() if task.model == "dygnn" else JodieSystem()
        switches = {"padding": padding, "sequential": sequential}
        if task.model == "dygnn":
            switches["propagation"] = task.propagation
        return system.open(task, data=data, dtype=DOUBLE, switches=switches)

    return opened


def tgcn(**options: Any) -> Callable[[InteractionWorkload, Any], InteractionTrainer]:
    """Opens T-GCN on all edges."""

    def opened(task, data):
        switches = {"sampling": False}
        return TgcnSystem().open(task, data=data, dtype=DOUBLE, switches=switches, **options)

    return opened


OPENED = {
    "t-batches": base("t-batches"),
    "events": base("events"),
    "intervals": base("intervals"),
    "padded": baseline(True),
    "unpadded": baseline(False),
    "padded events": baseline(True, sequential=True),
    "tgcn": tgcn(devices=2),
    "tgcn streamed": tgcn(devices=2, parts=4, resident=False),
}
BY_INTERVALS = ("intervals", "tgcn", "tgcn streamed")


def first_vectors(trainer: InteractionTrainer) -> dict[str, Tensor]:
    """Vectors of all vertices before anything happened."""
    columns = trainer.memory_state().vertices.columns()
    return {name: column[:NODES].clone() for name, column in columns.items() if column.dim() == 2}


def remembered(trainer: InteractionTrainer) -> dict[str, Tensor]:
    """State of all vertices and means of what waits for them, in the names of the witness."""
    state = trainer.memory_state()
    found = {name: column[:NODES] for name, column in state.vertices.columns().items()}
    waits = {name: column[:NODES] for name, column in state.pending.columns().items()}
    for role in "sg":
        count = waits[f"count_{role}"]
        total = waits[f"sum_{role}"]
        if role == "s" and "code_s" in waits:
            total = torch.cat([total, waits["code_s"]], dim=1)
        found[f"waits_{role}"] = (count > 0).float()
        found[f"mean_{role}"] = total / count.clamp(min=1).unsqueeze(1)
        found[f"time_{role}"] = waits[f"time_{role}"] * (count > 0)
        if f"push_{role}" in waits:
            found[f"push_{role}"] = waits[f"push_{role}"]
    return found


def listed(groups: list[list[Tensor]]) -> list[list[list[int]]]:
    """Groups of a trainer as lists."""
    return [[step.tolist() for step in group] for group in groups]


def played(trainer: InteractionTrainer) -> dict[str, Any]:
    """Results of two epochs and of scoring what follows."""
    data, found = trainer.data, {}
    last = len(data.events)

    def note(name: str, outcome: Outcome) -> None:
        for key, value in vars(outcome).items():
            if value == value:
                found[f"{name}, {key}"] = value
        found.update({f"{name}, {key}": value for key, value in remembered(trainer).items()})

    def scored(first: int, last: int, **how: Any) -> Outcome:
        one = trainer.evaluate_range(first, last, **how)
        return Outcome(one.loss, one.ap, one.accuracy)

    note("first epoch", Outcome(trainer.train_epoch()))
    note("second epoch", Outcome(trainer.train_epoch()))
    note("scored", scored(data.train_end, last))
    note("passed", scored(data.train_end, data.validate_end, remember=True))
    note("tested", scored(data.validate_end, last, remember=True))
    found |= {f"trained {name}": p for name, p in trainer.state().items()}
    found["parts"] = (data.train_end, data.validate_end)
    found["unit"] = data.unit
    found["negatives"] = data.negative.tolist()
    return found


_expected: dict[Any, dict[str, Any]] = {}
"""By task, events, and whether these come in intervals."""


def expected(task: InteractionWorkload, kind: str, system: str, trainer: InteractionTrainer,
             begin: dict[str, Tensor], vectors: dict[str, Tensor]) -> dict[str, Any]:  # fmt: skip
    """The same results by the witness; of T-GCN on the intervals that it chose."""
    stream = events_of(kind)
    columns = stream.src.tolist(), stream.dst.tolist(), stream.t.tolist()
    witness = InteractionWitness(
        task, list(zip(*columns, strict=True)), NODES, stream.num_src, begin, vectors
    )

    def groups(first: int, last: int, scored: bool) -> list[list[list[int]]]:
        if not system.startswith("tgcn"):
            return witness.groups(first, last, intervals=system in BY_INTERVALS)
        own = trainer.scoring_groups(first, last) if scored else trainer.groups(first, last)
        return valid_intervals(witness, first, last, listed(own))

    found: dict[str, Any] = {}

    def note(name: str, outcome: Outcome) -> None:
        for key, value in vars(outcome).items():
            if value == value:
                found[f"{name}, {key}"] = value
        found.update({f"{name}, {key}": value for key, value in witness.remembered().items()})

    end, middle, last = witness.train_end, witness.validate_end, len(witness.events)
    for name in ("first epoch", "second epoch"):
        witness.reset()
        note(name, witness.train(groups(0, end, False)))
    note("scored", witness.evaluate(groups(end, last, True)))
    note("passed", witness.evaluate(groups(end, middle, True), remember=True))
    note("tested", witness.evaluate(groups(middle, last, True), remember=True))
    found |= {f"trained {name}": p.detach() for name, p in witness.p.items()}
    found["parts"] = (end, middle)
    found["unit"] = witness.unit
    found["negatives"] = witness.negative
    return found


def valid_intervals(
    witness: InteractionWitness, first: int, last: int, groups: list[list[list[int]]]
) -> list[list[list[int]]]:
    """Intervals that hold each event once, in the order of time, and part no time value.

    Raises:
        AssertionError: they do not.
    """
    every = [k for group in groups for step in group for k in step]
    if sorted(every) != list(range(first, last)):
        raise AssertionError("an event is in no interval, or in several")
    ends = [(min(k for s in g for k in s), max(k for s in g for k in s)) for g in groups]
    for (_, before), (after, _) in pairwise(ends):
        early, late = witness.events[before][2], witness.events[after][2]
        if not (early < late or (early == late and not witness.task.strict_time)):
            raise AssertionError(f"time {late} comes in two intervals or out of order")
    return groups


def compared(task: InteractionWorkload, kind: str, system: str) -> dict[str, float]:
    """Where a system and the witness disagree."""
    trainer = OPENED[system](task, interaction_data(events_of(kind), task))
    begin = {name: p.clone() for name, p in trainer.model.state_dict().items()}
    vectors = first_vectors(trainer)
    own = played(trainer)
    if not system.startswith("tgcn"):
        key = task, kind, system in BY_INTERVALS
        if key not in _expected:
            _expected[key] = expected(task, kind, system, trainer, begin, vectors)
        return disagreements(own, _expected[key])
    try:
        return disagreements(own, expected(task, kind, system, trainer, begin, vectors))
    except AssertionError:
        return {"intervals": 1.0}


@pytest.mark.parametrize("kind", ["ties", "days", "bipartite"])
@pytest.mark.parametrize("model", ["dygnn", "jodie"])
def test_edges_in_order_are_those_of_the_witness(model, kind) -> None:
    for system in ("t-batches", "events", "padded", "unpadded"):
        assert not compared(tiny_task(model=model), kind, system), system


@pytest.mark.parametrize(
    "fields",
    [{"decay": "exp", "activation": "sigmoid"}, {"decay": "inverse", "strict_time": False},
     {"events": 50},
     {"task": "classify", "seed": 3}, {"model": "jodie", "task": "classify", "seed": 3},
     {"model": "jodie", "strict_time": False}],
)  # fmt: skip
def test_settings_are_those_of_the_witness(fields) -> None:
    for system in ("t-batches", "padded"):
        assert not compared(tiny_task(**fields), "ties", system), system


@pytest.mark.parametrize("strict", [True, False])
def test_propagation_is_that_of_the_witness(strict) -> None:
    """Edge by edge: t-batches do not amount to that where an edge changes a third vertex."""
    task = tiny_task(propagation=True, strict_time=strict)
    for system in ("events", "padded events", "intervals"):
        assert not compared(task, "ties", system), system


@pytest.mark.parametrize("kind", ["ties", "days"])
@pytest.mark.parametrize("system", BY_INTERVALS)
@pytest.mark.parametrize("aggregate", ["mean", "last"])
def test_intervals_are_those_of_the_witness(aggregate, system, kind) -> None:
    assert not compared(tiny_task(aggregate=aggregate, intervals=5), kind, system)


# --- planted faults -------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, Plant] = {}
"""By what they do; each is planted in what trainers and oracles of interactions share."""
DYGNN_ALONE: set[str] = set()


def fault(plant: Plant) -> Plant:
    """Register a fault by the words of its name."""
    FAULTS[plant.__name__.replace("_", " ")] = plant
    return plant


def dygnn_fault(plant: Plant) -> Plant:
    """Register a fault of what JODIE does not have."""
    DYGNN_ALONE.add(plant.__name__.replace("_", " "))
    return fault(plant)


def replace(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Let `change` answer, which gets what was there before its arguments."""
    was = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **named: change(was, *given, **named))


def other_groups(patch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Let trainers lay out other groups."""
    replace(patch, InteractionTrainer, "groups", lambda was, *given: change(was(*given)))


@fault
def every_second_group_is_left_out(patch) -> None:
    other_groups(patch, lambda groups: groups[::2])


@fault
def half_of_the_steps_are_left_out(patch) -> None:
    other_groups(patch, lambda groups: [group[::2] for group in groups])


@fault
def the_last_group_is_left_out(patch) -> None:
    other_groups(patch, lambda groups: groups[:-1] or groups)


@fault
def the_first_event_of_a_step_is_left_out(patch) -> None:
    other_groups(
        patch, lambda groups: [[step[step.numel() > 1 :] for step in group] for group in groups]
    )


@fault
def steps_come_backwards(patch) -> None:
    other_groups(patch, lambda groups: [group[::-1] for group in groups])


@fault
def a_group_is_trained_on_twice(patch) -> None:
    other_groups(patch, lambda groups: [*groups[:1], *groups])


@fault
def events_of_one_time_follow_each_other(patch) -> None:
    patch.setattr(InteractionTrainer, "_goes_on", lambda *_: False)
    other_groups(
        patch, lambda groups: [[one for step in group for one in step.split(1)] for group in groups]
    )


@fault
def the_state_is_never_written(patch) -> None:
    patch.setattr(InteractionTrainer, "commit", lambda *_: None)


@fault
def the_state_is_not_forgotten_between_epochs(patch) -> None:
    patch.setattr(InteractionTrainer, "reset_state", lambda _: None)


@fault
def what_is_held_is_lost(patch) -> None:
    patch.setattr(InteractionTrainer, "_write_held", lambda self: setattr(self, "_held", []))


@fault
def scoring_changes_the_state(patch) -> None:
    patch.setattr(InteractionTrainer, "restore_memory", lambda *_: None)


@fault
def scoring_passes_nothing_on(patch) -> None:
    replace(patch, InteractionTrainer, "_passing", lambda was, self, _: was(self, False))


def other_data(patch: pytest.MonkeyPatch, **change: Callable[[Any], Any]) -> None:
    """Let trainers have other data; each change gets the right data."""
    replace(patch, interactions, "InteractionData", lambda was, *given: structs_replace(
        was(*given), **{name: value(was(*given)) for name, value in change.items()}
    ))  # fmt: skip


@fault
def negatives_are_one_vertex(patch) -> None:
    other_data(patch, negative=lambda data: torch.full_like(data.negative, 3))


@fault
def negatives_are_the_destinations(patch) -> None:
    other_data(patch, negative=lambda data: data.events.dst.clone())


@fault
def negatives_are_those_of_the_next_event(patch) -> None:
    other_data(patch, negative=lambda data: data.negative.roll(-1))


@fault
def the_unit_is_that_of_all_events(patch) -> None:
    other_data(patch, unit=lambda data: interactions.time_unit(data.events))


@fault
def validation_is_trained_on(patch) -> None:
    other_data(patch, train_end=lambda data: data.validate_end)


def other_edges(patch: pytest.MonkeyPatch, change: Callable[[IntervalEdges], None]) -> None:
    """Let steps read changed edges."""

    def changed(was, self, events):
        edges = was(self, events)
        change(edges)
        return edges

    replace(patch, InteractionTrainer, "edges", changed)


@fault
def negatives_are_scored_as_the_destinations(patch) -> None:
    other_edges(patch, lambda edges: setattr(edges, "neg", edges.dst))


@fault
def times_are_a_little_late(patch) -> None:
    other_edges(patch, lambda edges: setattr(edges, "t", edges.t + 0.05 * (edges.t > 1020)))


@fault
def times_of_update_are_those_of_the_first_event(patch) -> None:
    def first(self, groups):
        has = groups.offsets[1:] > groups.offsets[:-1]
        at = groups.offsets[:-1].clamp(max=self.t.numel() - 1)
        return torch.where(has, self.t[groups.order[at]] - 1, 0.0)

    patch.setattr(IntervalEdges, "last_times", first)


def other_waiting(patch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """Let something else wait for the ends of a step."""
    for model in (Dygnn, Jodie):

        def changed(was, self, *given):
            pending = was(self, *given)
            change(pending)
            return pending

        replace(patch, model, "pend", changed)


@fault
def destinations_never_wait(patch) -> None:
    other_waiting(patch, lambda pending: pending.count_g.zero_())


@fault
def sums_are_taken_for_means(patch) -> None:
    other_waiting(patch, lambda pending: pending.count_s.clamp_(max=1))


@fault
def partners_are_doubled(patch) -> None:
    other_waiting(patch, lambda pending: pending.sum_g.mul_(2))


def other_refresh(patch: pytest.MonkeyPatch, change: Callable[[Any, Any], Any]) -> None:
    """Let vertices be read otherwise: `change` gets the fresh rows and the old ones."""
    for model in (Dygnn, Jodie):
        replace(
            patch, model, "refresh",
            lambda was, self, rows, *more, **named: change(was(self, rows, *more, **named), rows),
        )  # fmt: skip


@fault
def what_waits_teaches_nothing(patch) -> None:
    other_refresh(patch, lambda new, old: new.detach())


@fault
def what_waits_is_never_taken_in(patch) -> None:
    other_refresh(patch, lambda new, old: type(new)(**old.columns()))


@fault
def sources_alone_are_updated(patch) -> None:
    def kept(new, old):
        names = ("cg", "hg", "item", "last_g")
        same = {name: column for name, column in old.columns().items() if name in names}
        return type(new)(**{**new.columns(), **same})

    other_refresh(patch, kept)


@fault
def times_of_update_are_a_step_late(patch) -> None:
    def late(new, old):
        columns = {name: getattr(old, name) for name in ("last_s", "last_g")}
        return type(new)(**{**new.columns(), **columns})

    other_refresh(patch, late)


@dygnn_fault
def nothing_decays(patch) -> None:
    patch.setattr(TimeLstm, "weight", lambda self, age: torch.ones_like(age))


@dygnn_fault
def ages_are_counted_in_another_unit(patch) -> None:
    replace(patch, TimeLstm, "weight", lambda was, self, age: was(self, 2 * age))


@dygnn_fault
def the_roles_are_swapped(patch) -> None:
    replace(patch, Dygnn, "message", lambda was, self, source, target: was(self, target, source))


@dygnn_fault
def the_loss_counts_edges_alone(patch) -> None:
    def link(was, self, now, old, edges):
        found = was(self, now, old, edges)
        found.loss = torch.nn.functional.softplus(-found.positives).sum() * 2
        return found

    replace(patch, Dygnn, "link", link)


@fault
def parameters_are_updated_in_every_second_group(patch) -> None:
    count = iter(range(10**9))
    replace(
        patch,
        torch.optim.Adam,
        "step",
        lambda was, self: was(self) if next(count) % 2 == 0 else None,
    )


@fault
def the_rate_of_learning_is_another(patch) -> None:
    def step(was, self):
        self.param_groups[0]["lr"] = 1.01e-2
        was(self)

    replace(patch, torch.optim.Adam, "step", step)


@fault
def the_loss_is_a_sum(patch) -> None:
    replace(patch, InteractionTrainer, "run_step", lambda was, self, events, *, scale: was(
        self, events, scale=None if scale is None else 3 * scale
    ))  # fmt: skip


@lru_cache
def agrees(model: str, kind: str) -> bool:
    """Return True if they agree before anything is planted; keeps the witness's results."""
    return not compared(tiny_task(model=model), kind, "t-batches")


PLANTED = [(name, "dygnn") for name in FAULTS]
PLANTED += [(name, "jodie") for name in FAULTS if name not in DYGNN_ALONE]


@pytest.mark.parametrize(("name", "model"), PLANTED)
def test_a_planted_fault_is_seen(name, model, monkeypatch) -> None:
    kinds = ("days", "ties")
    assert all(agrees(model, kind) for kind in kinds)
    FAULTS[name](monkeypatch)
    assert any(compared(tiny_task(model=model), kind, "t-batches") for kind in kinds)


@pytest.mark.parametrize(
    ("name", "change"),
    [("an event is in no interval", lambda edges: edges.select(torch.arange(1, len(edges)))),
     ("an event is trained on twice", lambda edges: edges)],
)  # fmt: skip
def test_a_planted_fault_of_grids_is_seen(name, change, monkeypatch) -> None:
    task = tiny_task(intervals=5)

    def partition(was, self, edges):
        intervals = list(was(self, change(edges)))
        return [*intervals, intervals[-1]] if "twice" in name else intervals

    replace(monkeypatch, Program, "partition", partition)
    assert compared(task, "ties", "tgcn")
