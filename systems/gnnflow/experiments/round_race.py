"""GNNFlow's rounds beside TGL's, in turns: the same events, the same model, the same samples."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dgbench.lab.compare import AGAIN, observe_speedup, take_control, with_control
from dgbench.lab.result_checks import close, of_contender
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Measurement
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.base.registry import get_system
from dgbench.systems.gnnflow.experiments.settings import EPOCHS, INITIAL, LAMBDA, StreamGraph
from dgbench.systems.gnnflow.experiments.trainer_checks import StreamOracle, nudge, rounded_as
from dgbench.systems.gnnflow.rounds import Continuous, Round, RoundResult, rounds_by_time

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload

GNNFLOW: Final = "gnnflow"
TGL: Final = "tgl"
CACHED: Final = "tgl with cache"
REBUILT: Final = "rebuilt"
BARE: Final = "no cache"
RECORDED: Final = "recorded"
SWITCHES: Final[Mapping[str, Mapping[str, bool]]] = {
    GNNFLOW: {},
    REBUILT: {"in_place": False, "node_cache": False, "edge_cache": False},
    BARE: {"node_cache": False, "edge_cache": False},
    RECORDED: {"node_cache": False, "edge_cache": False, "recorded_steps": True},
}
"""GNNFlow in full; with a graph that is built anew every round; appended to, but without caches; a
CUDA graph for every batch, over a graph that the device holds alone."""

UNIQUE: Final = {"statistic": "unique"}
"""Of a hit rate in which each id counts once a batch."""
NETWORK: Final = ("compute", "memory", "update")
"""Phases that are the same code in every system."""
PHASE_OF: Final = {
    "insert": "update", "sample": "sample", "fetch": "transfer",
    "compute": "compute", "memory": "compute", "update": "compute",
}  # fmt: skip
"""Name in a figure of each trainer phase: `update` is the graph's there."""
GRAPH_AT: Final = 0.65
"""Share of the events that is there when the rounds begin: the mean over the paper's stream."""


COMPARED: Final = 2_000_000
"""Events up to which a race is compared with the reference too, which sorts and samples slowly."""


@dataclass(frozen=True, slots=True)
class Length:
    """Number of rounds that a race takes.

    Attributes:
        least, most: turns that are timed; one more warms up.
        budget_s: seconds after which no turn beyond the fewest begins.
    """

    least: int
    most: int
    budget_s: float


def open_contender(
    name: str, task: StreamWorkload, data: StreamData, graph: StreamGraph, device: str
) -> StreamTrainer:
    """A trainer with nothing inserted; its meter takes the times of phases."""
    from dgbench.systems.gnnflow.access import AccessSettings
    from dgbench.systems.gnnflow.cache import FeatureCache, FeatureTable
    from dgbench.systems.gnnflow.device_access import RESIDENT
    from dgbench.systems.gnnflow.system import GnnflowSystem

    meter = Meter(timing=True, device=device)
    shares = {"node_cache": graph.node_cache, "edge_cache": graph.edge_cache}
    if name in SWITCHES:
        where = {"placement": RESIDENT} if name == RECORDED else {}
        settings = AccessSettings(tau=graph.tau, admission=LAMBDA, **shares, **where)
        return GnnflowSystem().open(
            task,
            device=device,
            switches=SWITCHES[name],
            meter=meter,
            data=data,
            settings=settings,
        )
    caches = {}
    for kind, table in (("node", data.node_feat), ("edge", data.edge_feat)):
        if name == CACHED and table is not None:
            slots = max(1, round(shares[f"{kind}_cache"] * table.shape[0]))
            caches[f"{kind}_cache"] = FeatureCache(
                FeatureTable(table), slots, admission=LAMBDA, device=device, meter=meter
            )
    return get_system("tgl").open(task, device=device, meter=meter, data=data, **caches)  # type: ignore[arg-type,return-value]


def rounds_of(graph: StreamGraph, data: StreamData, count: int) -> list[Round]:
    """`count` rounds in a row that begin where `GRAPH_AT` of the events are there, or earlier
    where fewer are left.

    Raises:
        InvalidInputError: the stream has no round after its initial part.
    """
    rounds = rounds_by_time(data.events.t, graph.round, initial=INITIAL)
    if not rounds:
        raise InvalidInputError(f"'{graph.name}' has no round after its first {INITIAL:.0%}")
    at = GRAPH_AT * len(data.events)
    begin = next((i for i, one in enumerate(rounds) if one.first >= at), len(rounds))
    begin = max(0, min(begin, len(rounds) - count))
    return rounds[begin : begin + count]


