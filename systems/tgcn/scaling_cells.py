"""Training on virtual devices and on ranks, and epochs projected to several V100."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec
import numpy as np
import torch

from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.systems.base import Measurement, Preset, RunContext
from dgbench.systems.base.interaction_audit import GroupOracle
from dgbench.systems.base.interaction_checks import EVENTS as COMPARED_EVENTS
from dgbench.systems.base.interaction_checks import EXACT, check_now, compare
from dgbench.systems.base.interactions import interaction_data, load_interactions
from dgbench.systems.tgcn.links import SOURCES, machine
from dgbench.systems.tgcn.plan import Cut, ModelSize, trained
from dgbench.systems.tgcn.printed import table2
from dgbench.systems.tgcn.projection import EpochLoad, Pieces, measure_machine, project_epoch
from dgbench.systems.tgcn.races import start_checks
from dgbench.systems.tgcn.rank_audit import audited_intervals
from dgbench.systems.tgcn.ranked import train_ranked
from dgbench.systems.tgcn.recounts import VECTORS, check_round, check_sample, visiting_rows
from dgbench.systems.tgcn.ring import LITERAL
from dgbench.systems.tgcn.scaling_runs import (
    as_printed,
    load_of,
    open_on,
    time_epoch,
    time_pieces,
    train_alike,
    whole_swaps,
)
from dgbench.systems.tgcn.schedule import make_schedule, traffic
from dgbench.systems.tgcn.settings import BY_NAME, GRAPHS, workload

DEVICES: Final = (1, 2, 4, 8)
PROJECTED: Final = (1, 4, 8)
CHECKED: Final = (1_500, 3)
"""Events, and intervals, on which all numbers of devices are compared in double precision."""
EVENTS: Final = {"smoke": 10_000, "quick": 24_000, "full": 400_000, "paper": 4_000_000}
"""Events of a twin, about."""
SMALLEST: Final = 1 / 4096
"""Scale of a twin at least."""
INTERVALS: Final = 11
"""Of an epoch; the paper does not say, and cuts accuracy into as many pieces of time."""
CUTS: Final = ("equal", "dealt")
PRINTED, BANDWIDTH, ARITHMETIC = "printed", "bandwidth", "arithmetic"
"""Speed of a V100: as Table 2 prints, or relative to this machine by memory or by arithmetic."""
ON, OFF = "on", "off"
WALL, PROCESSOR = "wall clock", "processor time"
PRINTED_FOR: Final = (4, 8)
"""Devices for which speedups with P2P are printed."""


def task_of_size(name: str, preset: Preset, **fields: object) -> Any:
    """About so many events of a twin, all of its time."""
    graph = BY_NAME[name]
    wanted = EVENTS[preset]
    scale = min(1.0, max(SMALLEST, wanted / graph.printed.edges))
    settings = {"scale": scale, "events": wanted, "intervals": INTERVALS, **fields}
    return workload(graph, preset, **settings)


def measure_virtual(task: Any, context: RunContext) -> Measurement:
    """Equal losses and counted bytes on virtual devices; times here; projections."""
    data = load_interactions(task)
    count, intervals = CHECKED
    few = msgspec.structs.replace(task, events=count, intervals=intervals, share=1.0)
    # The last events: many a crawl begins with all that it finds, at one time.
    last = data.events.select(max(0, len(data.events) - count), len(data.events))
    alike = train_alike(few, interaction_data(last, few), DEVICES, "dealt")
    found = Measurement(data=data.describe(), notes=[SOURCES])
    for count, one in alike.items():
        found.observe("swapped", one.swapped, ranks=count)
        found.observe("swapped", one.expected, ranks=count, method="formula")
        found.observe("deviation", one.deviation, ranks=count)
    found.deviation = {"loss": max(one.deviation for one in alike.values())}
    counted = {str(n): one.swapped for n, one in alike.items()}
    wanted = {
        str(n): (n - 1) * VECTORS * 8 * few.hidden_dim * one.visiting for n, one in alike.items()
    }
    found.checks = [
        *start_checks(task, data, context.device),
        equal("bytes", counted, wanted, against="rows passed on in every interval"),
        close(
            "outputs",
            [one.deviation for one in alike.values()],
            [0.0] * len(alike),
            1e-9,
            against="one device, itself compared with the float64 oracle",
        ),
    ]
    pieces = time_pieces(task, context.device)
    found.observe("part_time", pieces.pair_s, phase="pair")
    found.observe("part_time", pieces.row_s, phase="row")
    found.observe("part_time", pieces.visit_s, phase="visit")
    _project(found, task, data, pieces, context.device)
    return found


def _project(found: Measurement, task: Any, data: Any, pieces: Pieces, device: str) -> None:
    """Epochs on 1, 4 and 8 V100, by reading, cut and P2P."""
    printed = BY_NAME[task.dataset].printed
    size = ModelSize(printed.vertices, printed.edges, task.hidden_dim)
    loads: dict[tuple[int, str], EpochLoad] = {}
    for count in PROJECTED:
        for cut in CUTS if count > 1 else CUTS[:1]:
            trainer = open_on(task, data, count, cut, device=device)
            edges = sum(kept.numel() for kept in trainer.kept)
            load = load_of(trainer)
            if count == 1:
                here = project_epoch(load, pieces, machine(size=1), size=size)
                seconds = time_epoch(trainer)
                found.observe("edges", edges)
                found.observe("epoch_time", seconds)
                found.observe(
                    "speedup", here.seconds / seconds, setting="measured", baseline="pieces"
                )  # fmt: skip
                found.checks += check_now(trainer, "after timed epochs")
                found.checks += check_sample(trainer, "after timed epochs")
            found.checks.append(checked_load(trainer, load, f"{cut} on {count}"))
            loads[count, cut] = load.scaled(
                trained(size, Cut(share=task.share)) / edges,
                size.vertices / data.events.num_nodes,
            )
            trainer.close()
    alone = project_epoch(loads[1, CUTS[0]], pieces, machine(size=1), size=size)
    speed = measure_machine(device)
    by_reading = {
        PRINTED: as_printed(BY_NAME[task.dataset], pieces, alone),
        BANDWIDTH: pieces.scaled(1 / speed.bandwidth),
        ARITHMETIC: pieces.scaled(1 / speed.arithmetic),
    }
    for reading, scaled in by_reading.items():
        one = project_epoch(loads[1, CUTS[0]], scaled, machine(size=1), size=size)
        found.observe("epoch_time", one.seconds, setting=reading)
        for (count, cut), load in loads.items():
            for p2p in (ON, OFF) if count > 1 else ():
                epoch = project_epoch(load, scaled, machine(size=count), size=size, p2p=p2p == ON)
                about: dict[str, Any] = {
                    "setting": reading,
                    "method": cut,
                    "ranks": count,
                    "p2p": p2p,
                }
                exchanged = epoch.exchange_s / epoch.seconds
                found.observe("speedup", one.seconds / epoch.seconds, **about)
                found.observe("time_share", exchanged, phase="exchange", **about)
                part = " ".join(map(str, about.values()))
                found.checks.append(checked_projection(load, epoch, size, part))


def project_swaps() -> Measurement:
    """Number of swaps of all vertices that make 4 GPUs without P2P as slow as one, at Table 2's
    times."""
    found = Measurement(
        data={"dataset": "all", "twin": False, "scale": 1.0, "note": "printed sizes alone"},
        notes=[SOURCES, "compute as printed, divided evenly, nothing overlaps"],
    )
    for graph in GRAPHS:
        compute = table2("tgcn", "compute")[graph.name]
        intervals = 0.75 * compute / whole_swaps(graph, 4, p2p=False)
        found.observe("estimate", intervals, of="swaps", dataset=graph.name)
        for count in PRINTED_FOR:
            swaps = intervals * whole_swaps(graph, count, p2p=True)
            faster = compute / (compute / count + swaps)
            found.observe("speedup", faster, dataset=graph.name, ranks=count)
    found.checks = [checked_swap(count) for count in PRINTED_FOR]
    return found


def measure_ranks(task: Any, ranks: int, context: RunContext, timeout_s: float) -> Measurement:
    """Throughput of real ranks by processor time, and what they send."""
    data = load_interactions(task)
    run = train_ranked(
        task,
        ranks,
        data=data,
        epochs=2,
        audited=True,
        device=context.device,
        timeout_s=timeout_s,
        vertex_cut="dealt",
        probed=drawn_events(data),
    )
    swapped = sum(one.get("bytes_swapped", 0) for one in run.counters) // len(run.losses)
    found = Measurement(
        checks=checked_ranks(task, data, run, ranks, swapped, context, timeout_s, CHECKED),
        data=data.describe(),
        notes=run.notes,
    )
    found.observe("throughput", run.throughput, method=WALL)
    found.observe("throughput", run.own_throughput, method=PROCESSOR)
    found.observe("loss", run.losses[-1])
    found.observe("swapped", swapped)
    found.observe("edges", run.edges)
    return found


def checked_load(trainer: Any, load: EpochLoad, part: str) -> ResultCheck:
    """Check of the pairs and rows of every interval against its events, part by part."""
    stream, size = trainer.data.events, trainer.parts.count
    pairs, rows, visiting = [], [], []
    for one in trainer.loads(0, trainer.data.train_end):
        src, dst = stream.src[one.events], stream.dst[one.events]
        negatives = trainer.data.negative[one.events]
        owner = [trainer.parts.of(ids).numpy() for ids in (src, dst, negatives)]
        key = np.concatenate([owner[0] * size + owner[1], owner[0] * size + owner[2]])
        pairs.append(np.bincount(key, minlength=size**2).reshape(size, size))
        named = np.arange(stream.num_nodes)
        if trainer.planner.touched:
            named = np.unique(np.concatenate([ids.numpy() for ids in (src, dst, negatives)]))
        of = trainer.parts.of(torch.from_numpy(named)).numpy()
        rows.append(np.bincount(of, minlength=size))
        visiting.append(visiting_rows(trainer, one.events))
    own = {"pairs": load.pairs, "rows": load.rows, "visiting": load.visiting}
    wanted = {"pairs": pairs, "rows": rows, "visiting": visiting}
    return equal(
        "counters", own, {name: np.array(x, dtype=np.float64) for name, x in wanted.items()},
        against=f"count over all edges, {part}",
    )  # fmt: skip


def checked_projection(load: EpochLoad, epoch: Any, size: Any, part: str) -> ResultCheck:
    """Check of the bytes that a projected epoch passes on: each vector to all other devices."""
    vectors = (load.devices - 1) * int(np.rint(load.visiting).sum()) * load.repeats
    return equal("bytes", epoch.moved, 3 * 4 * size.hidden * vectors, against=f"formula, {part}")


def checked_swap(devices: int) -> ResultCheck:
    """Check of a round that swaps whole parts of one vector, on small parts of uneven size."""
    ring = LITERAL if devices == len(LITERAL) else None
    schedule = make_schedule(devices, ring=ring, lean=False)
    rows = [3 + i for i in range(devices)]
    sent = int(traffic(schedule, rows, read=4, add=0).sum())
    # Every part moves in each of as many phases as there are devices.
    wanted = {"bytes": 4 * devices * sum(rows), "round": 0.0}
    own = {"bytes": sent, "round": check_round(schedule, "").gap}
    return equal("bytes", own, wanted, against=f"every part in every phase on {devices}")


def drawn_events(data: Any) -> tuple[int, int]:
    """First and last but one of the events that ranks are probed on, drawn at random."""
    last = data.train_end or len(data.events)
    first = random.SystemRandom().randint(0, max(0, last - COMPARED_EVENTS))
    return first, min(last, first + COMPARED_EVENTS)


def checked_ranks(
    task: Any,
    data: Any,
    run: Any,
    ranks: int,
    swapped: int,
    context: RunContext,
    timeout_s: float,
    size: tuple[int, int],
) -> list[ResultCheck]:
    """Checks of ranks after their epochs, of what they sent, and of a few edges in float64."""
    whole = msgspec.structs.replace(task, strict_time=False)
    found = compare(whole, data, run.state, run.probe, f"{ranks} ranks after their epochs")
    found += audited_intervals(
        run.copies, GroupOracle(whole, data), f"{ranks} ranks", first=context.round == 1
    )
    alone = open_on(task, data, ranks, "dealt")
    visiting = sum(
        sum(visiting_rows(alone, load.events)) for load in alone.loads(0, data.train_end)
    )
    moved = (ranks - 1) * VECTORS * 4 * task.hidden_dim * visiting
    found.append(equal("bytes", swapped, moved, against="rows passed on in every interval"))
    found += check_sample(alone, f"{ranks} ranks")
    alone.close()
    count, intervals = size
    small = msgspec.structs.replace(task, events=count, intervals=intervals, share=1.0)
    last = interaction_data(
        data.events.select(max(0, len(data.events) - count), len(data.events)), small
    )
    plain = open_on(small, last, 1, "dealt", dtype=torch.float64)
    wanted = [plain.train_epoch() for _ in range(2)]
    both = train_ranked(
        small, ranks, data=last, epochs=2, dtype=torch.float64, device=context.device,
        timeout_s=timeout_s, vertex_cut="dealt",
    )  # fmt: skip
    about = {"against": "one device, compared with the float64 oracle", "part": f"{ranks} ranks"}
    found += [
        close("losses", both.losses, wanted, EXACT, **about),
        close("parameters", both.state, plain.state(), EXACT, **about),
        *start_checks(task, data, context.device),
    ]
    plain.close()
    return found
