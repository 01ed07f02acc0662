"""What Figures 5 and 7 measure on ranks of this machine, and count without any."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dgbench.lab.compare import gains
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.runtime.collectives import GroupCommunicator, TrafficMatrix
from dgbench.runtime.collectives.group import Method
from dgbench.runtime.ranks import launch
from dgbench.runtime.topology import AlphaBeta, Point, fit, measure_exchange
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline
from dgbench.systems.esdg.experiments.projection import (
    GPUS_PER_NODE,
    ITEM,
    Costs,
    fit_costs,
    redistribution,
)
from dgbench.systems.esdg.experiments.recount import (
    OVER_PAIRS,
    Widths,
    parted,
    redistributed,
)
from dgbench.systems.esdg.experiments.scaling_turns import take_scaling_turns
from dgbench.systems.esdg.experiments.shares import Share
from dgbench.systems.esdg.oracle import TimelineOracle, largest_gap, summary
from dgbench.systems.esdg.partition import Shares
from dgbench.systems.esdg.ranked import RankSettings, train_ranked
from dgbench.systems.esdg.volumes import count_snapshot, timeline

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

COUNTED_STEPS, COUNTED_NODES = 128, 128 * 8
"""T and N of the counted matrices: shares are equal for every P."""

IDLE_STEPS, IDLE_RANKS = 100, (64, 100, 128)
TURNS = {"smoke": 3, "quick": 6, "full": 6}
"""Epochs of each share that are timed."""

SENT = "bytes that were sent"
FITTED = 1e-8
"""Largest relative slope of the error where costs are fitted."""

LINKS: Mapping[Method, str] = {"shared": "", "collective": "gloo_"}
"""How ranks exchange when links are fitted, and what names of values have before the ranks."""

COSTS = ("epoch_s", "partner_s", "step_s", "vertex_step_s")


def costs_of(values: Mapping[str, float]) -> Costs:
    """The costs that a row of shares holds."""
    return Costs(*(values[name] for name in (*COSTS, "cost_error", "cost_typical")))


def share_checks(taken: Sequence[Share], values: Mapping[str, float]) -> list[ResultCheck]:
    """Checks of the shares, and of costs that are fitted to them as `cost_values` names them."""
    table = [(1.0, s.size, s.steps, s.steps * s.nodes) for s in taken]
    gap = least_squares_gap(
        table, [median(s.samples) for s in taken], [values[name] for name in COSTS]
    )
    found = [check for share in taken for check in share.checks]
    return [
        *summary(found),
        at_most("costs", gap, FITTED, against="least squares", compared=len(COSTS)),
    ]


def least_squares_gap(
    table: Sequence[Sequence[float]], seconds: Sequence[float], costs: Sequence[float]
) -> float:
    """How far costs are from those, none negative, with the least squares of relative errors.

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


def cost_values(taken: Sequence[Share]) -> dict[str, float]:
    """The fitted costs of shares, as values of a row, with the seconds of each."""
    costs = fit_costs(taken)
    values = {f"share {s.size} of {s.nodes}": s.seconds for s in taken}
    return values | {
        **{name: getattr(costs, name) for name in COSTS},
        "cost_error": costs.error,
        "cost_typical": costs.typical,
    }


def snapshot_bytes(data: SnapshotSequence) -> tuple[float, float]:
    """Mean bytes of a snapshot as coordinates, and as what changed (whichever is smaller)."""
    from dgbench.kernels_cuda.difference import count_changes

    plain, different = [], []
    for t in range(1, len(data)):
        n = data.topology[t].nnz
        removed, added = count_changes(data.topology[t - 1], data.topology[t])
        plain.append(5 * ITEM * n)
        different.append(min(5 * ITEM * n, 4 * ITEM * (removed + added) + ITEM * n))
    return fmean(plain) or 1.0, fmean(different) or 1.0


