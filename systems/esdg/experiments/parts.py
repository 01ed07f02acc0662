"""Measurements of Figures 5 and 7 on ranks of this machine, and counts without any.

A rank's share of an epoch is also run alone: what a rank computes, without its communication. The
code is that of the ranks (`SnapshotRankTrainer`), on a communicator whose other ranks do not exist.
They would send zeros of the right shape, so the seconds mean something and the values do not. Ranks
are alike up to one step or vertex, and rank 0 has the longer share.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.lab.compare import observe_speedup
from dgbench.lab.result_checks import ResultCheck, at_most, equal, summarised
from dgbench.lab.table import number
from dgbench.runtime.collectives import Communicator, GroupCommunicator, TrafficMatrix
from dgbench.runtime.collectives.communicator import Reduction
from dgbench.runtime.collectives.exchange import Arrived, PendingExchange
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.ranks import launch
from dgbench.runtime.threads import one_thread
from dgbench.runtime.topology import MeasuredExchange, fit, measure_exchange
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline
from dgbench.systems.esdg.experiments.projection import (
    GPUS_PER_NODE,
    Costs,
    fit_costs,
    redistribution,
)
from dgbench.systems.esdg.experiments.rank_turns import ALONE, take_rank_turns
from dgbench.systems.esdg.experiments.recount import parted
from dgbench.systems.esdg.oracle import TimelineOracle, TimelineResult, comparison, largest_gap
from dgbench.systems.esdg.partition import BlockShares
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.volumes import count_snapshot, timeline

HELD_STEPS = 25
"""Snapshots that a rank holds at a time. With all of a long timeline in one block it is the
allocator of this machine that is measured."""


class Alone(Communicator):
    """A rank whose group never answers: an exchange gives zeros at once.

    Attributes:
        away_s: seconds inside exchanges, to be taken off. Packing and unpacking is not in them.
    """

    def __init__(self, size: int, *, rank: int = 0) -> None:
        super().__init__(rank, size)
        self.away_s = 0.0

    def barrier(self) -> None:
        """Return at once."""

    def all_traffic(self) -> TrafficMatrix:
        """Refused: the other ranks do not exist.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("a rank that runs alone knows its own traffic only")

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> PendingExchange:
        start = time.perf_counter()
        out = x.new_zeros((sum(receive), *x.shape[1:]))
        self._keep(out, receive).copy_(x.split(list(send))[self.rank])
        self.away_s += time.perf_counter() - start
        return Arrived(out)

    def _exchange_sizes(self, send: tuple[int, ...]) -> list[int]:
        raise UnsupportedError("what other ranks would tell is not known to a rank that runs alone")

    def _all_reduce(self, x: Tensor, op: Reduction) -> Tensor:
        return x.clone()

    def _all_gather(self, x: Tensor, rows: tuple[int, ...]) -> Tensor:
        out = x.new_zeros((sum(rows), *x.shape[1:]))
        self._keep(out, rows).copy_(x)
        return out

    def _broadcast(self, x: Tensor, root: int) -> Tensor:
        return x.clone()

    def _keep(self, out: Tensor, rows: Sequence[int]) -> Tensor:
        return out[sum(rows[: self.rank]) : sum(rows[: self.rank + 1])]


@dataclass(frozen=True, slots=True)
class MeasuredShare:
    """A measured share.

    Attributes:
        size, nodes: P and N. steps: snapshots that the rank convolves.
        samples: seconds of each epoch, exchanges taken off.
        checks: comparisons of the share, where it was drawn for them; of its steps, always.
    """

    size: int
    nodes: int
    steps: int
    samples: list[float]
    checks: list[ResultCheck] = field(default_factory=list)

    @property
    def vertex_steps(self) -> int:
        """Vertices times steps of the convolutions; T N / P where P divides T."""
        return self.steps * self.nodes

    @property
    def seconds(self) -> float:
        """Median of the samples."""
        return median(self.samples)


