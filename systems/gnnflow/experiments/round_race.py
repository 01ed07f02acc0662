"""GNNFlow's rounds beside TGL's, in turns: the same events, the same model, the same samples."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import AGAIN, observe_speedup, take_control, with_control
from dgbench.lab.estimates import EvaluationContext, unnoted
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import close, of_contender
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Measurement
from dgbench.systems.base.audit import taken_again_later
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream_audit import BatchAudit, BatchOracle
from dgbench.systems.base.stream_recount import recount_batches, recount_training
from dgbench.systems.gnnflow.experiments.sample_checks import NearbyStream
from dgbench.systems.gnnflow.experiments.settings import (
    EPOCHS,
    INITIAL,
    LAMBDA,
    MODEL_TITLES,
    StreamGraph,
)
from dgbench.systems.gnnflow.experiments.trainer_checks import StreamOracle, nudge, rounded_as
from dgbench.systems.gnnflow.rounds import Continuous, Round, RoundResult, rounds_by_time
from dgbench.systems.gnnflow.techniques import STORE_ADDITIONS

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload

TGL: Final = "tgl"
CACHED: Final = "tgl with cache"
REBUILT: Final = "rebuilt, the paper's"
BARE: Final = "no cache, the paper's"
PUBLISHED: Final = "gnnflow, the paper's"
GNNFLOW: Final = "gnnflow"
RECORDED: Final = "recorded"
_NO_CACHE: Final = {"node_cache": False, "edge_cache": False}
SWITCHES: Final[Mapping[str, Mapping[str, bool]]] = {
    REBUILT: {"in_place": False, **_NO_CACHE},
    BARE: _NO_CACHE,
    PUBLISHED: {},
    GNNFLOW: STORE_ADDITIONS,
    RECORDED: {**STORE_ADDITIONS, **_NO_CACHE, "recorded_steps": True},
}
"""The published form with a graph that is built anew every round; appended to, but without caches;
in full; with our additions to its store; with a CUDA graph for every batch, over a graph that the
device holds alone."""
SHOWN: Final = {TGL: TGL, PUBLISHED: "gnnflow", GNNFLOW: "GNNFlow + dgbench"}
"""Settings as figures name them."""
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
    """Timed turns of a race; after `budget_s` seconds none beyond the fewest begins."""

    least: int
    most: int
    budget_s: float


def over(baseline: str, setting: str, **where: Any) -> MeasuredQuantity:
    """Speedups of a setting by graph and model, of the whole round where no phase is named."""
    sides = {"baseline": baseline, "setting": setting}
    return observed("speedup", per=("dataset", "model"), **sides, **where)


def model_range(speedups: MeasuredQuantity) -> outcomes.Rule:
    """Least and largest factor over the models of a claim; above 1x for all is its direction."""

    def all_faster(context: EvaluationContext) -> outcomes.RuleOutcome:
        outcome = rules.all_above(speedups, 1.0, unit="x")(context)
        absent = [f"{name} (not raced)" for name in context.claim.workload["model"]
                  if not outcome.lacking and name not in outcome.measured]  # fmt: skip
        return replace(outcome, sides=(*outcome.sides, *((name, 0) for name in absent)))

    ends = {
        name: speedups.joined_over(pick, "model") for name, pick in (("low", min), ("high", max))
    }
    return rules.entries_near_claim(ends, all_faster)


def largest_of_a_model(speedups: MeasuredQuantity) -> outcomes.Rule:
    """A printed maximum whose model is not named: each one that ran is an interpretation."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        with unnoted():
            models = [dict(at)["model"] for at in speedups.estimates(context)]
        if not models:
            return rules.near_claim(speedups, of=float)(context)
        return combine.interpretations(
            "which model reaches the printed factor is not said",
            {MODEL_TITLES[model]: rules.near_claim(speedups.where(model=model), above=1.0, of=float)
             for model in models},
        )(context)  # fmt: skip

    return rule


