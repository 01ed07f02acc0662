"""Figure 7: weak scaling on random graphs, edges per second (section 6.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from dgbench.datasets import Origin, SnapshotSequence
from dgbench.kernels_cuda.csr import Csr
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.compare import observe_speedup
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.grid import by_preset
from dgbench.lab.printed import ledger
from dgbench.lab.quantities import MeasuredQuantity, computed, observed, paired
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import close, summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table, number
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.calibration import copy_rate
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg.experiments.fig5 import GROWTH, MOVING, models
from dgbench.systems.esdg.experiments.parts import (
    TURNS,
    costs_of,
    observe_costs,
    on_ranks,
    share_checks,
    take_shares,
)
from dgbench.systems.esdg.experiments.projected_lines import (
    Epochs,
    ProjectedLines,
    by_speed,
    on_v100,
    own_cores,
    scaling,
)
from dgbench.systems.esdg.experiments.projection import ITEM, ProjectedModel
from dgbench.systems.esdg.experiments.settings import FORMS, LEDGER, MODELS, RANKS, WITHIN

STEPS = 256
DENSITY = 3
"""T and f of the paper."""

FIRST_NODES = 2**14
"""N at one GPU; it doubles with the GPUs."""

DATASET = "random-weak"

WIDEST = RANKS[-1]
IN_LEDGER = {"tm_gcn": "tmgcn", "cd_gcn": "cdgcn", "evolvegcn_o": "evolvegcn"}
LARGE = {
    "smoke": (512, (1, 2, 8, 16)),
    "quick": (2048, (4, 16, 128)),
    None: (8192, (1, 4, 32, 128)),
}
SMALL = {"smoke": (128, (2, 16)), "quick": (512, (2, 8, 128)), None: (1024, (1, 8, 64, 128))}
"""N and the P of the shares that are measured."""

SHARE_STEPS = {"smoke": 32, None: STEPS}
BASE = {"smoke": (2**7, 16), "quick": (2**10, 64), None: (2**12, STEPS)}
"""N per rank and T on ranks of this machine."""

MEASURED = {"smoke": (1, 2), "quick": (1, 2), None: (1, 2, 4)}
ROUNDS = {"smoke": 1, None: 5}
"""Five pairs bound a ratio; quick has them for the first model, claims rest on shares."""
LAUNCH = {"smoke": (2**6, 32, 2), "quick": (2**8, STEPS, 2), None: (2**14, STEPS, 2)}
"""N of many small snapshots, their number, and the number of the few large ones."""


def task_of(model: str) -> TimelineWorkload:
    """Link prediction on graphs that are made in memory; no smoothing, for the paper's edge totals
    leave room for none."""
    return TimelineWorkload(dataset=DATASET, model=model, window=1)


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


def gains(epochs: Epochs) -> dict[int, float]:
    """Throughput over that of one rank: edges grow with P, so P t(1) / t(P)."""
    return {p: p * epochs[1].seconds / epoch.seconds for p, epoch in sorted(epochs.items())}


WEAK = ProjectedLines("fig7", job_of, ("scaled_by", "model"))
THROUGHPUT = WEAK.by_ranks(gains)
PRINTED = {model: float(ledger(LEDGER)[f"s63-weak-{name}"]) for model, name in IN_LEDGER.items()}
"""Edges per second at 128 GPUs over those at one (section 6.3)."""


def last(model: Any, **where: Any) -> MeasuredQuantity:
    """Gain of a model at the most ranks."""
    return WEAK.number(lambda line: gains(line)[WIDEST], model=model, **where)


def dent(line: Epochs) -> float:
    """Gain from 8 to 16 ranks over the smaller one of the doublings around it."""
    by_p = gains(line)
    before, here, after = (by_p[2 * p] / by_p[p] for p in (4, 8, 16))
    return here / min(before, after)


def on_ranks_here(context: EvaluationContext) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Throughput on cores of their own over that of one rank."""
    rate = observed("throughput", per="model", part="ranks").keep(own_cores)
    one = rate.where(ranks=1)
    for p in MEASURED[None]:
        for ((_, model),), ratio in paired(rate.where(ranks=p), one).estimates(context).items():
            gained = Estimate(1.0, rows=ratio.rows) if p == 1 else ratio
            yield {"part": "ranks", "model": model, "ranks": p}, gained