def race(
    names: Sequence[str],
    task: StreamWorkload,
    data: StreamData,
    graph: StreamGraph,
    length: Length,
    *,
    device: str = "cpu",
    epochs: int = EPOCHS,
    control: bool = False,
) -> Measurement:
    """Let contenders play the same rounds in turns, every second turn in reverse order.

    Args:
        names: of contenders. task, data, graph: what all of them follow. length: of the race.
        device: of the trainers. epochs: of a round.
        control: the first contender races itself, too: an A/A pair.
    """
    rounds = rounds_of(graph, data, length.most + 1)
    streams = {}
    for side, name in with_control({name: name for name in names}, on=control).items():
        trainer = open_contender(name, task, data, graph, device)
        streams[side] = Continuous(trainer, rounds, epochs=epochs, evaluate=False)
        streams[side].begin()
    found: dict[str, list[RoundResult]] = {side: [] for side in streams}
    begin = time.perf_counter()
    for turn in range(len(rounds)):
        if turn > length.least and time.perf_counter() - begin > length.budget_s:
            break
        for side in streams if turn % 2 == 0 else reversed(streams):
            found[side].append(streams[side].play())
    losses = {name: [loss for one in outcomes for loss in one.losses]
              for name, outcomes in found.items()}  # fmt: skip
    deviation = {"loss": loss_gap(list(found.values()))}
    allowed = dict.fromkeys(losses, TOLERANCE)
    if RECORDED in names:  # its sums have another order
        trainer = open_contender(names[0], task, data, graph, device)
        nudge(trainer)
        nudged = Continuous(trainer, rounds[: len(found[names[0]])], epochs=epochs, evaluate=False)
        nudged.begin()
        moved = loss_gap([found[names[0]], nudged.play_all()])
        trainer.close()
        allowed[RECORDED] = rounded_as(moved, TOLERANCE)
    checks = [
        close(
            "losses", own, losses[names[0]], allowed[name], against=names[0], part=name, system=name
        )
        for name, own in losses.items()
        if name != names[0]
    ]
    if rounds[0].last <= COMPARED:
        first = reference_loss(task, data, rounds[0], device)
        deviation["reference"] = abs(found[names[0]][0].losses[0] / first - 1)
        checks.append(
            close("losses", losses[names[0]][0], first, TOLERANCE, against="plain path in float32",
                  part=f"{names[0]}, first epoch", system=names[0])
        )  # fmt: skip
    timed = {name: outcomes[1:] or outcomes for name, outcomes in found.items()}
    told = Measurement(deviation=deviation, data=data.describe())
    take_control(told, {side: [x.retrain_s for x in timed[side]] for side in timed})
    if control:
        del timed[AGAIN]
        streams.pop(AGAIN).trainer.close()
    for name, outcomes in timed.items():
        _observe(told, name, outcomes)
        trained = epochs * sum(one.trained for one in outcomes)
        seconds = sum(one.retrain_s for one in outcomes)
        told.observe("throughput", trained / seconds, setting=name, of="events")
        observe_hits(told, name, streams[name].trainer.report())
    first_trainer = streams[names[0]].trainer
    oracle = StreamOracle(task, data, first_trainer.inserted, device=str(first_trainer.device))
    for name, one in streams.items():
        checks += of_contender(name, oracle.checks(name, one.trainer))
    for stream in streams.values():
        stream.trainer.close()
    pairs = [(name, GNNFLOW) for name in names if name not in (GNNFLOW, RECORDED)]
    pairs += [(TGL, BARE)] if BARE in names else []
    pairs += [(GNNFLOW, RECORDED)] if RECORDED in names else []
    for baseline, setting in pairs:
        for phase, seconds in _PARTS.items():
            slow, fast = ([seconds(x) for x in timed[key]] for key in (baseline, setting))
            which = {"phase": phase} if phase else {}
            observe_speedup(told, slow, fast, setting=setting, baseline=baseline, **which)
    turns = next(iter(timed.values()))
    told.observe("turns", len(turns))
    told.observe("events", sum(one.round.events for one in turns))
    told.observe("events", turns[-1].round.last, of="graph")
    told.observe("events", len(data.events), of="all")
    told.observe("epochs", epochs)
    told.checks = checks
    return told


def reference_loss(task: StreamWorkload, data: StreamData, one: Round, device: str) -> float:
    """The loss of a first round's first epoch by `PlainStream`."""
    from dgbench.systems.base.plain_stream import PlainStream
    from dgbench.systems.base.stream import StreamTrainer

    trainer = StreamTrainer(task, data, PlainStream(task, data), device=device)
    stream = Continuous(trainer, [one], epochs=1, evaluate=False)
    stream.begin()
    return stream.play().losses[0]


def network_s(one: RoundResult) -> float:
    """Seconds of a round in the network, which all systems share."""
    return sum(one.parts.get(phase, 0.0) for phase in NETWORK)


_PARTS: Final = {
    "": lambda one: one.retrain_s,
    "update": lambda one: one.update_s,
    "without network": lambda one: one.retrain_s - network_s(one),
}
"""Phase of a speed-up -> seconds of a round; "" is all of it."""


def observe_hits(told: Measurement, name: str, report: Mapping[str, float]) -> None:
    """Add the hit rates that a trainer reports."""
    for kind in ("node", "edge"):
        for key, which in ((f"{kind}_hit_rate", {}), (f"{kind}_unique_hit_rate", UNIQUE)):
            if key in report:
                told.observe("hit_rate", report[key], of=kind, setting=name, **which)


def _observe(told: Measurement, name: str, outcomes: Sequence[RoundResult]) -> None:
    """Add the mean times of a contender's rounds and of their parts."""
    count = len(outcomes)
    told.observe("round_time", sum(one.retrain_s for one in outcomes) / count, setting=name)
    for part in ("update", "train"):
        total = sum(getattr(one, f"{part}_s") for one in outcomes)
        told.observe("operation_time", total / count, setting=name, phase=part)
    for phase in dict.fromkeys(PHASE_OF.values()):
        own = [key for key, shown in PHASE_OF.items() if shown == phase]
        total = sum(one.parts.get(key, 0.0) for one in outcomes for key in own)
        told.observe("phase_time", total / count, setting=name, phase=phase)
    shares = [one.update_s / one.retrain_s for one in outcomes]
    told.observe("time_share", sum(shares) / count, setting=name, phase="update")


def loss_gap(played: Sequence[Sequence[RoundResult]]) -> float:
    """Largest relative difference between the losses of contenders, over rounds and epochs."""
    worst = 0.0
    for rounds in zip(*played, strict=True):
        for losses in zip(*(one.losses for one in rounds), strict=True):
            worst = max(worst, (max(losses) - min(losses)) / max(abs(x) for x in losses))
    return worst