def with_locked_tables(data: StreamData, device: str) -> StreamData:
    """The data with features in page-locked memory where there is a device: one copy, from which
    all contenders fetch."""
    from dgbench.kernels_cuda.row_cache import page_locked

    tables = {
        name: table if table is None else page_locked(table, device)
        for name, table in (("node_feat", data.node_feat), ("edge_feat", data.edge_feat))
    }
    return replace(data, **tables)


def open_contender(
    name: str, task: StreamWorkload, data: StreamData, graph: StreamGraph, device: str
) -> StreamTrainer:
    """A trainer with nothing inserted; its meter takes the times of phases."""
    from dgbench.kernels_cuda.row_cache import page_locked
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
            task, device=device, switches=SWITCHES[name], meter=meter, data=data, settings=settings
        )
    caches = {}
    for kind, table in (("node", data.node_feat), ("edge", data.edge_feat)):
        if name == CACHED and table is not None:
            slots = max(1, round(shares[f"{kind}_cache"] * table.shape[0]))
            rows = FeatureTable(page_locked(table, device))
            caches[f"{kind}_cache"] = FeatureCache(
                rows, slots, admission=LAMBDA, device=device, meter=meter
            )
    return get_system("tgl").open(task, device=device, meter=meter, data=data, **caches)  # type: ignore[arg-type,return-value]


PAIRS: Final = (
    *((baseline, PUBLISHED) for baseline in (TGL, CACHED, REBUILT, BARE)),
    (TGL, BARE), (TGL, GNNFLOW), (PUBLISHED, GNNFLOW), (GNNFLOW, RECORDED),
)  # fmt: skip
"""Baselines and settings whose speedups a race observes, where both take part."""


def rounds_of(graph: StreamGraph, data: StreamData, count: int) -> list[Round]:
    """`count` rounds in a row that begin where `GRAPH_AT` of the events are there, or earlier
    where fewer are left; InvalidInputError without any."""
    rounds = rounds_by_time(data.events.t, graph.round, initial=INITIAL)
    if not rounds:
        raise InvalidInputError(f"'{graph.name}' has no round after its first {INITIAL:.0%}")
    at = GRAPH_AT * len(data.events)
    begin = next((i for i, one in enumerate(rounds) if one.first >= at), len(rounds))
    begin = max(0, min(begin, len(rounds) - count))
    return rounds[begin : begin + count]


