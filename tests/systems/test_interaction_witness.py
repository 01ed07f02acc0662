"""Training on interactions beside a second implementation that shares no code with it.

As `test_stream_witness` does for streams: `tests.witness.interactions` agrees with every system,
and each fault that is planted in what systems and oracles share makes the two disagree.
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
from stream_faults import Plant, around, before_step, every_second, instead
from stream_tiny import listed, witnessed_events
from torch import Tensor

from dgbench.models.streaming import Dygnn, Jodie
from dgbench.systems.base import interactions
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import InteractionWorkload, interaction_data
from dgbench.systems.base.registry import get_system
from dgbench.systems.tgcn.system import TgcnSystem
from tests.witness.compared import disagreements
from tests.witness.interactions import InteractionWitness, Outcome

DOUBLE = torch.float64
NODES = 9


def base(order: str) -> Callable[..., InteractionTrainer]:
    """Opens the trainer that systems share."""
    return lambda task, data: InteractionTrainer(task, data, dtype=DOUBLE, order=order)


def baseline(**switches: bool) -> Callable[..., InteractionTrainer]:
    """Opens DyGNN or JODIE as plugins."""

    def opened(task: InteractionWorkload, data: Any) -> InteractionTrainer:
        more = {"propagation": task.propagation} if task.model == "dygnn" else {}
        system: Any = get_system(task.model)
        return system.open(task, data=data, dtype=DOUBLE, switches=switches | more)

    return opened


def tgcn(**options: Any) -> Callable[..., InteractionTrainer]:
    """Opens T-GCN on all edges."""
    return lambda task, data: TgcnSystem().open(
        task, data=data, dtype=DOUBLE, switches={"sampling": False}, devices=2, **options
    )


OPENED = {
    **{order: base(order) for order in ("t-batches", "events", "intervals")},
    "padded": baseline(padding=True), "unpadded": baseline(padding=False),
    "padded events": baseline(padding=True, sequential=True),
    "tgcn": tgcn(), "tgcn streamed": tgcn(parts=4, resident=False),
}  # fmt: skip
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


def notes(one: Any, train: Callable[[], Outcome], score: Callable[..., Outcome],
          ends: tuple[int, int, int]) -> dict[str, Any]:  # fmt: skip
    """Results of two epochs and of scoring what follows; `one` tells what vertices remember."""
    found: dict[str, Any] = {}
    end, middle, last = ends
    for name, outcome in (
        ("first epoch", train), ("second epoch", train), ("scored", lambda: score(end, last)),
        ("passed", lambda: score(end, middle, remember=True)),
        ("tested", lambda: score(middle, last, remember=True)),
    ):  # fmt: skip
        values = vars(outcome()) | one()
        found |= {f"{name}, {key}": v for key, v in values.items()
                  if isinstance(v, Tensor) or v == v}  # fmt: skip
    return found | {"parts": (end, middle)}


def played(trainer: InteractionTrainer) -> dict[str, Any]:
    """Results of a trainer."""
    data = trainer.data

    def score(first: int, last: int, **how: Any) -> Outcome:
        one = trainer.evaluate_range(first, last, **how)
        return Outcome(one.loss, one.ap, one.accuracy)

    ends = data.train_end, data.validate_end, len(data.events)
    train = lambda: Outcome(trainer.train_epoch())  # noqa: E731
    found = notes(lambda: remembered(trainer), train, score, ends)
    found |= {f"trained {name}": p for name, p in trainer.state().items()}
    return found | {"unit": data.unit, "negatives": data.negative.tolist()}


_expected: dict[Any, dict[str, Any]] = {}
"""By task, events, and whether these come in intervals."""


def expected(task: InteractionWorkload, kind: str, system: str, trainer: InteractionTrainer,
             begin: dict[str, Tensor], vectors: dict[str, Tensor]) -> dict[str, Any]:  # fmt: skip
    """The same results by the witness; of T-GCN on the intervals that it chose."""
    stream = witnessed_events(kind)
    witness = InteractionWitness(task, listed(stream), NODES, stream.num_src, begin, vectors)
    end, middle, last = witness.train_end, witness.validate_end, len(witness.events)

    def groups(first: int, last: int, scored: bool) -> list[list[list[int]]]:
        if not system.startswith("tgcn"):
            return witness.groups(first, last, intervals=system in BY_INTERVALS)
        own = trainer.scoring_groups(first, last) if scored else trainer.groups(first, last)
        return valid_intervals(
            witness, first, last, [[step.tolist() for step in group] for group in own]
        )

    def train() -> Outcome:
        witness.reset()
        return witness.train(groups(0, end, False))

    def score(first: int, last: int, **how: Any) -> Outcome:
        return witness.evaluate(groups(first, last, True), **how)

    found = notes(witness.remembered, train, score, (end, middle, last))
    found |= {f"trained {name}": p.detach() for name, p in witness.p.items()}
    return found | {"unit": witness.unit, "negatives": witness.negative}


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
    trainer = OPENED[system](task, interaction_data(witnessed_events(kind), task))
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
    plugins = ("padded", "unpadded") if kind == "ties" else ()
    for system in ("t-batches", "events", *plugins):
        assert not compared(tiny_task(model=model), kind, system), system


@pytest.mark.parametrize(
    "fields",
    [{"decay": "exp", "activation": "sigmoid"}, {"decay": "inverse", "strict_time": False},
     {"events": 50}, {"task": "classify", "seed": 3},
     {"model": "jodie", "task": "classify", "seed": 3}, {"model": "jodie", "strict_time": False}],
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


@pytest.mark.parametrize("system", BY_INTERVALS)
@pytest.mark.parametrize(("aggregate", "kind"), [("mean", "days"), ("last", "ties")])
def test_intervals_are_those_of_the_witness(aggregate, system, kind) -> None:
    assert not compared(tiny_task(aggregate=aggregate, intervals=5), kind, system)


def groups(change: Callable[[Any], Any]) -> Plant:
    """Fault by which trainers lay out other groups."""
    return around(InteractionTrainer, "groups", lambda was, *given: change(was(*given)))


def data(**change: Callable[[Any], Any]) -> Plant:
    """Fault of the data; each change gets the right data."""
    return around(interactions, "InteractionData", lambda was, *given: structs_replace(
        was(*given), **{name: value(was(*given)) for name, value in change.items()}
    ))  # fmt: skip


def refresh(patch: pytest.MonkeyPatch) -> None:
    """Take nothing in that waits."""
    for model in (Dygnn, Jodie):
        around(
            model, "refresh",
            lambda was, self, rows, *given, **named: type(rows)(**rows.columns()),
        )(patch)  # fmt: skip


FAULTS: dict[str, Plant] = {
    "every second group is left out": groups(lambda all_: all_[::2]),
    "half of the steps are left out": groups(lambda all_: [group[::2] for group in all_]),
    "steps come backwards": groups(lambda all_: [group[::-1] for group in all_]),
    "a group is trained on twice": groups(lambda all_: [*all_[:1], *all_]),
    "the state is never written": instead(InteractionTrainer, "commit", lambda *_: None),
    "the state is not forgotten": instead(InteractionTrainer, "reset_state", lambda _: None),
    "what is held is lost": instead(
        InteractionTrainer, "_write_held", lambda self: setattr(self, "_held", [])),
    "scoring changes the state": instead(InteractionTrainer, "restore_memory", lambda *_: None),
    "negatives are one vertex": data(negative=lambda data: torch.full_like(data.negative, 3)),
    "the unit is that of all events": data(unit=lambda data: interactions.time_unit(data.events)),
    "validation is trained on": data(train_end=lambda data: data.validate_end),
    "what waits is never taken in": refresh,
    "parameters are updated in every second group": every_second(torch.optim.Adam, "step"),
    "the rate of learning is another": before_step(lambda group: group.update(lr=1.01e-2)),
}  # fmt: skip
"""By what they do; each is planted in what trainers and oracles of interactions share."""


@lru_cache
def agrees(model: str, kind: str) -> bool:
    """Return True if they agree before anything is planted; keeps the witness's results."""
    return not compared(tiny_task(model=model), kind, "t-batches")


@pytest.mark.parametrize(
    ("model", "name"),
    [*(("dygnn", name) for name in FAULTS), ("jodie", "what waits is never taken in"),
     ("jodie", "the state is never written")],
)  # fmt: skip
def test_a_planted_fault_is_seen(name, model, monkeypatch) -> None:
    kinds = ("days", "ties")
    assert all(agrees(model, kind) for kind in kinds)
    FAULTS[name](monkeypatch)
    assert any(compared(tiny_task(model=model), kind, "t-batches") for kind in kinds)
