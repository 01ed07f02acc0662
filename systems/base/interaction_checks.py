"""Result checks of trainers on interactions, against the plain reference in float64.

`probe` lets a trainer, with the parameters, state and buffers that it has now, take a few events in
and tells what came out; `compare` goes through the same events edge by edge from the same rows.
`check_from_start` trains a small stream on both from the beginning.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.models.streaming import build_interaction_model
from dgbench.runtime.touched import comparing
from dgbench.systems.base import liveness
from dgbench.systems.base.conditioning import rounding, tolerances
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload
from dgbench.systems.base.plain_interactions import PlainInteractions, PlainVertex
from dgbench.systems.base.plain_jodie import PlainJodie, PlainJodieVertex

AGAINST: Final = "float64 oracle, edge by edge"
EVENTS: Final = 8
"""Events of a probe."""
EXACT: Final = 1e-9
"""Largest relative deviation in float64."""
FIXED: Final = ("code",)
"""Parts of states that no event changes."""
IDLE: Final = {"classify": ("predict",)}
"""Layers that a task does not ask: JODIE predicts no vertex where it classifies them."""
ROUNDING: Final = 1e-5
"""Largest relative deviation in float32, of a few steps that begin with the same rows."""

Stored = dict[int, tuple[dict[str, Tensor], dict[str, Tensor], list[tuple[int, float, bool]]]]
"""By vertex: its columns of the state, of what waits for it, and its recent neighbours."""


@dataclass(slots=True)
class InteractionProbe:
    """Results of a trainer on a few events, for comparison with the oracle.

    Attributes:
        steps: int64[b] event ordinals of each step.
        loss: per event, without an update. trained: the same in the pass with gradients.
        scores: [events, 2] of edges and negatives in the order of the steps; empty in `classify`.
        gradients: of the mean loss, by name.
        before, after: rows of the vertices that the events name.
        exact: whether the trainer computes in float64.
    """

    steps: list[Tensor]
    loss: float
    trained: float
    scores: Tensor
    gradients: dict[str, Tensor]
    before: Stored
    after: Stored
    exact: bool


@dataclass(frozen=True, slots=True)
class ProbeLiveness:
    """Share of states that the events of a probe changed, and gradients of both sides.

    Attributes:
        changed: of the trainer or the reference, the smaller one; empty where nothing waited.
        gradients, exact: of the trainer and of the reference, by name.
    """

    changed: Sequence[float]
    gradients: Mapping[str, Tensor]
    exact: Mapping[str, Tensor]


def probe(trainer: InteractionTrainer, first: int, last: int) -> InteractionProbe:
    """Let a trainer take events first .. last - 1 in, twice; its state is afterwards as before."""
    steps = [events for group in trainer.scoring_groups(first, last) for events in group]
    vertices = _named(trainer, torch.cat(steps))
    before = stored(trainer, vertices)
    with _kept(trainer, vertices):
        found = [trainer.run_step(events, scale=None) for events in steps]
        after = stored(trainer, vertices)
    columns = [torch.stack([one.positives, one.negatives], dim=1).cpu() for one in found]
    leaves = dict(trainer.model.named_parameters())
    held = {name: leaf.grad for name, leaf in leaves.items()}
    for leaf in leaves.values():
        leaf.grad = None
    with _kept(trainer, vertices):
        trained = [trainer.run_step(events, scale=1 / (last - first)) for events in steps]
    gradients = {
        name: (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).cpu()
        for name, leaf in leaves.items()
    }
    for name, leaf in leaves.items():
        leaf.grad = held[name]
    return InteractionProbe(
        steps,
        sum(float(one.loss) for one in found) / (last - first),
        sum(float(one.loss) for one in trained) / (last - first),
        torch.cat(columns),
        gradients,
        before,
        after,
        trainer.dtype == torch.float64,
    )


def stored(trainer: InteractionTrainer, vertices: Tensor) -> Stored:
    """Rows of vertices int64[n] as a trainer holds them, in float64."""
    rows = trainer.rows_of(vertices)
    tables = []
    for table in (trainer.vertices, trainer.pending):
        found = {}
        for name, column in table.columns().items():
            if column is not None:
                found[name] = column[rows.to(column.device)].detach().cpu().double()
        tables.append(found)
    near: list[list[tuple[int, float, bool]]] = [[] for _ in range(vertices.numel())]
    if trainer._push is not None:
        columns = [x[vertices.to(x.device)].tolist() for x in trainer._push._columns()]
        near = [
            [(int(v), t, s) for v, t, s in zip(*row, strict=True) if v >= 0]
            for row in zip(*columns, strict=True)
        ]
    return {
        vertex: (*({name: c[k] for name, c in table.items()} for table in tables), near[k])
        for k, vertex in enumerate(vertices.tolist())
    }


@comparing()
def compare(
    workload: InteractionWorkload,
    data: InteractionData,
    parameters: Mapping[str, Tensor],
    found: InteractionProbe,
    part: str,
    *,
    ordered: bool = False,
    strict: bool = False,
    system: str = "",
    alive: list[ProbeLiveness] | None = None,
) -> list[ResultCheck]:
    """Checks of a probe.

    Args:
        parameters: that the trainer had, by name.
        part: which trainer and events, put before the tensor that deviates most.
        ordered: steps stand for their events one by one in time order (t-batches).
        strict: of these, events of one time stand for one step, which none of them changes.
        system: see `ResultCheck`.
        alive: gets what shows how alive both are, see `base.liveness`, where that can be seen.
    """
    events = torch.cat(found.steps)
    place = events.sort().indices if ordered else torch.arange(events.numel())
    steps = _in_order(data, events[place], strict) if ordered else found.steps

    def run() -> tuple[PlainInteractions, list[tuple[float, Tensor]]]:
        plain = plain_of(workload, data, parameters, found.before)
        return plain, [plain.run(step, scale=1 / events.numel()) for step in steps]

    plain, runs = run()
    tolerance = EXACT if found.exact else ROUNDING
    about: dict[str, Any] = {"against": AGAINST, "system": system, "part": part}
    ends = torch.cat([data.events.src[events], data.events.dst[events]]).unique().tolist()
    kind = type(plain.vertices[ends[0]])
    own = {f"{name} of {v}": x for v in ends
           for name, x in kind.stored(*found.after[v]).kept().items()}  # fmt: skip
    link = workload.task == "link"
    if link:
        own["scores"] = found.scores[place]

    def outputs(
        plain: PlainInteractions, runs: Sequence[tuple[float, Tensor]]
    ) -> dict[str, Tensor]:
        kept = {f"{name} of {v}": x for v in ends for name, x in plain.vertices[v].kept().items()}
        return kept | ({"scores": torch.cat([scores for _, scores in runs])} if link else {})

    def judged(
        of: str, mine: Mapping[str, Tensor], read: Callable[..., dict[str, Tensor]]
    ) -> ResultCheck:
        exact = read(plain, runs)
        check = close(of, mine, exact, tolerance, **about)
        if check.passed or found.exact:
            return check
        # Where terms cancel, in biases of the head, means of what was pushed or the loss of what
        # is nearly sure, a result rounds further than its size says.
        moved = tolerances(rounding(lambda: read(*run()), exact))
        return close(of, mine, exact, moved, **about)

    # Events of one time change the state when it is over, and none of them reads what they leave.
    if alive is not None and not (strict and data.events.t[events].unique().numel() == 1):
        old = _taking_in({v: kind.stored(*found.before[v]) for v in ends})
        rows = own, outputs(plain, runs)
        changed = [min(liveness.changed_share(old, one) for one in rows)] if old else []
        alive.append(ProbeLiveness(changed, found.gradients, _gradients(plain)))

    mine = torch.tensor([found.loss, found.trained], dtype=torch.float64)
    losses = dict(zip(("scored", "trained"), mine, strict=True))

    def mean_loss(_: PlainInteractions, runs: Sequence[tuple[float, Tensor]]) -> dict[str, Tensor]:
        loss = sum(one for one, _ in runs) / events.numel()
        return dict.fromkeys(losses, torch.as_tensor(loss, dtype=torch.float64))

    return [
        judged("outputs", own, outputs),
        judged("gradients", found.gradients, lambda plain, _: _gradients(plain)),
        judged("losses", losses, mean_loss),
    ]


def _taking_in(vertices: Mapping[int, PlainVertex | PlainJodieVertex]) -> dict[str, Tensor]:
    """States of vertices that something waits for, as far as events can change them, by name.

    The first event of a vertex changes nothing yet: it waits until the vertex is read again.
    """
    return {
        f"{name} of {vertex}": x
        for vertex, one in vertices.items()
        if any(one.waiting.values())
        for name, x in one.kept().items()
        if name not in FIXED
    }


def _in_order(data: InteractionData, events: Tensor, strict: bool) -> list[Tensor]:
    """Sorted events as steps: each its own, or with `strict` those of one time together."""
    if not strict:
        return list(events.split(1))
    _, counts = data.events.t[events].unique_consecutive(return_counts=True)
    return list(events.split(counts.tolist()))


def _gradients(plain: PlainInteractions) -> dict[str, Tensor]:
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in plain.model.named_parameters()
    }


def plain_of(
    workload: InteractionWorkload,
    data: InteractionData,
    parameters: Mapping[str, Tensor],
    rows: Stored,
) -> PlainInteractions:
    """The plain reference in float64 with these parameters and rows."""
    model = build_interaction_model(workload, classes=data.num_classes, unit=data.unit).double()
    model.load_state_dict({name: x.double() for name, x in parameters.items()})
    jodie = workload.model == "jodie"
    vertex = PlainJodieVertex if jodie else PlainVertex
    make = PlainJodie if jodie else PlainInteractions
    return make(workload, data, model, lambda number: vertex.stored(*rows[number]))


@comparing()
def check_now(
    trainer: InteractionTrainer, part: str, *, system: str = "", last: bool = True,
    drawn: bool = True,
) -> list[ResultCheck]:  # fmt: skip
    """Checks of a trainer as it is now, on the last events that it trains on and on drawn ones.

    Args:
        part: of the checks. system: see `ResultCheck`.
        last, drawn: whether to ask for these and those; without `drawn`, one of both by chance.
    """
    end = trainer.data.train_end or len(trainer.data.events)
    count = min(EVENTS, end)
    chance = random.SystemRandom()
    places = [chance.randint(0, end - count), end - count]
    if not drawn:
        places = [chance.choice(places)]
    elif not last:
        places = places[:1]
    exact_order = "t-batches" in (trainer.order, getattr(trainer, "scoring", ""))
    ordered = exact_order and not trainer.workload.propagation
    checks, alive = [], list[ProbeLiveness]()
    for drawn_at in places:
        first = whole_times(trainer.data.events.t, drawn_at, count)
        words = f"{part}, events {first} to {first + count - 1}"
        found = probe(trainer, first, first + count)
        checks += compare(
            task_in_whole(trainer), trainer.data, trainer.state(), found, words, ordered=ordered,
            strict=trainer.workload.strict_time, system=system, alive=alive,
        )  # fmt: skip
        if exact_order:
            checks.append(
                check_order(trainer.data, found.steps, words, system, trainer.workload.strict_time)
            )
    return [*checks, *_liveness(trainer, alive, part, system)]


def _liveness(
    trainer: InteractionTrainer, probes: Sequence[ProbeLiveness], part: str, system: str
) -> list[ResultCheck]:
    """A check of how alive a trainer is that has trained, from probes of it."""
    data = trainer.data
    model = build_interaction_model(
        task_in_whole(trainer), classes=data.num_classes, unit=data.unit
    )
    first, now = {name: x.detach() for name, x in model.named_parameters()}, trainer.state()
    idle = IDLE.get(trainer.workload.task, ())
    first = {name: x for name, x in first.items() if liveness.layer_of(name) not in idle}
    layers, few = liveness.distances(first, now), liveness.few_updates(trainer.moments())
    measured = [liveness.together(first, now) if few else liveness.measures(first=first, now=now)]
    if changed := [share for one in probes for share in one.changed]:
        measured.append({"outputs": (max(changed), "")})
    bars = liveness.BARS_OF_EVENTS
    for each in ([one.gradients for one in probes], [one.exact for one in probes]):
        some = [{name: x for name, x in one.items() if name in first} for one in each]
        part_of = liveness.taking_part(some, layers, few=few, least=bars["gradients"])
        measured.append(liveness.measures(gradients=part_of))
    return liveness.check(*measured, against=AGAINST, system=system, part=part, bars=bars)


def whole_times(t: Tensor, first: int, count: int) -> int:
    """Nearest earlier place of `count` events that do not end among events of one time.

    What has one time changes the state when the time is over, so that a probe which ends before
    that leaves open what it did. Events that all have one time are a probe of their own.

    Args:
        t: float64[E] times, ascending. first: place that was drawn.
    """
    for place in range(first, -1, -1):
        after = place + count
        if after >= len(t) or t[after - 1] != t[after] or t[place] == t[after]:
            return place
    return first


def check_order(
    data: InteractionData, steps: Sequence[Tensor], part: str, system: str = "", strict: bool = True
) -> ResultCheck:
    """Check of t-batches: steps in a row must be the events one after the other.

    An event has to come after all earlier events of its ends, and its negative must be read after
    what was written to it earlier and not after what is written later.
    """
    at = {event: k for k, events in enumerate(steps) for event in events.tolist()}
    stream, negative = data.events, data.negative
    ends = {e: {int(stream.src[e]), int(stream.dst[e])} for e in at}
    wanted, own = [], []
    for later in sorted(at):
        for earlier in (e for e in at if e < later):
            if strict and stream.t[earlier] == stream.t[later]:
                own.append(at[earlier] == at[later])
                wanted.append(True)
            elif ends[earlier] & ends[later] or int(negative[later]) in ends[earlier]:
                own.append(at[earlier] < at[later])
                wanted.append(True)
            elif int(negative[earlier]) in ends[later]:
                own.append(at[earlier] <= at[later])
                wanted.append(True)
    own += [sum(events.numel() for events in steps) == len(at)]
    return equal(
        "order", torch.tensor(own), torch.tensor([*wanted, True]),
        against=f"time order of every pair of events, {part}", system=system,
    )  # fmt: skip


@comparing()
def check_from_start(
    trainer: InteractionTrainer, part: str, *, system: str = ""
) -> list[ResultCheck]:
    """Checks of an epoch of a trainer in float64 to which nothing happened yet: losses, parameters.

    Takes about a millisecond for each vertex of each event.
    """
    workload, data = task_in_whole(trainer), trainer.data
    trainer.prepare()
    groups = trainer.groups(0, data.train_end)
    vertices = _named(trainer, torch.arange(data.train_end))
    plain = plain_of(workload, data, trainer.state(), stored(trainer, vertices))
    optimiser = torch.optim.Adam(plain.model.parameters(), lr=workload.lr)
    losses, wanted = [], []
    ordered = trainer.order == "t-batches" and not workload.propagation
    for group in groups:
        events = torch.cat(group)
        optimiser.zero_grad()
        steps = events.sort().values.split(1) if ordered else group
        wanted.append(sum(plain.run(e, scale=1 / events.numel())[0] for e in steps) / len(events))
        losses.append(float(trainer.train_group(group)))
        leaves = zip(plain.model.parameters(), trainer.model.parameters(), strict=True)
        for leaf, own in leaves:
            if leaf.grad is None and own.grad is not None:
                leaf.grad = torch.zeros_like(leaf)  # Adam counts steps of what has a gradient
        optimiser.step()
    about: dict[str, Any] = {"against": AGAINST, "system": system, "part": part}
    parameters = {name: p.detach() for name, p in plain.model.named_parameters()}
    return [
        close("losses", losses, wanted, EXACT, **about),
        close("parameters", trainer.state(), parameters, EXACT, **about),
    ]


def task_in_whole(trainer: InteractionTrainer) -> InteractionWorkload:
    """The workload; intervals of a trainer that cuts time itself are taken in whole."""
    if not hasattr(trainer, "program"):
        return trainer.workload
    return msgspec.structs.replace(trainer.workload, strict_time=False)


def _named(trainer: InteractionTrainer, events: Tensor) -> Tensor:
    """Vertices that events name, and the neighbours of their ends."""
    stream = trainer.data.events
    named = [stream.src[events], stream.dst[events], trainer.data.negative[events]]
    if trainer._push is not None:
        near = trainer._push.neighbour[torch.cat(named[:2]).to(trainer.device)].flatten().cpu()
        named.append(near[near >= 0].long())
    return trainer.owned(torch.cat(named).unique())


@contextmanager
def _kept(trainer: InteractionTrainer, vertices: Tensor) -> Iterator[None]:
    """Put the rows of vertices back afterwards."""
    tables = trainer.vertices, trainer.pending
    rows = trainer.rows_of(vertices).to(next(iter(tables[0].columns().values())).device)
    held = [table[rows] for table in tables]
    ring = None if trainer._push is None else trainer._push.clone()
    waiting, trainer._held = trainer._held, []
    try:
        yield
    finally:
        trainer._held = waiting
        for table, old in zip(tables, held, strict=True):
            table.write(rows, old)
        if ring is not None:
            trainer._push.restore(ring)