def on_ranks(
    task: TimelineWorkload,
    ranks: int,
    context: RunContext,
    timeout_s: float,
    data: SnapshotSequence | None = None,
) -> Measurement:
    """Train on ranks of this machine; the first round is compared with the oracle."""
    torch.set_num_threads(1)  # as ranks have
    data = load_timeline(task) if data is None else data
    # Rounds of one cell stand for each other.
    oracle = TimelineOracle(task, data, device=context.device) if context.round == 1 else None
    run = train_ranked(
        task,
        ranks,
        RankSettings(),
        budget_s=context.budget_s,
        timeout_s=0.9 * timeout_s,
        device=context.device,
        data=data,
        compared=None if oracle is None else oracle.request,
    )
    counters = {
        "floats_sent": run.traffic.total("floats"),
        "messages_sent": run.traffic.total("messages"),
        "entries": sum(data.num_edges[: len(data) - 1]),
    }
    checks = [] if oracle is None else run.checks(oracle, f"{ranks} ranks")
    checks = summary([*checks, _traffic_check(task, data, ranks, counters)])
    cores = len(os.sched_getaffinity(0))
    names = {"exchange": "communicate"}
    phases = {
        names.get(name, name): fmean(rank[name] for rank in run.phases) for name in run.phases[0]
    }
    notes = list(run.notes)
    if ranks > cores:
        notes.append(f"{ranks} ranks take turns on {cores} cores")
    return Measurement(
        values={"epoch_s": median(run.samples), "cores": float(cores), "prepare_s": run.prepare_s},
        units={"epoch_s": "s", "prepare_s": "s"},
        counters=counters,
        phases=phases,
        samples=run.samples,
        warmup=run.warmup,
        deviation={"loss": largest_gap(checks, "losses")} if oracle is not None else {},
        data=describe(data),
        notes=notes,
        checks=checks,
    )


def in_turns(
    task: TimelineWorkload, ranks: int, context: RunContext, timeout_s: float, least: int
) -> Measurement:
    """One rank and several in turns; both are compared with the oracle in the first round.

    Values: `epoch_s` and `alone_s`, medians; `gain speed-up` with `low` and `high`, the median of
    the pairs' ratios; `alone PHASE`, seconds of one rank's epoch, as `phases` are of P ranks'.
    """
    torch.set_num_threads(1)  # as ranks have
    data = load_timeline(task)
    oracle = TimelineOracle(task, data, device=context.device) if context.round == 1 else None
    run = take_scaling_turns(
        task,
        data,
        ranks,
        least=least,
        budget_s=context.budget_s,
        timeout_s=0.9 * timeout_s,
        device=context.device,
        request=None if oracle is None else oracle.request,
    )
    counters = {
        "floats_sent": run.traffic.total("floats"),
        "messages_sent": run.traffic.total("messages"),
        "entries": sum(data.num_edges[: len(data) - 1]),
    }
    checks = [] if oracle is None else oracle.trained_checks(run.before, run.after, run.losses)
    checks.append(_traffic_check(task, data, ranks, counters))
    cores = len(os.sched_getaffinity(0))
    middle = {side: median(seconds) for side, seconds in run.seconds.items()}
    phases = {
        side: {phase: share * middle[side] for phase, share in shares.items()}
        for side, shares in run.shares.items()
    }
    notes = list(run.notes)
    if ranks > cores:
        notes.append(f"{ranks} ranks take turns on {cores} cores")
    return Measurement(
        values={
            "epoch_s": middle["together"],
            "alone_s": middle["alone"],
            "cores": float(cores),
            "prepare_s": run.prepare_s,
            **{f"alone {phase}": seconds for phase, seconds in phases["alone"].items()},
            **gains("speed-up", run.seconds["alone"], run.seconds["together"]),
        },
        units=dict.fromkeys(("epoch_s", "alone_s", "prepare_s"), "s"),
        counters={"turns": len(run.seconds["together"]), **counters},
        phases=phases["together"],
        samples=run.seconds["together"],
        deviation={"loss": largest_gap(checks, "losses")} if oracle is not None else {},
        data=describe(data),
        notes=notes,
        checks=checks,
    )


