"""Figure 10: T-GCN on 1, 4 and 8 GPUs, with P2P and without."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import geometric_mean
from typing import Any, Final

import msgspec
import numpy as np
import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.interaction_audit import GroupOracle
from dgbench.systems.base.interaction_checks import EVENTS as COMPARED_EVENTS
from dgbench.systems.base.interaction_checks import EXACT, check_now, compare
from dgbench.systems.base.interactions import interaction_data, load_interactions
from dgbench.systems.tgcn.links import SOURCES, machine
from dgbench.systems.tgcn.plan import Cut, ModelSize, trained
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
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    FORMS,
    GRAPHS,
    TWIN_NAMES,
    table2,
    values,
    workload,
)

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
PROCESSOR = "processor time"
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
                found.observe(
                    "speedup", here.seconds / seconds, setting="measured", baseline="pieces"
                )  # fmt: skip
                found.checks += check_now(trainer, "after timed epochs")
                found.checks += check_sample(trainer, "after timed epochs")
            found.checks.append(checked_load(trainer, load, f"{cut} on {count}"))
            loads[count, cut] = load.scaled(
                trained(size, Cut(share=task.share)) / edges, size.vertices / data.events.num_nodes
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
        for (count, cut), load in loads.items():
            for p2p in (ON, OFF) if count > 1 else ():
                epoch = project_epoch(load, scaled, machine(size=count), size=size, p2p=p2p == ON)
                about: dict[str, Any] = {
                    "setting": reading,
                    "method": cut,
                    "ranks": count,
                    "p2p": p2p,
                }
                found.observe("speedup", one.seconds / epoch.seconds, **about)
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
        intervals = 0.75 * compute / whole_swaps(graph, 4)
        found.observe("estimate", intervals, of="swaps", dataset=graph.name)
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
    found.observe("throughput", run.own_throughput, method=PROCESSOR)
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


VIRTUAL, RANKS, SWAPS = "virtual", "ranks", "swaps"
RANKED = {"smoke": (1, 2), "quick": (1, 2), None: (1, 2, 4)}
TWINS = {"smoke": ("reddit",), "quick": ("lastfm", "reddit", "twitter"), None: TWIN_NAMES}
"""The paper's figure names the three; whether Flickr was drawn is lost."""
RANKED_ON = "flickr"
SHOWN = {
    "tgcn, equal width": ("equal", ON, PRINTED),
    "tgcn, dealt": ("dealt", ON, PRINTED),
    "tgcn, dealt at peak speed": ("dealt", ON, ARITHMETIC),
    "tgcn, the same without P2P": ("dealt", OFF, ARITHMETIC),
}
"""Series of the figure: cut, P2P and speed of a V100. At the speed of Table 2, which the first two
have, P2P changes nothing that shows."""
MODEL = "projection to V100 by published links"
SPEEDS = {
    "a V100 as slow as Table 2 prints": PRINTED,
    "a V100 by memory bandwidth": BANDWIDTH,
    "a V100 by arithmetic": ARITHMETIC,
}
CLEAR = 0.05
"""Distance from 1x that a projection tells from none: what it is off by on one device here."""

SPEED = observed("speedup", kind=VIRTUAL, per="dataset").pooled("mean")
"""Projected speed over one device."""
EQUAL = SPEED.where(method="equal", p2p=ON)
RANKED_SPEED = observed("throughput", kind=RANKS, method=PROCESSOR, per=("dataset", "ranks"))
MODELLED = observed("speedup", kind=VIRTUAL, per="dataset", setting="measured", baseline="pieces")


def by_speed(rule: Callable[[str], outcomes.Rule]) -> outcomes.Rule:
    """A projected rule with an interpretation for each speed of a V100."""
    return combine.interpretations(
        "how fast a V100 computes is open",
        {words: combine.by_model(rule(speed), MODEL) for words, speed in SPEEDS.items()},
    )


def mean_speed(devices: int, entry: str = "mean") -> outcomes.Rule:
    """Projected speed of so many devices with P2P over one, on average over the graphs.

    Args:
        entry: of the claim's value; its range where it has none of this name.
    """

    def mean(cut: str, speed: str) -> MeasuredQuantity:
        of = SPEED.where(method=cut, p2p=ON, ranks=devices, setting=speed)
        return of.joined_over(geometric_mean, "dataset")

    return by_speed(
        lambda speed: combine.shown_beside(
            rules.near_claim(mean("equal", speed), above=1.0, entry=entry),
            {"vertices dealt out": mean("dealt", speed)},
        )
    )


