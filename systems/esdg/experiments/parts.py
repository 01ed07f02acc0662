"""What Figures 5 and 7 measure on ranks of this machine, and count without any."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np
import torch

from dgbench.runtime.collectives import GroupCommunicator
from dgbench.runtime.collectives.group import Method
from dgbench.runtime.errors import CheckFailed
from dgbench.runtime.ranks import launch
from dgbench.runtime.topology import Point, fit, measure_exchange
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload, load_timeline
from dgbench.systems.base.turns import gains
from dgbench.systems.esdg.experiments.projection import (
    GPUS_PER_NODE,
    ITEM,
    Costs,
    fit_costs,
    redistribution,
)
from dgbench.systems.esdg.experiments.scaling_turns import take_scaling_turns
from dgbench.systems.esdg.experiments.shares import Share
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

CHECKED = 2
"""Epochs whose losses are held against the plain timeline."""

LARGEST_GAP = 1e-4
"""Relative deviation of a loss beyond which ranks are wrong, and not only rounded."""

LINKS: Mapping[Method, str] = {"shared": "", "collective": "gloo_"}
"""How ranks exchange when links are fitted, and what names of values have before the ranks."""

COSTS = ("epoch_s", "partner_s", "step_s", "vertex_step_s")


def costs_of(values: Mapping[str, float]) -> Costs:
    """The costs that a row of shares holds."""
    return Costs(*(values[name] for name in (*COSTS, "cost_error", "cost_typical")))


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
    """Train on ranks of this machine; losses are held against the plain timeline."""
    torch.set_num_threads(1)  # as ranks have
    data = load_timeline(task) if data is None else data
    run = train_ranked(
        task,
        ranks,
        RankSettings(),
        budget_s=context.budget_s,
        timeout_s=0.9 * timeout_s,
        device=context.device,
        data=data,
    )
    gap = loss_gap(task, data, run.losses, f"{ranks} ranks")
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
        counters={
            "floats_sent": run.traffic.total("floats"),
            "messages_sent": run.traffic.total("messages"),
            "entries": sum(data.num_edges[: len(data) - 1]),
        },
        phases=phases,
        samples=run.samples,
        warmup=run.warmup,
        deviation={"loss": gap},
        data=describe(data),
        notes=notes,
    )


def in_turns(
    task: TimelineWorkload, ranks: int, context: RunContext, timeout_s: float, least: int
) -> Measurement:
    """One rank and several in turns; losses of both are held against the plain timeline.

    Values: `epoch_s` and `alone_s`, medians; `gain speed-up` with `low` and `high`, the median of
    the pairs' ratios; `alone PHASE`, seconds of one rank's epoch, as `phases` are of P ranks'.
    """
    torch.set_num_threads(1)  # as ranks have
    data = load_timeline(task)
    run = take_scaling_turns(
        task,
        data,
        ranks,
        least=least,
        budget_s=context.budget_s,
        timeout_s=0.9 * timeout_s,
        device=context.device,
    )
    gap = max(loss_gap(task, data, losses, side) for side, losses in run.losses.items())
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
        counters={
            "turns": len(run.seconds["together"]),
            "floats_sent": run.traffic.total("floats"),
            "messages_sent": run.traffic.total("messages"),
            "entries": sum(data.num_edges[: len(data) - 1]),
        },
        phases=phases["together"],
        samples=run.seconds["together"],
        deviation={"loss": gap},
        data=describe(data),
        notes=notes,
    )


def loss_gap(
    task: TimelineWorkload, data: SnapshotSequence, losses: Sequence[float], who: str
) -> float:
    """Largest relative deviation of the first losses from the plain timeline's.

    Raises:
        CheckFailed: it is more than `LARGEST_GAP`.
    """
    plain = PlainTimeline(task, data)
    wanted = [plain.train_epoch() for _ in range(CHECKED)]
    gap = max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(losses, wanted, strict=False))
    if not gap <= LARGEST_GAP:
        raise CheckFailed(f"{who}: losses are {gap:.2g} off the plain timeline's")
    return gap


def counted(sizes: Iterable[int]) -> Measurement:
    """Traffic inside and between nodes, and ranks without a snapshot; exact."""
    model = timeline("tm_gcn")
    counters: dict[str, int] = {}
    for size in sizes:
        found = count_snapshot("tm_gcn", size=size, steps=COUNTED_STEPS, num_nodes=COUNTED_NODES)
        floats = found.matrix("floats")
        closed = redistribution(model, COUNTED_STEPS, COUNTED_NODES, size)
        same = np.array_equal(found.matrix("bytes"), closed[0]) and np.array_equal(
            found.matrix("messages"), closed[1]
        )
        if not same:
            raise CheckFailed(f"{size} ranks: the closed form differs from what was counted")
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
    for size in IDLE_RANKS:
        held = Shares(range(IDLE_STEPS), COUNTED_NODES, size)
        counters[f"idle_{size}"] = sum(len(pieces[0]) == 0 for pieces in held.steps)
    counters |= {"T": IDLE_STEPS, "counted_T": COUNTED_STEPS, "counted_N": COUNTED_NODES}
    return Measurement(counters=counters)


def exchange_points(
    comm: GroupCommunicator, sizes: Sequence[int], repeats: int, passes: int, method: Method
) -> list[Point]:
    """What a rank of `links` does: medians over passes, which a short disturbance hits once."""
    comm.method = method
    found = [measure_exchange(comm, sizes, repeats=repeats) for _ in range(passes)]
    return [
        Point(at[0].messages, at[0].nbytes, median(point.seconds for point in at))
        for at in zip(*found, strict=True)
    ]


def links(*, short: bool = False) -> Measurement:
    """Alpha and beta of an all-to-all here, and how far they are off on sizes held out.

    Values end in the number of ranks, each of which has a core (2 at least); those of Gloo have
    its name before it, the others are of memory that ranks share. `model_error` and
    `model_typical` are the largest and the median relative error on sizes held out, in shared
    memory, of the most ranks.
    """
    values: dict[str, float] = {}
    sizes = [round(2 ** (k / 2)) for k in range(20, 30 if short else 43)]
    passes = 1 if short else 3
    cores = len(os.sched_getaffinity(0))
    groups = [ranks for ranks in (2, 4) if ranks <= max(2, cores)]
    for method, name in LINKS.items():
        for ranks in groups:
            points = launch(
                exchange_points, ranks, (sizes, 3, passes, method), timeout_s=30, threads=1
            )[0]
            found = fit(points[::2])
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
    )
