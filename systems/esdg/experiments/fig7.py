"""Figure 7: weak scaling on random graphs, edges per second (section 6.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch

from dgbench.lab.charts import chart
from dgbench.lab.compare import observe_speedup, ratio
from dgbench.lab.printed import ledger
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, summarised
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg.experiments import fig5, fig5_curves
from dgbench.systems.esdg.experiments.fig5_curves import link_error, link_errors
from dgbench.systems.esdg.experiments.parts import (
    TURNS,
    costs_of,
    observe_costs,
    on_ranks,
    share_checks,
)
from dgbench.systems.esdg.experiments.projection import (
    BAND,
    CLUSTER,
    ITEM,
    V100_BYTES_PER_S,
    ProjectedModel,
    ProjectedSnapshotEpoch,
    scaled_points,
    snapshot_epoch,
    v100_cluster,
)
from dgbench.systems.esdg.experiments.random_graphs import (
    DATASET,
    DENSITY,
    FIRST_NODES,
    STEPS,
    draw,
    paper_edges,
    random_graphs,
)
from dgbench.systems.esdg.experiments.recount import OVER_EDGES, agree, distinct
from dgbench.systems.esdg.experiments.settings import LEDGER, MODEL_TITLES, RANKS
from dgbench.systems.esdg.experiments.shares import copy_rate, take_shares

NAME = "fig7"
WIDEST = RANKS[-1]
IN_LEDGER = {"tm_gcn": "tmgcn", "cd_gcn": "cdgcn", "evolvegcn_o": "evolvegcn"}
SAMPLE = {"smoke": 1, "quick": 1, "full": 16}
"""Snapshots of the largest graph that are drawn to count repeats."""

LARGE = {
    "smoke": (512, (1, 2, 8, 16)),
    "quick": (2048, (4, 16, 128)),
    "full": (8192, (1, 4, 32, 128)),
}
SMALL = {"smoke": (128, (2, 16)), "quick": (512, (2, 8, 128)), "full": (1024, (1, 8, 64, 128))}
"""N and the P of the shares that are measured."""

SHARE_STEPS = {"smoke": 32, "quick": STEPS, "full": STEPS}
BASE = {"smoke": (2**7, 16), "quick": (2**10, 64), "full": (2**12, STEPS)}
"""N per rank and T on ranks of this machine."""

MEASURED = {"smoke": (1, 2), "quick": (1, 2), "full": (1, 2, 4)}
ROUNDS = {"smoke": 1, "quick": 5, "full": 5}
"""Five pairs bound a ratio; quick has them for the first model, claims rest on shares."""
LAUNCH = {"smoke": (2**6, 32, 2), "quick": (2**8, STEPS, 2), "full": (2**14, STEPS, 2)}
"""N of many small snapshots, their number, and the number of the few large ones."""


def task_of(model: str) -> TimelineWorkload:
    """Link prediction on graphs that are made in memory; no smoothing, for the paper's edge totals
    leave room for none."""
    return TimelineWorkload(dataset=DATASET, model=model, window=1)


class Fig7(Experiment):
    paper = "esdg"
    sources: ClassVar = {"portion": "counted"}
    name = NAME
    title = "Figure 7: weak scaling"
    claims = (
        "esdg-s63-weak-tmgcn",
        "esdg-s63-weak-cdgcn",
        "esdg-s63-weak-evolvegcn",
        "esdg-s63-weak-drop",
        "esdg-s63-weak-sizes",
        "esdg-s63-weak-n",
    )
    own_data = "its graphs are random ones that grow with the number of ranks"
    question = "Does throughput grow with the ranks when the graph grows with them?"
    reading = (
        "Random graphs by the paper's recipe: 256 snapshots, three random pairs per vertex, 2^14 "
        "vertices at one GPU, doubling with them. The printed totals of edges are N T (3 + 1), "
        "loops included; they need 2^21 vertices at 128 GPUs and leave no room for smoothing. "
        "Measured, as a CPU proxy, are small such graphs on ranks of this machine; the rest is "
        "projected as in Figure 5."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        size = _size(preset)
        slow = 900 if size == "full" else 60
        found = [self._cell({"part": "sizes"}, "sizes", slow)]
        if preset != "quick":  # no claim needs it
            found.append(self._cell({"part": "launch"}, "launch", slow))
        found += [
            self._cell({"part": "shares", "dataset": DATASET, "model": m}, f"shares/{m}", slow)
            for m in fig5.models(preset)
        ]
        raced = fig5.models(preset)
        for model in raced[:1] if preset == "quick" else raced:
            for ranks in MEASURED[size]:
                params = {"part": "ranks", "dataset": DATASET, "model": model, "ranks": ranks}
                why = devices_lacking(ranks, device)
                found.append(
                    self._cell(
                        params,
                        model,
                        slow,
                        why,
                        ROUNDS[size],
                    )
                )
        return found

    def _cell(
        self, params: dict[str, Any], group: str, timeout_s: float, why: str = "", repeats: int = 1
    ) -> Cell:
        return self.cell_of(params, group, repeats=repeats, timeout_s=timeout_s, unavailable=why)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        size, part = _size(context.preset), cell.params["part"]
        if part == "sizes":
            return sizes(SAMPLE[size])
        if part == "launch":
            return launches(*LAUNCH[size])
        model = str(cell.params["model"])
        if part == "shares":
            return shares(model, size)
        if part == "ranks":
            nodes, steps = BASE[size]
            ranks = int(cell.params["ranks"])
            # One more snapshot, which is only a target.
            data = random_graphs(nodes * ranks, steps=steps + 1)
            loops = steps * data.num_nodes
            found = on_ranks(task_of(model), ranks, context, cell.timeout_s, data, loops)
            found.observe("throughput", number(found, "edges") / number(found, "epoch_time"))
            return found
        raise UnsupportedError(f"fig7 has no part '{part}'")

    def figures(self) -> list[FigureSpec]:
        return [
            chart("scaling", "fig7", "Throughput over one rank", throughput_points,
                xlabel="ranks, the graph growing with them",
                ylabel="edges per second over one rank", topology=CLUSTER, most=WIDEST, band=BAND,
                here="processes of this machine, one core each", interval="95 % paired t interval"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = curves(rows).get("bandwidth")
        if not found:
            return ""
        said = [f"{MODEL_TITLES[m]} {gains(e)[WIDEST]:.0f}x" for m, e in found.items()]
        return f"Projected throughput at {WIDEST} V100, of an ideal {WIDEST}x: {', '.join(said)}."


def _size(preset: Preset) -> str:
    return preset if preset in ("smoke", "quick") else "full"


# What is measured and counted.


def sizes(sample: int) -> Measurement:
    """Edges at one GPU, counted; at 128, by the recipe and a sample of what repeats."""
    rng = np.random.default_rng(1)
    small = [draw(FIRST_NODES, DENSITY, rng) for _ in range(STEPS)]
    nodes = FIRST_NODES * WIDEST
    large = [draw(nodes, DENSITY, rng).nnz for _ in range(sample)]
    both = np.unique(np.concatenate([_keys(csr) for csr in small[:2]]))
    found = Measurement(data={"dataset": DATASET, "twin": False, "scale": 1.0, "note": ""})
    _observe_sizes(
        found,
        vertices=(FIRST_NODES, nodes),
        edges=(paper_edges(1), paper_edges(WIDEST)),
        doublings=round(math.log2(WIDEST)),
        stored=sum(csr.nnz for csr in small) + STEPS * FIRST_NODES,
        window=STEPS * (len(both) + FIRST_NODES),
    )
    found.observe("portion", float(np.mean(large)) / (DENSITY * nodes), of="stored")
    found.checks = _size_checks(sample, found)
    return found


def _observe_sizes(
    found: Measurement,
    *,
    vertices: tuple[int, int],
    edges: tuple[int, int],
    doublings: int,
    stored: int,
    window: int,
) -> None:
    """Sizes at both ends; edges at the first that are stored, and that a window of 2 would make."""
    for of, nodes, count in zip(("first", "last"), vertices, edges, strict=True):
        found.observe("vertices", nodes, of=of)
        found.observe("edges", count, of=of)
    found.observe("processes", doublings, of="doublings")
    found.observe("edges", stored, of="first_stored")
    found.observe("edges", window, of="first", life=2)


def _size_checks(sample: int, own: Measurement) -> list[ResultCheck]:
    """The recipe again: distinct pairs of two ends, without loops, of the same draws."""
    rng = np.random.default_rng(1)

    def pairs(nodes: int) -> np.ndarray:
        drawn = distinct(rng.integers(0, nodes * nodes, size=3 * nodes, dtype=np.int64))
        return drawn[drawn // nodes != drawn % nodes]

    first, last = 2**14, 2**14 * 2**7
    small = [pairs(first) for _ in range(256)]
    stored = sum(len(pairs(last)) for _ in range(sample)) / sample
    wanted, shares = Measurement(), Measurement()
    _observe_sizes(
        wanted,
        vertices=(first, last),
        edges=(256 * (3 * first + first), 256 * (3 * last + last)),
        doublings=7,
        stored=sum(map(len, small)) + 256 * first,
        window=256 * (len({*small[0].tolist(), *small[1].tolist()}) + first),
    )
    shares.observe("portion", stored / (3 * last), of="stored")
    return [
        agree(own, wanted, against=OVER_EDGES),
        agree(own, shares, against=OVER_EDGES, of="shares", tolerance=1e-9),
    ]


def _keys(csr: Any) -> np.ndarray:
    rows = np.repeat(np.arange(csr.num_rows, dtype=np.int64), csr.indptr.diff().numpy())
    return rows * csr.num_cols + csr.indices.numpy()


def shares(model: str, size: str) -> Measurement:
    """Rank 0's share at several P on two random graphs, and what it costs."""
    wanted = []
    for nodes, ranks in (LARGE[size], SMALL[size]):
        data = random_graphs(nodes, steps=SHARE_STEPS[size] + 1)
        wanted += [(data, p) for p in ranks]
    taken = take_shares(task_of(model), wanted, turns=TURNS[size])
    found = Measurement(data=describe(wanted[0][0]))
    observe_costs(found, taken)
    found.observe("bandwidth", copy_rate(), of="copy")
    found.observe("vertices", wanted[0][0].num_nodes, of="measured")
    found.observe("snapshots", SHARE_STEPS[size], of="measured")
    found.notes = ["one thread; what other ranks would send is zeros"]
    found.checks = share_checks(taken, found)
    return found