def projected(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Speed over one device by series of the figure, and 1 on one."""
    for title, (cut, p2p, speed) in SHOWN.items():
        series = SPEED.where(method=cut, p2p=p2p, setting=speed).per("ranks")
        for at, one in series.estimates(context).items():
            dims = {**dict(at), "setting": title}
            if dims["ranks"] == min(PRINTED_FOR):
                yield {**dims, "ranks": 1}, Estimate(1.0, rows=one.rows)
            yield dims, one


def printed_speed(end: str) -> MeasuredQuantity:
    """An end of the printed range beside each projected speed."""
    speed = EQUAL.where(setting=PRINTED, ranks=PRINTED_FOR)
    return speed.printed(lambda at: values()[f"fig10-{at['ranks']}gpu"][end])


def of_projection(context: EvaluationContext, dims: Mapping[str, Any], one: Any) -> dict[str, Any]:
    """Words of the model on a projected mark."""
    if "setting" not in dims:
        return {}
    modelled = MODELLED.where(dataset=dims["dataset"]).estimates(context).values()
    return {
        "projected": True,
        "model_error": next((abs(each.value - 1) for each in modelled), None),
        "model_error_on": "an epoch on one device here",
    }


class Fig10(FormExperiment):
    forms, name = FORMS, "fig10"
    group = ""
    timeout_s = {"smoke": 90, "quick": 90, None: 3600}
    headline = SPEED.where(p2p=ON, ranks=DEVICES[-1], setting=PRINTED).per("method")
    unit = "x"
    figure_forms = (
        FigureForm(
            "scaling", "fig10",
            "Speed over one V100 as slow as Table 2, or at its peak (Figure 10)",
            {
                "": computed(projected, per=("dataset", "setting", "ranks")),
                "low": printed_speed("low"),
                "high": printed_speed("high"),
                "ranks": RANKED_SPEED.over(RANKED_SPEED.where(ranks=1)),
            },
            {"panel": "{dataset}", "series": "{setting}{of}", "x": "ranks"}, more=of_projection,
            gaps={"series": "tgcn, dealt"},
            options={
                "xlabel": "ranks or GPUs", "ylabel": "speed over one",
                "topology": "DGX-1, 8 V100, NVLink 2 between four and four, else PCIe",
                "most": DEVICES[-1], "here": "processes of one CPU by processor time, one run",
            },
        ),
        Sweep(
            "fig10_bytes", "Bytes that devices pass on in an epoch",
            observed("swapped", kind=VIRTUAL, per=("dataset", "ranks"), method=None,
                     ranks=lambda count: count > 1),
            series="{dataset}", x="ranks", gaps={"x": 2}, xlabel="devices", ylabel="bytes", base=2,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-fig10-8gpu": mean_speed(8, entry=""),
        "tgcn-fig10-4gpu": mean_speed(4, entry=""),
        "tgcn-s67-p2p-off-slowdown": by_speed(
            lambda speed: rules.all_below(
                SPEED.where(method="equal", p2p=OFF, ranks=4, setting=speed), 1.0, near=CLEAR,
                unit="x",
            )
        ),
        "tgcn-s67-p2p-benefit": by_speed(
            lambda speed: rules.all_above(
                EQUAL.where(ranks=PRINTED_FOR, setting=speed)
                / SPEED.where(method="equal", p2p=OFF, ranks=PRINTED_FOR, setting=speed),
                1.0, near=CLEAR, unit="x",
            )
        ),
        "tgcn-abs-8gpu-mean-scaling": mean_speed(8),
        "tgcn-fig6-8gpu-included": by_speed(
            lambda speed: combine.as_proxy(
                rules.all_above(
                    EQUAL.where(ranks=8, setting=speed), 1.0, near=CLEAR, unit="x"
                ),
                "training alone: sampling is the host's and no faster with more GPUs",
            )
        ),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": VIRTUAL, "dataset": name} for name in by_preset(TWINS, preset))
        yield {"kind": SWAPS}
        # One process on this CPU's two cores bounds no ratio, and no claim reads it.
        for ranks in () if (preset, device) == ("quick", "cpu") else by_preset(RANKED, preset):
            yield {"kind": RANKS, "dataset": RANKED_ON, "ranks": ranks}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                one,
                preset,
                group=f"{one['kind']}/{one.get('dataset', '')}",
                unavailable=devices_lacking(one.get("ranks", 1), device),
            )
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        kind = cell.params["kind"]
        with one_thread():
            if kind == SWAPS:
                return project_swaps()
            task = task_of_size(str(cell.params["dataset"]), context.preset)
            if kind == RANKS:
                return measure_ranks(task, int(cell.params["ranks"]), context, cell.timeout_s)
            return measure_virtual(task, context)