HERE = computed(on_ranks_here, per=("model", "ranks")).where(part="ranks")


def ends(counts: Table) -> tuple[int, int]:
    """Counts at one GPU and at the most."""
    by_end = counts.where(life=None).numbers("of")
    return by_end["first"], by_end["last"]


def edges_as_printed(counts: Table) -> dict[str, str]:
    """Edges of all snapshots; 16.8 M is printed as 16M: cut, not rounded."""
    first, last = ends(counts)
    return {"low": f"{first // 10**6}M", "high": f"{last / 1e9:.1f}B"}


def vertices_as_printed(counts: Table) -> dict[str, str]:
    """Vertices at both ends."""
    first, last = ends(counts)
    return {"start": f"2^{math.log2(first):g}", "end": f"{last / 1e6:.0f}M"}


class Fig7(FormExperiment):
    forms, name = FORMS, "fig7"
    timeout_s = {"smoke": 60, "quick": 60, None: 900}
    headline, unit = last(MODELS, scaled_by="bandwidth"), "x"
    figure_forms = (
        scaling(
            "fig7", "Throughput over one rank",
            {
                "esdg": HERE,
                **on_v100(THROUGHPUT),
                "paper": THROUGHPUT.where(scaled_by="bandwidth", ranks=(WIDEST,)).printed(
                    lambda at: PRINTED[at["model"]]
                ),
            },
            "{model}", xlabel="ranks, the graph growing with them",
            ylabel="edges per second over one rank", interval="95 % paired t interval",
            here="processes of this machine, one core each",
        ),
    )  # fmt: skip
    claims = {
        **{
            f"esdg-s63-weak-{IN_LEDGER[model]}": by_speed(
                lambda speed, model=model: rules.near_claim(last(model, **speed), within=WITHIN)
            )
            for model in MOVING["model"]
        },
        "esdg-s63-weak-evolvegcn": combine.shown_beside(
            by_speed(lambda speed: rules.near_claim(last("evolvegcn_o", **speed), above=WIDEST)),
            {"time of many small snapshots over that of few large ones, here": observed(
                "speedup", part="launch", setting="few", baseline="many"
            )},
        ),
        "esdg-s63-weak-drop": by_speed(lambda speed: rules.all_below(
            WEAK.number(dent, **speed, **MOVING), 1 / GROWTH, unit="of the gains around"
        )),
        "esdg-s63-weak-sizes": rules.equals_claim(edges_as_printed, "edges", part="sizes"),
        "esdg-s63-weak-n": rules.equals_claim(vertices_as_printed, "vertices", part="sizes"),
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        cells = [self.cell({"part": "sizes"}, preset, group="sizes")]
        if preset != "quick":  # no claim needs it
            cells.append(self.cell({"part": "launch"}, preset, group="launch"))
        cells += [
            self.cell(
                {"part": "shares", "dataset": DATASET, "model": model}, preset,
                group=f"shares/{model}",
            )
            for model in models(preset)
        ]  # fmt: skip
        raced = models(preset)
        return cells + [
            self.cell(
                {"part": "ranks", "dataset": DATASET, "model": model, "ranks": ranks}, preset,
                group=model, unavailable=devices_lacking(ranks, device),
                repeats=by_preset(ROUNDS, preset),
            )
            for model in (raced[:1] if preset == "quick" else raced)
            for ranks in by_preset(MEASURED, preset)
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        preset, part = context.preset, cell.params["part"]
        if part == "sizes":
            return sizes()
        if part == "launch":
            return launches(*by_preset(LAUNCH, preset))
        model = str(cell.params["model"])
        if part == "shares":
            return shares(model, preset)
        if part == "ranks":
            nodes, steps = by_preset(BASE, preset)
            ranks = int(cell.params["ranks"])
            # One more snapshot, which is only a target.
            data = random_graphs(nodes * ranks, steps=steps + 1)
            found = on_ranks(task_of(model), ranks, context, cell.timeout_s, least=2, data=data)
            edges = sum(data.num_edges[:steps]) + steps * data.num_nodes  # with a loop of each
            found.observe("throughput", edges / number(found, "epoch_time"))
            return found
        raise UnsupportedError(f"fig7 has no part '{part}'")


# The random graphs of the weak-scaling runs, made in memory: each snapshot is drawn by itself, f N
# pairs of vertices, uniformly. Pairs that occur twice and loops are dropped from what is stored; at
# the paper's sizes that is fewer than one in ten thousand.


def draw(num_nodes: int, density: int, rng: np.random.Generator) -> Csr:
    """One snapshot: `density * num_nodes` pairs drawn with replacement, loops and repeats dropped.

    Rows are the targets.
    """
    drawn = rng.integers(0, num_nodes * num_nodes, size=density * num_nodes, dtype=np.int64)
    drawn.sort()
    rows, cols = np.divmod(drawn, num_nodes)
    keep = rows != cols
    keep[1:] &= drawn[1:] != drawn[:-1]
    rows, cols = rows[keep], cols[keep]
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=indptr[1:])
    return Csr(torch.from_numpy(indptr), torch.from_numpy(cols.astype(np.int32)), num_nodes)


def random_graphs(
    num_nodes: int, *, steps: int = STEPS, density: int = DENSITY, seed: int = 1
) -> SnapshotSequence:
    """A timeline of such snapshots, with in-degree and out-degree as features.

    Raises:
        InvalidInputError: an argument out of range.
    """
    for name, value, least in (("num_nodes", num_nodes, 2), ("steps", steps, 1),
                               ("density", density, 1)):  # fmt: skip
        if value < least:
            raise InvalidInputError(f"{name} is {value}, allowed are numbers from {least}")
    rng = np.random.default_rng(seed)
    topology = [draw(num_nodes, density, rng) for _ in range(steps)]
    features = torch.empty(steps, num_nodes, 2)
    for t, csr in enumerate(topology):
        features[t, :, 0] = csr.indptr.diff()
        features[t, :, 1] = torch.bincount(csr.indices, minlength=num_nodes)
    origin = Origin(
        dataset=DATASET,
        seed=seed,
        notes=("drawn by the paper's own recipe: every snapshot by itself",),
    )
    return SnapshotSequence(
        topology=topology,
        features=features,
        targets=features[:, :, 0].contiguous(),
        num_nodes=num_nodes,
        origin=origin,
        edge_counts=tuple(csr.nnz for csr in topology),
    )


def paper_edges(ranks: int, *, steps: int = STEPS, density: int = DENSITY) -> int:
    """Edges of all snapshots at so many GPUs, a loop per vertex included: N T (f + 1)."""
    return FIRST_NODES * ranks * steps * (density + 1)


# What is measured and counted.


def sizes() -> Measurement:
    """Vertices, and edges of all snapshots with a loop for each, at one GPU and at the most."""
    found = Measurement(data={"dataset": DATASET, "twin": False, "scale": 1.0, "note": ""})
    for of, ranks in (("first", 1), ("last", WIDEST)):
        found.observe("vertices", FIRST_NODES * ranks, of=of)
        found.observe("edges", paper_edges(ranks), of=of)
    drawn = sum(random_graphs(FIRST_NODES).edge_counts) + STEPS * FIRST_NODES
    # Pairs that are drawn twice, and loops, are stored once.
    found.checks = [close("counters", drawn, paper_edges(1), 1e-3, against="edges that are drawn")]
    return found


def shares(model: str, preset: Preset) -> Measurement:
    """Rank 0's share at several P on two random graphs, and what it costs."""
    wanted, steps = [], by_preset(SHARE_STEPS, preset)
    for nodes, ranks in (by_preset(LARGE, preset), by_preset(SMALL, preset)):
        data = random_graphs(nodes, steps=steps + 1)
        wanted += [(data, p) for p in ranks]
    taken = take_shares(task_of(model), wanted, turns=by_preset(TURNS, preset))
    found = Measurement(data=describe(wanted[0][0]))
    observe_costs(found, taken)
    found.observe("bandwidth", copy_rate(0.1), of="copy")
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
    for setting, share in zip(("many", "few"), taken, strict=True):
        found.observe("epoch_time", share.seconds, setting=setting)
    sides = (share.samples for share in taken)
    observe_speedup(found, *sides, mean=True, setting="few", baseline="many")
    found.checks = summarised([check for share in taken for check in share.checks])
    return found