def launches(nodes: int, many: int, few: int, turns: int = 4) -> Measurement:
    """EvolveGCN on many small snapshots against few large ones with as many edges in all.

    The first is a rank's share at one GPU, the second at 128: what the first takes longer is per
    snapshot, not per edge, and would make weak scaling superlinear.
    """
    torch.set_num_threads(1)
    task = task_of("evolvegcn_o")
    small = random_graphs(nodes, steps=many + 1)
    large = random_graphs(nodes * many // few, steps=few + 1)
    taken = take_shares(task, [(small, 1), (large, 1)], turns=turns)
    found = Measurement(data=describe(small))
    for setting, share, steps in zip(("many", "few"), taken, (many, few), strict=True):
        found.observe("epoch_time", share.seconds, setting=setting)
        found.observe("snapshots", steps, setting=setting)
    sides = (share.samples for share in taken)
    observe_speedup(found, *sides, mean=True, setting="few", baseline="many")
    found.observe("vertices", nodes)
    found.checks = summarised([check for share in taken for check in share.checks])
    return found


# What follows from it.


def job_of(row: Any, ranks: int) -> ProjectedModel:
    """The paper's weak-scaling run on so many GPUs; independent snapshots share no edges."""
    nodes = FIRST_NODES * ranks
    plain = 5.0 * ITEM * DENSITY * nodes
    return ProjectedModel(
        model=str(row.params["model"]),
        steps=STEPS,
        nodes=nodes,
        costs=costs_of(row),
        plain_bytes=plain,
        difference_bytes=plain,
    )


def share_rows(rows: Sequence[Any]) -> dict[str, Any]:
    """The last row of shares by model."""
    return {r.params["model"]: r for r in rows_of(rows, experiment=NAME, part="shares")}


def speeds(rows: Sequence[Any]) -> dict[str, dict[str, float]]:
    """Speed of a V100 relative to a thread of this machine, by interpretation and model; the
    interpretation `printed` is that of Figure 5."""
    found = share_rows(rows)
    if not found:
        return {}
    rate = fig5_curves.copied(found.values())
    same = {"bandwidth": dict.fromkeys(found, V100_BYTES_PER_S / rate)}
    printed = fig5_curves.speeds(rows).get("printed")
    return {**same, "printed": printed} if printed else same


def curves(
    rows: Sequence[Any], *, network: float | None = None
) -> dict[str, dict[str, dict[int, ProjectedSnapshotEpoch]]]:
    """Projected epochs by reading, model and P; the graph grows with P."""
    error = link_error(rows, "largest")
    return {
        reading: {
            model: project(row, by_model[model], network=network, error=error)
            for model, row in share_rows(rows).items()
            if model in by_model
        }
        for reading, by_model in speeds(rows).items()
    }


def project(
    row: Any, speed: float, *, network: float | None = None, error: float | None = None
) -> dict[int, ProjectedSnapshotEpoch]:
    """Epochs by P on the paper's cluster."""
    jobs = tuple((p, job_of(row, p)) for p in RANKS)
    return {p: replace(e, error=error) for p, e in _project(jobs, speed, network).items()}


@lru_cache(maxsize=64)
def _project(
    jobs: tuple[tuple[int, ProjectedModel], ...], speed: float, network: float | None
) -> dict[int, ProjectedSnapshotEpoch]:
    return {p: snapshot_epoch(job, p, v100_cluster(p, speed, network=network)) for p, job in jobs}


def gains(epochs: dict[int, ProjectedSnapshotEpoch]) -> dict[int, float]:
    """Throughput over that of one rank: edges grow with P, so P t(1) / t(P)."""
    return {p: p * epochs[1].seconds / epoch.seconds for p, epoch in sorted(epochs.items())}


def throughput_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `scaling`: throughput on ranks of this machine, projected to 128, and printed."""
    points: list[dict[str, Any]] = []
    rates = Table.of(rows, experiment=NAME, part="ranks").where("throughput")
    for model, of_model in rates.by("model").items():
        by_ranks = of_model.by("ranks")
        for p, at in sorted(by_ranks.items()):
            if p > number(at[0].row, "cores"):
                continue
            gain = ratio(at, by_ranks[1]) if p > 1 and 1 in by_ranks else None
            if gain is None and p > 1:
                continue
            points.append(
                {
                    "panel": MODEL_TITLES[model],
                    "series": "esdg",
                    "x": p,
                    "y": 1.0 if gain is None else gain.value,
                    "low": gain and gain.low,
                    "high": gain and gain.high,
                    "row_ids": [row.id for row in at.rows],
                }
            )
    found, links = curves(rows), link_errors(rows)
    for model, row in share_rows(rows).items():
        lines = {name: line[model] for name, line in found.items() if model in line}
        common = {"panel": MODEL_TITLES[model], "row_ids": [row.id]}
        points += scaled_points(lines, gains, costs_of(row), links, common)
        points.append(
            {**common, "series": "esdg", "x": WIDEST, "y": _printed(model), "paper": True}
        )  # fmt: skip
    return points + [
        {"panel": MODEL_TITLES[row.params["model"]], "series": "esdg",
         "x": row.params.get("ranks", 1), "failed": f"{row.status}: {row.reason}"}
        for row in rows
        if row.experiment == NAME and row.status != "ok" and "model" in row.params
    ]  # fmt: skip


def _printed(model: str) -> float:
    """Edges per second at 128 GPUs over those at one (section 6.3)."""
    return float(ledger(LEDGER)[f"s63-weak-{IN_LEDGER[model]}"])
