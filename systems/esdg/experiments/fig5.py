"""Figure 5: strong scaling of the snapshot partition, 1 to 128 ranks (sections 6.3 and 6.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dgbench.lab.charts import chart, sweep
from dgbench.lab.compare import TURN_INTERVAL, observe_speedup, ratio_of
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import number
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import load_timeline
from dgbench.systems.esdg.experiments.fig5_curves import NAME, curves, ranked
from dgbench.systems.esdg.experiments.fig5_points import (
    measured_split,
    node_points,
    speedup_points,
    split_points,
)
from dgbench.systems.esdg.experiments.parts import (
    TURNS,
    counted,
    in_turns,
    links,
    observe_costs,
    share_checks,
    snapshot_bytes,
)
from dgbench.systems.esdg.experiments.projection import BAND, CLUSTER, ITEM, speedups
from dgbench.systems.esdg.experiments.recount import (
    OVER_EDGES,
    agree,
    entry_bytes,
    sequence_bytes,
    sequence_changes,
)
from dgbench.systems.esdg.experiments.settings import (
    BY_NAME,
    GRAPHS,
    MODEL_TITLES,
    MODELS,
    RANKS,
    SnapshotGraph,
    snapshots,
    workload,
)
from dgbench.systems.esdg.experiments.shares import copy_rate, take_shares

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

PRINTED = {"tm_gcn": "M_product", "cd_gcn": "nnz", "evolvegcn_o": "edge_life"}
"""Column of Table 1 with the entries that each model trains on."""

LARGE = {
    "smoke": (1, 2, 4, 8),
    "quick": (1, 4, 16, 128),
    "full": (1, 2, 4, 8, 16, 32, 64, 128),
}
SMALL = {"smoke": (1, 8), "quick": (4, 16, 128), "full": (1, 4, 16, 128)}
"""P of the shares that are measured, on a larger and on a smaller graph."""

MEASURED = {"smoke": (2,), "quick": (2,), "full": (2, 4, 8)}
ROUNDS = {"smoke": 1, "quick": 1, "full": 5}
MIN_ROUNDS = {"smoke": 2, "quick": 6, "full": 12}
"""Epochs of P ranks, each beside one of a single rank; six bound a median with 95 %."""

RANKED = ("amlsim",)
"""Graphs that ranks of this machine train on."""

COUNTED = {"smoke": (16,), "quick": (16, 32), "full": (16, 32, 64, 128)}


class Fig5(Experiment):
    paper = "esdg"
    sources: ClassVar = {"portion": "counted"}
    name = NAME
    title = "Figure 5: strong scaling"
    claims = (
        "esdg-abs-strong-scaling",
        "esdg-fig5-compute-scales",
        "esdg-fig5-comm-bottleneck",
        "esdg-fig5-node-boundary-drop",
        "esdg-s63-inter-node-share",
        "esdg-s63-recovers-with-nodes",
        "esdg-s1-sublinear-nodes",
        "esdg-s63-weak-tmgcn",
        "esdg-s63-weak-cdgcn",
        "esdg-s63-weak-evolvegcn",
        "esdg-s63-weak-drop",
        "esdg-tab2-time-tmgcn",
        "esdg-tab2-hyper-time-tmgcn",
        "esdg-tab2-time-cdgcn",
        "esdg-tab2-hyper-time-cdgcn",
        "esdg-tab2-time-egcn",
        "esdg-tab2-hyper-time-egcn",
        "esdg-s65-idle-when-t-small",
    )
    own_data = "it projects to the sizes that the paper prints of its graphs"
    question = "How does an epoch shrink with the number of ranks, and what stops it?"
    reading = (
        "Measured are processes of this machine with one thread each, as a CPU proxy: one rank "
        "and P ranks take turns, epoch by epoch, and a speed-up is the median of the pairs. Other "
        "programs on the machine lower it; more ranks than cores show a split only. The rest is "
        "projected: counted traffic on a model of the paper's cluster, and one rank's share of the "
        "computing, run alone here. How much faster a V100 is than a thread here has two readings: "
        "by memory bandwidth, and by the seconds that Table 2 prints for four ranks. Exchanges are "
        "put at the links' peak rates; Table 2 implies 1.6 to 2.2 times as long (its epochs less "
        "those of EvolveGCN, which sends no activations). A line of latency and bandwidth fits "
        "exchanges here only roughly: what fits into a cache is faster. Matrices have the entries "
        "of Table 1, and blocks are as few as fit into 32 GB; degrees are those of the twin."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        size = _size(preset)
        names = ["amlsim"] if preset in ("smoke", "quick") else [g.name for g in GRAPHS]
        why = "runs on ranks of CPUs" if device == "cuda" else ""
        found = [self._cell({"part": "counted"}), self._cell({"part": "links"}, why)]
        for name in names:
            for model in models(preset):
                params = {"part": "shares", "dataset": name, "model": model}
                found.append(self._cell(params, timeout_s=60 if size != "full" else 1200))
        for name in (n for n in names if n in RANKED):
            for model in models(preset):
                for ranks in MEASURED[size]:
                    params = {"part": "ranks", "dataset": name, "model": model, "ranks": ranks}
                    found.append(
                        self._cell(
                            params,
                            devices_lacking(ranks, device),
                            group=f"{name}/{model}",
                            repeats=ROUNDS[size],
                            timeout_s=60 if size != "full" else 900,
                        )
                    )
        return found

    def _cell(self, params: dict[str, Any], why: str = "", **fields: Any) -> Cell:
        group = fields.pop("group", "/".join(str(v) for v in params.values()))
        return self.cell_of(params, group, unavailable=why, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        part = cell.params["part"]
        if part == "counted":
            return counted(COUNTED[_size(context.preset)])
        if part == "links":
            return links(short=context.preset == "smoke")
        graph, model = BY_NAME[str(cell.params["dataset"])], str(cell.params["model"])
        if part == "shares":
            return shares(graph, model, context.preset)
        if part == "ranks":
            task = workload(graph, model, context.preset, scale=ranks_scale(graph, context.preset))
            least = MIN_ROUNDS[_size(context.preset)]
            return in_turns(task, int(cell.params["ranks"]), context, cell.timeout_s, least)
        raise UnsupportedError(f"fig5 has no part '{part}'")

    def figures(self) -> list[FigureSpec]:
        return [
            chart("scaling", "fig5", "Speed-up over one rank", speedup_points, xlabel="ranks",
                ylabel="speed-up over one rank", topology=CLUSTER, most=RANKS[-1], band=BAND,
                here="processes of this machine, one core each", interval=TURN_INTERVAL),
            sweep("fig5_projected_split", "Projected seconds of an epoch on the paper's cluster",
                split_points, xlabel="ranks", ylabel="seconds of an epoch", base=2),
            chart("time_split", "fig5_measured_split",
                "Where the time goes on ranks of this machine", measured_split,
                xlabel="time of one epoch, ms", phases_from="phases timed in the same epochs"),
            chart("scaling", "fig5_h200", "One node of H200 beside one of V100, projected",
                node_points, xlabel="GPUs", ylabel="speed-up over one V100",
                topology="a node of 8 V100 with NVLink, and one of 8 H200 with NVSwitch",
                most=RANKS[-1], band=BAND),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = curves(rows).get("bandwidth")
        if not found:
            return ""
        parts = []
        for model in MODELS:
            mine = {k: v for k, v in found.items() if k[1] == model}
            if mine:
                best = max(mine.values(), key=lambda e: speedups(e)[max(e)])
                ratio, share = speedups(best), best[max(best)].share
                parts.append(
                    f"{MODEL_TITLES[model]} {ratio[max(best)]:.0f}x with {share:.0%} communication"
                )
        here = [
            f"{MODEL_TITLES[model]} {ratio.value:.1f}x"
            for (_, model, p), gains in ranked(rows).items()
            if p == 2 <= number(gains[0].row, "cores") and (ratio := ratio_of(gains))
        ]
        measured = f"Measured on 2 ranks: {', '.join(here)}. " if here else ""
        return f"{measured}Projected to 128 V100 on 16 nodes: {'; '.join(parts)}."


def models(preset: Preset) -> tuple[str, ...]:
    """Models of a preset; the smallest shows with one that everything runs."""
    return MODELS[:1] if preset == "smoke" else MODELS


def _size(preset: Preset) -> str:
    return preset if preset in ("smoke", "quick") else "full"


def ranks_scale(graph: SnapshotGraph, preset: Preset) -> float:
    """Size of the twin that ranks of this machine train on; also that of the larger shares."""
    return graph.scale("smoke" if preset in ("smoke", "quick") else "quick")


def shares(graph: SnapshotGraph, model: str, preset: Preset) -> Measurement:
    """Rank 0's share at several P on two graphs, what it costs, and what a snapshot weighs."""
    torch.set_num_threads(1)
    size = _size(preset)
    large = ranks_scale(graph, preset)
    kept = snapshots(preset) if preset == "smoke" else None
    tasks = [
        workload(graph, model, preset, snapshots=kept, scale=scale) for scale in (large, large / 4)
    ]
    data = [load_timeline(task) for task in tasks]
    wanted = [(data[0], p) for p in LARGE[size]] + [(data[1], p) for p in SMALL[size]]
    taken = take_shares(tasks[0], wanted, turns=TURNS[size])
    found = Measurement(data=describe(data[0]))
    observe_costs(found, taken)
    first = taken[0]
    for share in taken[1 : len(LARGE[size])]:
        observe_speedup(found, first.samples, share.samples, mean=True, ranks=share.size)
        found.observe("estimate", first.steps / share.steps, of="speedup", ranks=share.size)
    plain, different = snapshot_bytes(data[0])
    entries = graph.printed.get(PRINTED[model])
    steps = graph.printed.get("T", len(data[0]))
    found.observe("estimate", ITEM * 5 * entries / steps if entries else plain, of="snapshot")
    found.observe("portion", different / plain, of="differences")
    found.observe("bandwidth", copy_rate(), of="copy")
    found.observe("snapshots", steps)
    found.observe("vertices", graph.printed.get("N", data[0].num_nodes))
    found.observe("smoothing_length", graph.window)
    found.observe("vertices", data[0].num_nodes, of="measured")
    found.observe("snapshots", len(data[0]) - 1, of="measured")
    found.observe("edges", sum(data[0].num_edges), of="measured")
    found.notes = ["one thread; what other ranks would send is zeros"]
    found.checks = [*share_checks(taken, found), _byte_check(data[0], graph, model, found)]
    return found


def _byte_check(
    data: SnapshotSequence, graph: SnapshotGraph, model: str, own: Measurement
) -> ResultCheck:
    """Bytes of a snapshot at the printed size, and the part of them that a difference takes."""
    changes = sequence_changes([data.topology[t] for t in range(len(data))])
    whole = [entry_bytes(n) for n in changes.entries.tolist()][1:]
    wanted = Measurement()
    part = (sum(sequence_bytes(changes)[1:]) or 1) / (sum(whole) or 1)
    wanted.observe("portion", part, of="differences")
    mean = sum(whole) / len(whole)
    if graph.printed:
        mean = 20 * graph.printed[PRINTED[model]] / graph.printed["T"]
    wanted.observe("estimate", mean, of="snapshot")
    return agree(own, wanted, against=OVER_EDGES, of="volumes", tolerance=1e-9)
