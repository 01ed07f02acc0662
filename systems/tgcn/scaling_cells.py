"""Training on virtual devices and on ranks, and epochs projected to several V100."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dgbench.lab.result_checks import close, equal
from dgbench.systems.base import Measurement, Preset, RunContext
from dgbench.systems.tgcn.printed import table2
from dgbench.systems.tgcn.races import start_checks
from dgbench.systems.tgcn.scaling_checks import (
    checked_load,
    checked_projection,
    checked_ranks,
    checked_swap,
    drawn_events,
)
from dgbench.systems.tgcn.settings import BY_NAME, GRAPHS, workload

if TYPE_CHECKING:
    from dgbench.systems.tgcn.projection import EpochLoad, Pieces


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
READINGS: Final = (PRINTED, BANDWIDTH, ARITHMETIC)
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
    import msgspec

    from dgbench.systems.base.interactions import interaction_data, load_interactions
    from dgbench.systems.tgcn.links import SOURCES
    from dgbench.systems.tgcn.recounts import VECTORS
    from dgbench.systems.tgcn.scaling_runs import time_pieces, train_alike

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
    from dgbench.systems.base.interaction_checks import check_now
    from dgbench.systems.tgcn.links import machine
    from dgbench.systems.tgcn.plan import Cut, ModelSize, trained
    from dgbench.systems.tgcn.projection import measure_machine, project_epoch
    from dgbench.systems.tgcn.recounts import check_sample
    from dgbench.systems.tgcn.scaling_runs import (
        as_printed,
        load_of,
        open_on,
        time_epoch,
    )

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
    from dgbench.systems.tgcn.links import SOURCES
    from dgbench.systems.tgcn.scaling_runs import whole_swaps

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
    from dgbench.systems.base.interactions import load_interactions
    from dgbench.systems.tgcn.ranked import train_ranked

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