def _traffic_check(
    task: TimelineWorkload, data: SnapshotSequence, ranks: int, counters: Mapping[str, int]
) -> ResultCheck:
    """What ranks sent in an epoch, pair by pair, and the rings that add up gradients and loss."""
    steps, widths = len(data) - 1, Widths.of(task.model, window=task.window)
    moved = redistributed(widths.redistributed, steps, data.num_nodes, ranks)
    # There and back in each of three passes, between ranks that have something to send.
    exchanges = 3 * 2 * len(widths.redistributed) * ranks * (ranks - 1)
    wanted = {
        "floats_sent": int(moved.sum()) + 2 * (ranks - 1) * (widths.parameters + 1),
        "entries": sum(data.topology[t].indices.numel() for t in range(steps)),
    }
    if steps >= ranks:
        # Rings of P chunks of gradients, and of the one number that is the loss.
        wanted["messages_sent"] = exchanges + 2 * (ranks + 1) * (ranks - 1)
    return equal("counters", {k: counters[k] for k in wanted}, wanted, against=OVER_PAIRS)


def counted(sizes: Iterable[int]) -> Measurement:
    """Traffic inside and between nodes, and ranks without a snapshot; exact."""
    model = timeline("tm_gcn")
    counters: dict[str, int] = {}
    wanted: dict[str, int] = {}
    checks: list[ResultCheck] = []
    for size in sizes:
        found = count_snapshot("tm_gcn", size=size, steps=COUNTED_STEPS, num_nodes=COUNTED_NODES)
        floats = found.matrix("floats")
        closed = redistribution(model, COUNTED_STEPS, COUNTED_NODES, size)
        checks += _counted_checks(size, found, closed)
        node = np.arange(size) // GPUS_PER_NODE
        inside = node[:, None] == node[None, :]
        held = Shares(range(COUNTED_STEPS), COUNTED_NODES, size)
        kept = sum(len(s[0]) * len(v) for s, v in zip(held.steps, held.vertices, strict=True))
        width = 3 * sum(map(sum, model.redistributed_dims))
        counters |= {
            f"inside_{size}": int(floats[inside].sum()),
            f"between_{size}": int(floats[~inside].sum()),
            f"kept_{size}": width * kept,
        }
        wanted |= _placed(size)
    for size in IDLE_RANKS:
        held = Shares(range(IDLE_STEPS), COUNTED_NODES, size)
        counters[f"idle_{size}"] = sum(len(pieces[0]) == 0 for pieces in held.steps)
        wanted[f"idle_{size}"] = sum(not part for part in parted(range(IDLE_STEPS), size))
    counters |= {"T": IDLE_STEPS, "counted_T": COUNTED_STEPS, "counted_N": COUNTED_NODES}
    own = {key: counters[key] for key in wanted}
    checks.append(equal("counters", own, wanted, against=OVER_PAIRS))
    return Measurement(counters=counters, checks=summary(checks))


def _counted_checks(
    size: int, found: TrafficMatrix, closed: tuple[np.ndarray, np.ndarray]
) -> list[ResultCheck]:
    """Floats of every link, walked and in closed form, against those of its pair of ranks."""
    dims = Widths.of("tm_gcn", task="class").redistributed
    floats = redistributed(dims, COUNTED_STEPS, COUNTED_NODES, size)
    wanted = {"floats": floats, "bytes": 4 * floats, "messages": 6 * len(dims) * (floats > 0)}
    walked = {name: found.matrix(name) for name in ("floats", "bytes", "messages")}
    formula = {"bytes": closed[0], "messages": closed[1]}
    return [
        equal("counters", walked, wanted, against=OVER_PAIRS),
        equal("counters", formula, {k: wanted[k] for k in formula}, against=OVER_PAIRS),
    ]


