"""Measurements of Figures 5 and 7 on ranks of this machine, and counts without any."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dgbench.lab.compare import observe_speedup
from dgbench.lab.result_checks import ResultCheck, at_most, equal, summarised
from dgbench.lab.table import number
from dgbench.runtime.collectives import GroupCommunicator
from dgbench.runtime.collectives.group import Method
from dgbench.runtime.ranks import launch
from dgbench.runtime.topology import AlphaBeta, MeasuredExchange, fit, measure_exchange
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
from dgbench.systems.esdg.experiments.recount import (
    OVER_PAIRS,
    Widths,
    agree,
    redistributed,
)
from dgbench.systems.esdg.experiments.shares import MeasuredShare
from dgbench.systems.esdg.oracle import comparison, largest_gap
from dgbench.systems.esdg.partition import BlockShares
from dgbench.systems.esdg.volumes import count_snapshot, timeline

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

COUNTED_STEPS, COUNTED_NODES = 128, 128 * 8
"""T and N of the counted matrices: shares are equal for every P."""

IDLE_STEPS, IDLE_RANKS = 100, (64, 100, 128)
TURNS = {"smoke": 3, "quick": 4, None: 6}
"""Epochs of each share that are timed."""

SENT = "bytes that were sent"
FITTED = 1e-8
"""Largest relative slope of the error where costs are fitted."""

LINKS: Mapping[str, Method] = {"shared": "shared", "gloo": "collective"}
"""Methods of exchange used to fit links, by the name of the link."""


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
    """Add the fitted costs of shares, with the seconds of each."""
    costs = fit_costs(taken)
    for share in taken:
        where = {"ranks": share.size, "size": share.nodes}
        found.observe("epoch_time", share.seconds, of="share", **where)
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
    loops: int = 0,
) -> Measurement:
    """Train on ranks of this machine; compared with the oracle, later rounds with the first.

    Args:
        least: epochs at least.
        alone: take turns with a single rank. Observations of this setting are of it, all others of
            P ranks; the speed-up is the median of the pairs' ratios.
        data: snapshots, where they are open already.
        loops: edges that are trained on beside those of the data.
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
    cores, traffic = len(os.sched_getaffinity(0)), run.traffic["together"]
    found = Measurement(data=describe(data), notes=run.notes)
    if ranks > cores:
        found.notes.append(f"{ranks} ranks take turns on {cores} cores")
    found.observe("floats", traffic.total("floats"))
    found.observe("messages", traffic.total("messages"))
    found.observe("edges", sum(data.num_edges[: len(data) - 1]) + loops)
    found.observe("cores", cores)
    found.observe("preparation_time", run.prepare_s["together"])
    found.checks = run.compared(task, data, oracle, kept, context)
    if oracle is not None:
        found.deviation = {"loss": largest_gap(found.checks, "losses")}
    found.checks.append(_traffic_check(task, data, ranks, found, loops))
    for side, seconds in run.seconds.items():
        where = {"setting": "alone"} if side == "alone" else {}
        found.observe("epoch_time", median(seconds), samples=[] if where else seconds, **where)
        for phase, spent in run.phases[side].items():
            found.observe("phase_time", spent, phase=phase, **where)
    if alone:
        observe_speedup(found, run.seconds["alone"], run.seconds["together"])
    found.observe("turns", len(run.seconds["together"]))
    return found


def _traffic_check(
    task: TimelineWorkload, data: SnapshotSequence, ranks: int, own: Measurement, loops: int
) -> ResultCheck:
    """Check an epoch's traffic pair by pair, with the rings that reduce gradients and loss."""
    steps, widths = len(data) - 1, Widths.of(task.model, window=task.window)
    moved = int(redistributed(widths.redistributed, steps, data.num_nodes, ranks).sum())
    wanted = Measurement()
    wanted.observe("floats", moved + 2 * (ranks - 1) * (widths.parameters + 1))
    wanted.observe("edges", sum(data.topology[t].indices.numel() for t in range(steps)) + loops)
    if steps >= ranks:
        # There and back in each of three passes, between ranks that have something to send; and
        # rings of P chunks of gradients, and of the one number that is the loss.
        exchanges = 3 * 2 * len(widths.redistributed) * ranks * (ranks - 1)
        wanted.observe("messages", exchanges + 2 * (ranks + 1) * (ranks - 1))
    return agree(own, wanted, against=OVER_PAIRS)


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
    found.observe("snapshots", IDLE_STEPS)
    found.checks = summarised(checks)
    return found


def exchange_points(
    comm: GroupCommunicator, sizes: Sequence[int], repeats: int, passes: int, method: Method
) -> tuple[list[MeasuredExchange], dict[str, Tensor], dict[str, Tensor]]:
    """Measure a rank's exchanges for `links`: medians over passes, which a short disturbance hits
    once.

    Returns:
        Points; and what arrived in exchanges of the smallest, a middle and the largest size, and
        what should have.
    """
    comm.method = method
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
    """Latency and bandwidth of an all-to-all here, and how far they are off on sizes held out.

    By link and number of ranks, each of which has a core (2 at least). Errors without these are
    those in shared memory of the most ranks.
    """
    found = Measurement()
    checks: list[ResultCheck] = []
    sizes = [round(2 ** (k / 2)) for k in range(20, 30 if short else 43)]
    passes = 1 if short else 3
    cores = len(os.sched_getaffinity(0))
    groups = [ranks for ranks in (2, 4) if ranks <= max(2, cores)]
    for link, method in LINKS.items():
        for ranks in groups:
            told = launch(
                exchange_points, ranks, (sizes, 3, passes, method), timeout_s=30, threads=1
            )
            points = told[0][0]
            checks += [equal("exchanges", own, sent, against=SENT) for _, own, sent in told]
            line = fit(points[::2])
            checks.append(_fit_check(points[::2], line, f"{method}, {ranks} ranks"))
            errors = [abs(line.time(p.messages, p.nbytes) / p.seconds - 1) for p in points[1::2]]
            where = {"link": link, "ranks": ranks}
            found.observe("operation_time", line.alpha_s, of="message", **where)
            found.observe("bandwidth", min(line.bandwidth, 1e15), **where)
            stands = [where, {}] if where == {"link": "shared", "ranks": groups[-1]} else [where]
            for place in stands:
                for statistic, error in (("largest", max(errors)), ("median", median(errors))):
                    dims = {"of": "links", "statistic": statistic, **place}
                    found.observe("relative_error", error, **dims)
    found.notes = [
        f"all-to-alls in shared memory and over Gloo on {cores} cores; every second size was "
        "held out"
    ]
    found.checks = summarised(checks)
    return found


def _fit_check(points: Sequence[MeasuredExchange], found: AlphaBeta, part: str) -> ResultCheck:
    """A check that latency and bandwidth are those with the least squares of relative errors."""
    costs = [found.alpha_s, 1 / found.bandwidth]
    table = [(p.messages, p.nbytes) for p in points]
    gap = least_squares_gap(table, [p.seconds for p in points], costs)
    return at_most("costs", gap, FITTED, against="least squares", compared=2, part=part)