def blocks_of(steps: int, size: int) -> int:
    """As few blocks as let each of `size` ranks hold at most `HELD_STEPS` snapshots."""
    return max(1, -(-steps // (HELD_STEPS * size)))


@one_thread()
def take_shares(
    workload: TimelineWorkload, wanted: Sequence[tuple[SnapshotSequence, int]], *, turns: int = 3
) -> list[MeasuredShare]:
    """Time rank 0's share of an epoch on one thread; the shares take turns, after one that warms
    up.

    Before and after, the smallest share and another that is drawn are compared with an oracle that
    has zeros where other ranks would send something. A share of everything is drawn where there is
    no other, for it takes the oracle longest.

    Args:
        wanted: a graph and P, for each share; graphs may differ in their number of vertices.

    Raises:
        InvalidInputError: nothing wanted, or no turn.
    """
    if turns < 1 or not wanted:
        raise InvalidInputError(f"{turns} turns of {len(wanted)} shares; at least one of each")
    trainers = []
    for data, size in wanted:
        steps = len(data) - (workload.task != "class")
        trainers.append(
            SnapshotRankTrainer(Alone(size), workload, data, blocks=blocks_of(steps, size))
        )
    compared = {}
    for i in _drawn(wanted):
        data, size = wanted[i]
        oracle = TimelineOracle(workload, data, share=(size, len(trainers[i].blocks)))
        compared[i] = oracle, TimelineResult.of(trainers[i], oracle.request)
    samples: list[list[float]] = [[] for _ in trainers]
    for turn in range(turns + 1):
        order = range(len(trainers))
        for i in order if turn % 2 else reversed(order):
            seconds = _epoch(trainers[i])
            if turn:
                samples[i].append(seconds)
    checks = {}
    for i, (oracle, before) in compared.items():
        name = f"share of {wanted[i][1]} ranks"
        checks[i] = oracle.checks_of({name: trainers[i]}, {name: before})
    found = []
    for i, ((data, size), trainer) in enumerate(zip(wanted, trainers, strict=True)):
        steps = sum(len(trainer.split.held(block)) for block in trainer.blocks)
        blocks = parted(range(trainer.task.steps), len(trainer.blocks))
        own = sum(len(parted(block, size)[0]) for block in blocks)
        check = equal("counters", steps, own, against="steps dealt out one by one")
        share = MeasuredShare(size, data.num_nodes, steps, samples[i], [check, *checks.get(i, [])])
        found.append(share)
    return found


def _drawn(wanted: Sequence[tuple[SnapshotSequence, int]]) -> list[int]:
    """Places of the smallest share, and of another that is drawn, which are compared."""
    # Vertices times steps of each, and so what its oracle costs.
    work = [data.num_nodes * len(data) / size for data, size in wanted]
    least = work.index(min(work))
    others = [i for i, (_, size) in enumerate(wanted) if i != least and size > 1]
    others = others or [i for i in range(len(wanted)) if i != least]
    return [least, *random.SystemRandom().sample(others, min(1, len(others)))]


def _epoch(trainer: SnapshotRankTrainer) -> float:
    comm = trainer.comm
    assert isinstance(comm, Alone)
    away, start = comm.away_s, time.perf_counter()
    trainer.train_epoch()
    return max(1e-9, time.perf_counter() - start - (comm.away_s - away))


COUNTED_STEPS, COUNTED_NODES = 128, 128 * 8
"""T and N of the counted matrices: shares are equal for every P."""

IDLE_STEPS, IDLE_RANKS = 100, (64, 100, 128)
TURNS = {"smoke": 3, "quick": 4, None: 6}
"""Epochs of each share that are timed."""

SENT = "bytes that were sent"
FITTED = 1e-8
"""Largest relative slope of the error where costs are fitted."""


def costs_of(row: Any) -> Costs:
    """The costs that a row of shares holds, or a measurement of them."""
    return Costs(
        number(row, "epoch_time"),
        *(number(row, "operation_time", of=of) for of in ("partner", "step", "vertex_step")),
        *(
            number(row, "relative_error", of="costs", statistic=statistic)
            for statistic in ("largest", "median")
        ),
    )


def share_checks(taken: Sequence[MeasuredShare], found: Measurement) -> list[ResultCheck]:
    """Checks of the shares, and of costs that are fitted to them as `observe_costs` adds them."""
    table = [(1.0, s.size, s.steps, s.steps * s.nodes) for s in taken]
    costs = costs_of(found)
    fitted = [costs.epoch_s, costs.partner_s, costs.step_s, costs.vertex_step_s]
    gap = least_squares_gap(table, [median(s.samples) for s in taken], fitted)
    return [
        *summarised([check for share in taken for check in share.checks]),
        at_most("costs", gap, FITTED, against="least squares", compared=len(fitted)),
    ]


def least_squares_gap(
    table: Sequence[Sequence[float]], seconds: Sequence[float], costs: Sequence[float]
) -> float:
    """Distance of costs from the non-negative least-squares fit of relative errors.

    There the error does not fall by any cost that is not 0, and would only grow with others.
    """
    rows = np.array(table) / np.array(seconds)[:, None]
    left = rows @ np.array(costs) - 1
    slopes = rows.T @ left / np.linalg.norm(rows, axis=0) / np.sqrt(len(seconds))
    return float(
        max(abs(s) if cost > 0 else max(0.0, -s) for s, cost in zip(slopes, costs, strict=True))
        if min(costs) >= 0
        else np.inf
    )


def observe_costs(found: Measurement, taken: Sequence[MeasuredShare]) -> None:
    """Add the fitted costs of shares."""
    costs = fit_costs(taken)
    found.observe("epoch_time", costs.epoch_s)
    found.observe("operation_time", costs.partner_s, of="partner")
    found.observe("operation_time", costs.step_s, of="step")
    found.observe("operation_time", costs.vertex_step_s, of="vertex_step")
    found.observe("relative_error", costs.error, of="costs", statistic="largest")
    found.observe("relative_error", costs.typical, of="costs", statistic="median")


def on_ranks(
    task: TimelineWorkload,
    ranks: int,
    context: RunContext,
    timeout_s: float,
    *,
    least: int,
    alone: bool = False,
    data: SnapshotSequence | None = None,
) -> Measurement:
    """Train on ranks of this machine; compared with the oracle, later rounds with the first.

    Args:
        alone: take turns with a single rank, whose observations have a setting of this name; the
            speed-up is the median of the pairs' ratios.
    """
    torch.set_num_threads(1)  # as ranks have
    data = load_timeline(task) if data is None else data
    oracle, kept = comparison(task, data, ranks, context)
    run = take_rank_turns(
        task,
        data,
        ranks,
        {"together": {}} | ({"alone": ALONE} if alone else {}),
        least=least,
        budget_s=context.budget_s,
        timeout_s=0.9 * timeout_s,
        device=context.device,
        transport=None,
        timing=True,
        request=None if oracle is None else oracle.request,
    )
    cores = len(os.sched_getaffinity(0))
    found = Measurement(data=describe(data), notes=run.notes)
    if ranks > cores:
        found.notes.append(f"{ranks} ranks take turns on {cores} cores")
    found.observe("cores", cores)
    found.checks = run.compared(task, data, oracle, kept, context)
    if oracle is not None:
        found.deviation = {"loss": largest_gap(found.checks, "losses")}
    for side, seconds in run.seconds.items():
        where = {"setting": "alone"} if side == "alone" else {}
        found.observe("epoch_time", median(seconds), samples=[] if where else seconds, **where)
        for phase, spent in run.phases[side].items():
            found.observe("phase_time", spent, phase=phase, **where)
    if alone:
        observe_speedup(found, run.seconds["alone"], run.seconds["together"])
    return found


def counted(sizes: Iterable[int]) -> Measurement:
    """Traffic inside and between nodes, and ranks without a snapshot; exact."""
    model = timeline("tm_gcn")
    found, checks = Measurement(), []
    for size in sizes:
        walked = count_snapshot("tm_gcn", size=size, steps=COUNTED_STEPS, num_nodes=COUNTED_NODES)
        closed = redistribution(model, COUNTED_STEPS, COUNTED_NODES, size)
        links = {name: walked.matrix(name) for name in ("bytes", "messages")}
        wanted = dict(zip(links, closed, strict=True))
        checks.append(equal("counters", links, wanted, against="closed forms"))
        floats = walked.matrix("floats")
        node = np.arange(size) // GPUS_PER_NODE
        inside = node[:, None] == node[None, :]
        held = BlockShares(range(COUNTED_STEPS), COUNTED_NODES, size)
        kept = sum(len(s[0]) * len(v) for s, v in zip(held.steps, held.vertices, strict=True))
        width = 3 * sum(map(sum, model.redistributed_dims))
        found.observe("floats", int(floats[inside].sum()), of="inside", ranks=size)
        found.observe("floats", int(floats[~inside].sum()), of="between", ranks=size)
        found.observe("floats", width * kept, of="kept", ranks=size)
    for size in IDLE_RANKS:
        held = BlockShares(range(IDLE_STEPS), COUNTED_NODES, size)
        idle = sum(len(pieces[0]) == 0 for pieces in held.steps)
        found.observe("processes", idle, of="idle", ranks=size)
    found.checks = summarised(checks)
    return found


def exchange_points(
    comm: GroupCommunicator, sizes: Sequence[int], repeats: int, passes: int
) -> tuple[list[MeasuredExchange], dict[str, Tensor], dict[str, Tensor]]:
    """Measure a rank's exchanges for `links`: medians over passes, which a short disturbance hits
    once; and what arrived in the smallest, a middle and the largest one, beside what should
    have."""
    comm.method = "shared"
    found = [measure_exchange(comm, sizes, repeats=repeats) for _ in range(passes)]
    points = [
        MeasuredExchange(at[0].messages, at[0].nbytes, median(point.seconds for point in at))
        for at in zip(*found, strict=True)
    ]
    arrived, sent = {}, {}
    ones = [1] * comm.size
    for place in (0, len(sizes) // 2, len(sizes) - 1):
        numbers = torch.arange(sizes[place])
        rows = [(comm.rank * comm.size + to + numbers) % 251 for to in range(comm.size)]
        name = f"{sizes[place]} bytes"
        arrived[name] = comm.all_to_all(torch.stack(rows).to(torch.uint8), ones, ones).clone()
        rows = [(of * comm.size + comm.rank + numbers) % 251 for of in range(comm.size)]
        sent[name] = torch.stack(rows).to(torch.uint8)
    return points, arrived, sent


def links(*, short: bool = False) -> Measurement:
    """Errors of latency and bandwidth of an all-to-all in shared memory on sizes held out, on
    4 ranks where each of them has a core, else on 2."""
    sizes = [round(2 ** (k / 2)) for k in range(20, 30 if short else 43)]
    cores = len(os.sched_getaffinity(0))
    ranks = 4 if cores >= 4 else 2
    told = launch(exchange_points, ranks, (sizes, 3, 1 if short else 3), timeout_s=30, threads=1)
    fitted, others = told[0][0][::2], told[0][0][1::2]
    line = fit(fitted)
    errors = [abs(line.time(p.messages, p.nbytes) / p.seconds - 1) for p in others]
    found = Measurement()
    for statistic, error in (("largest", max(errors)), ("median", median(errors))):
        found.observe("relative_error", error, of="links", statistic=statistic)
    table = [(p.messages, p.nbytes) for p in fitted]
    costs = [line.alpha_s, 1 / line.bandwidth]
    gap = least_squares_gap(table, [p.seconds for p in fitted], costs)
    found.notes = [
        f"all-to-alls of {ranks} ranks in shared memory on {cores} cores; every second size was "
        "held out"
    ]
    found.checks = summarised([
        *(equal("exchanges", arrived, sent, against=SENT) for _, arrived, sent in told),
        at_most("costs", gap, FITTED, against="least squares", compared=2),
    ])  # fmt: skip
    return found