def _placed(size: int) -> dict[str, int]:
    """Floats inside nodes, between them, and those that stay where they are."""
    dims = Widths.of("tm_gcn", task="class").redistributed
    floats = redistributed(dims, COUNTED_STEPS, COUNTED_NODES, size)
    found = {f"inside_{size}": 0, f"between_{size}": 0}
    for p in range(size):
        for q in range(size):
            where = "inside" if p // 8 == q // 8 else "between"
            found[f"{where}_{size}"] += int(floats[p, q])
    steps, nodes = (parted(range(n), size) for n in (COUNTED_STEPS, COUNTED_NODES))
    stay = sum(len(s) * len(v) for s, v in zip(steps, nodes, strict=True))
    return found | {f"kept_{size}": 3 * sum(map(sum, dims)) * stay}


def exchange_points(
    comm: GroupCommunicator, sizes: Sequence[int], repeats: int, passes: int, method: Method
) -> tuple[list[Point], dict[str, Tensor], dict[str, Tensor]]:
    """What a rank of `links` does: medians over passes, which a short disturbance hits once.

    Returns:
        Points; and what arrived in exchanges of the smallest, a middle and the largest size, and
        what should have.
    """
    comm.method = method
    found = [measure_exchange(comm, sizes, repeats=repeats) for _ in range(passes)]
    points = [
        Point(at[0].messages, at[0].nbytes, median(point.seconds for point in at))
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
    """Alpha and beta of an all-to-all here, and how far they are off on sizes held out.

    Values end in the number of ranks, each of which has a core (2 at least); those of Gloo have
    its name before it, the others are of memory that ranks share. `model_error` and
    `model_typical` are the largest and the median relative error on sizes held out, in shared
    memory, of the most ranks.
    """
    values: dict[str, float] = {}
    checks: list[ResultCheck] = []
    sizes = [round(2 ** (k / 2)) for k in range(20, 30 if short else 43)]
    passes = 1 if short else 3
    cores = len(os.sched_getaffinity(0))
    groups = [ranks for ranks in (2, 4) if ranks <= max(2, cores)]
    for method, name in LINKS.items():
        for ranks in groups:
            told = launch(
                exchange_points, ranks, (sizes, 3, passes, method), timeout_s=30, threads=1
            )
            points = told[0][0]
            checks += [equal("exchanges", own, sent, against=SENT) for _, own, sent in told]
            found = fit(points[::2])
            checks.append(_fit_check(points[::2], found, f"{method}, {ranks} ranks"))
            errors = [abs(found.time(p.messages, p.nbytes) / p.seconds - 1) for p in points[1::2]]
            values |= {
                f"alpha_us_{name}{ranks}": 1e6 * found.alpha_s,
                f"bytes_per_s_{name}{ranks}": min(found.bandwidth, 1e15),
                f"heldout_error_{name}{ranks}": max(errors),
                f"heldout_typical_{name}{ranks}": median(errors),
            }
    values["model_error"] = values[f"heldout_error_{groups[-1]}"]
    values["model_typical"] = values[f"heldout_typical_{groups[-1]}"]
    units = {"alpha": "us", "bytes": "B/s"}
    return Measurement(
        values=values,
        units={n: units[kind] for n in values if (kind := n.split("_")[0]) in units},
        notes=[
            f"all-to-alls in shared memory and over Gloo on {cores} cores; every second size was "
            "held out"
        ],
        checks=summary(checks),
    )


def _fit_check(points: Sequence[Point], found: AlphaBeta, part: str) -> ResultCheck:
    """A check that latency and bandwidth are those with the least squares of relative errors."""
    costs = [found.alpha_s, 1 / found.bandwidth]
    table = [(p.messages, p.nbytes) for p in points]
    gap = least_squares_gap(table, [p.seconds for p in points], costs)
    return at_most("costs", gap, FITTED, against="least squares", compared=2, part=part)