def race(
    names: Sequence[str], task: StreamWorkload, data: StreamData, graph: StreamGraph,
    length: Length, *, device: str = "cpu", epochs: int = EPOCHS, control: bool = False,
    first: bool = True,
) -> Measurement:  # fmt: skip
    """Let contenders play the same rounds in turns, every second turn in reverse order.

    Args:
        epochs: of a round.
        control: the first contender races itself, too: an A/A pair.
        first: in the first process of a cell, an audited batch of each contender is taken again,
            later, in a share of the processes, one of a drawn contender.
    """
    rounds = rounds_of(graph, data, length.most + 1)
    data = with_locked_tables(data, device)
    streams, audits = {}, {}
    for side, name in with_control({name: name for name in names}, on=control).items():
        trainer = open_contender(name, task, data, graph, device)
        audits[side] = BatchAudit(
            trainer, task, data, NearbyStream(task, data), epochs=epochs,
            first=min(1, len(rounds) - 1),
        )  # fmt: skip
        streams[side] = Continuous(
            trainer, rounds, epochs=epochs, evaluate=False, audit=audits[side]
        )
        streams[side].begin()
    found: dict[str, list[RoundResult]] = {side: [] for side in streams}
    begin = time.perf_counter()
    for turn in range(len(rounds)):
        if turn > length.least and time.perf_counter() - begin > length.budget_s:
            break
        for side in streams if turn % 2 == 0 else reversed(streams):
            found[side].append(streams[side].play())
    lead = names[0]
    losses = {name: [loss for one in results for loss in one.losses]
              for name, results in found.items()}  # fmt: skip
    deviation = {"loss": loss_gap(list(found.values()))}
    allowed = dict.fromkeys(losses, TOLERANCE)
    if RECORDED in names:  # its sums have another order
        trainer = open_contender(lead, task, data, graph, device)
        nudge(trainer)
        nudged = Continuous(trainer, rounds[: len(found[lead])], epochs=epochs, evaluate=False)
        nudged.begin()
        moved = loss_gap([found[lead], nudged.play_all()])
        trainer.close()
        allowed[RECORDED] = rounded_as(moved, TOLERANCE)
    checks = [
        close("losses", losses[name], losses[lead], allowed[name], against=lead, part=name,
              system=name)
        for name in losses if name != lead
    ]  # fmt: skip
    if rounds[0].last <= COMPARED:
        reference = reference_loss(task, data, rounds[0], device)
        deviation["reference"] = abs(found[lead][0].losses[0] / reference - 1)
        checks.append(
            close("losses", losses[lead][0], reference, TOLERANCE, system=lead,
                  against="plain path in float32", part=f"{lead}, first epoch")
        )  # fmt: skip
    timed = {name: results[1:] or results for name, results in found.items()}
    told = Measurement(deviation=deviation, data=data.describe())
    take_control(told, {side: [x.retrain_s for x in timed[side]] for side in timed})
    if control:
        del timed[AGAIN]
        streams.pop(AGAIN).trainer.close()
    for name, results in timed.items():
        told.observe("round_time", fmean(one.retrain_s for one in results), setting=name)
        for phase in dict.fromkeys(PHASE_OF.values()):
            keys = [key for key, shown in PHASE_OF.items() if shown == phase]
            mean = fmean(sum(one.parts.get(key, 0.0) for key in keys) for one in results)
            told.observe("phase_time", mean, setting=name, phase=phase)
        share = fmean(one.update_s / one.retrain_s for one in results)
        told.observe("time_share", share, setting=name, phase="update")
        trained = epochs * sum(one.trained for one in results)
        seconds = sum(one.retrain_s for one in results)
        told.observe("throughput", trained / seconds, setting=name, of="events")
    first_trainer = streams[lead].trainer
    oracle = StreamOracle(task, data, first_trainer.inserted, device=str(first_trainer.device))
    again = BatchOracle(task, data, oracle.trainer)
    retaken = taken_again_later(first)
    audited = list(streams) if first else [random.SystemRandom().choice(list(streams))]
    for name, one in streams.items():
        played = [(outcome.round.first, outcome.round.last) for outcome in found[name]]
        own = recount_training(name, one.trainer, task, played, epochs)
        if name in audited:
            own += audits[name].checks(name, again, again=retaken)
        else:
            own.append(audits[name].cut(name))
        own += oracle.checks(name, one.trainer)
        own += recount_batches(name, one.trainer, task)
        checks += of_contender(name, own)
    for stream in streams.values():
        stream.trainer.close()
    for baseline, setting in PAIRS:
        if not {baseline, setting} <= set(timed):
            continue
        for phase, seconds in _PARTS.items():
            slow, fast = ([seconds(x) for x in timed[key]] for key in (baseline, setting))
            which = {"phase": phase} if phase else {}
            observe_speedup(told, slow, fast, setting=setting, baseline=baseline, **which)
    told.observe("turns", len(timed[lead]))
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


_PARTS: Final = {
    "": lambda one: one.retrain_s,
    "update": lambda one: one.update_s,
    "without network": lambda one: one.retrain_s - sum(one.parts.get(p, 0.0) for p in NETWORK),
}
"""Phase of a speed-up -> seconds of a round; "" is all of it."""


def loss_gap(played: Sequence[Sequence[RoundResult]]) -> float:
    """Largest relative difference between the losses of contenders, over rounds and epochs."""
    return max(
        (max(losses) - min(losses)) / max(abs(x) for x in losses)
        for rounds in zip(*played, strict=True)
        for losses in zip(*(one.losses for one in rounds), strict=True)
    )
