"""Figure 5: strong scaling of the snapshot partition, 1 to 128 ranks (sections 6.3 and 6.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, ClassVar

import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import TURN_INTERVAL, observe_speedup
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import StackedTime, Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.calibration import copy_rate
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import load_timeline
from dgbench.systems.esdg.experiments import projected_lines as lines
from dgbench.systems.esdg.experiments import projection, settings
from dgbench.systems.esdg.experiments.parts import (
    IDLE_STEPS,
    TURNS,
    counted,
    links,
    observe_costs,
    on_ranks,
    share_checks,
    take_shares,
)
from dgbench.systems.esdg.experiments.recount import sequence_changes
from dgbench.systems.esdg.experiments.table2 import REMOTE
from dgbench.systems.esdg.experiments.table2_runs import RANKS as TABLE2_RANKS

PRINTED = {"tm_gcn": "M_product", "cd_gcn": "nnz", "evolvegcn_o": "edge_life"}
"""Column of Table 1 with the entries that each model trains on."""

LARGE = {"smoke": (1, 2, 4, 8), "quick": (1, 4, 16, 128), None: (1, 2, 4, 8, 16, 32, 64, 128)}
SMALL = {"smoke": (1, 8), "quick": (4, 16, 128), None: (1, 4, 16, 128)}
"""P of the shares that are measured, on a larger and on a smaller graph."""

MEASURED = {"smoke": (2,), "quick": (2,), None: (2, 4, 8)}
MIN_ROUNDS = {"smoke": 2, "quick": 6, None: 12}
"""Epochs of P ranks, each beside one of a single rank; six bound a median with 95 %."""

RANKED = "amlsim"
"""Graph that ranks of this machine train on."""

COUNTED = {"smoke": (16,), "quick": (16, 32), None: (16, 32, 64, 128)}


WELL = 0.75
"""Computing is `near-linear` where a rank's share gains this much of what perfect shares would."""
WIDE = 16
"""Ranks at which the gain of a share decides."""
GROWTH = 1.02
"""Smaller factors between two points of a projected curve count as none."""
MOVING = {"model": settings.MODELS[:2]}
"""Models whose activations travel."""


# Projected


STRONG = lines.ProjectedLines(
    "fig5", lambda row, p: lines.job_of(row), ("scaled_by", "dataset", "model")
)
SPEEDUP = STRONG.by_ranks(projection.speedups)


def best(epochs: Callable[[lines.Epochs], lines.Epochs] = dict) -> MeasuredQuantity:
    """Speed-up of the most ranks on the best line; `epochs` changes what is projected."""
    last = STRONG.number(lambda line: projection.speedups(epochs(line))[max(line)])
    return last.joined_over(max, "dataset", "model")


def gain(first: int, last: int, **where: Any) -> MeasuredQuantity:
    """Time of an epoch of few ranks over that of many."""
    return STRONG.number(lambda line: line[first].seconds / line[last].seconds, **where)


def share_growth(line: lines.Epochs) -> float:
    """Share of communication at the most ranks less that at the most of one node."""
    node = max((p for p in line if p <= projection.GPUS_PER_NODE), default=min(line))
    return line[max(line)].share - line[node].share


def lead_of_communication(line: lines.Epochs) -> float:
    """Communication at the most ranks over the larger of computing and transfer."""
    last = line[max(line)]
    return last.communicate_s / max(last.compute_s, last.transfer_s)


def recovery(line: lines.Epochs) -> float:
    """Mean gain of the doublings beyond two nodes over that from one node to two."""
    mean = (line[16].seconds / line[128].seconds) ** (1 / 3)
    return mean / (line[8].seconds / line[16].seconds)


def table2_epochs(context: EvaluationContext) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Milliseconds of Table 2's epochs by both partitions."""
    shares = lines.share_rows(context.rows)
    for scaled_by, by_model in lines.speeds(context.rows).items():
        for model, speed in by_model.items():
            row = shares.get(("amlsim", model))
            if row is None:
                continue
            job, dims = (
                lines.job_of(row, steps=projection.TABLE2_STEPS),
                {"scaled_by": scaled_by, "model": model},
            )
            for p in TABLE2_RANKS:
                epoch = projection.snapshot_epoch(job, p, projection.v100_cluster(p, speed))
                time = Estimate(1e3 * epoch.seconds, rows=(row,))
                yield {**dims, "method": "snapshot", "ranks": p}, time
            for ((_, p),), remote in REMOTE.where(model=model).estimates(context).items():
                epoch = projection.vertex_epoch(
                    job, p, projection.v100_cluster(p, speed), remote.value
                )
                time = Estimate(1e3 * epoch.seconds, rows=(row, *remote.rows))
                yield {**dims, "method": "vertex", "ranks": p}, time


TABLE2_EPOCHS = computed(table2_epochs, per=("scaled_by", "model", "method", "ranks"))


def table2_times(model: str, method: str) -> outcomes.Rule:
    """Projected epochs of a partition are all near the printed ones; a table has no direction."""
    mine = TABLE2_EPOCHS.where(model=model, method=method)
    return lines.by_speed(
        lambda speed: rules.all_equal(
            mine.where(**speed), settings.printed_at, within=settings.WITHIN
        )
    )


def one_node(context: EvaluationContext) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """One node of the paper's V100 and one of H200, over one V100."""
    for (dataset, model), row in lines.share_rows(context.rows).items():
        if dataset != "amlsim":
            continue
        speed, job = lines.speeds(context.rows)["bandwidth"][model], lines.job_of(row)
        one = projection.snapshot_epoch(job, 1, projection.v100_cluster(1, speed)).seconds
        for name, machine in (("V100", projection.v100_cluster), ("H200", projection.h200)):
            for p in (1, 2, 4, 8):
                epoch = projection.snapshot_epoch(job, p, machine(p, speed))
                gained = lines.ProjectedNumber(one / epoch.seconds, rows=(row,), epoch=epoch)
                yield {**row.params, "case": name, "ranks": p}, gained


ONE_NODE = lines.of_shares(one_node, "case", "dataset", "model", "ranks")


# Counted and measured


def floats(of: str) -> MeasuredQuantity:
    """Floats that stay inside nodes, go between them, or stay on their rank."""
    return observed("floats", per="ranks", part="counted", of=of)


INSIDE = (floats("inside") + floats("kept")) / (
    floats("inside") + floats("kept") + floats("between")
)
"""Share of what is redistributed that stays inside nodes."""
SHARES = {"per": ("dataset", "model"), "part": "shares", "ranks": WIDE}
PERFECT_SHARE = observed("speedup", **SHARES).over(observed("estimate", of="speedup", **SHARES))
"""Gain of a rank's share over that of a perfect one."""


def on_ranks_here(context: EvaluationContext) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Speed-ups on cores of their own, and where they begin."""
    gains = observed("speedup", per=("dataset", "model", "ranks"), part="ranks").keep(
        lines.own_cores
    )
    for coords, one in gains.estimates(context).items():
        dims = {"part": "ranks", **dict(coords)}
        yield {**dims, "ranks": 1}, Estimate(1.0, rows=one.rows)
        yield dims, one


HERE = computed(on_ranks_here, per=("dataset", "model", "ranks")).where(part="ranks")
SPENT = observed("phase_time", per=("dataset", "model", "phase"), part="ranks").pooled("median")


def total(context: EvaluationContext, dims: Mapping[str, Any], _: Estimate) -> dict[str, Any]:
    """Seconds of the epoch of a bar."""
    ranks = {"ranks": dims["ranks"]} if "ranks" in dims else {"setting": "alone"}
    where = {"part": "ranks", "dataset": dims["dataset"], "model": dims["model"], **ranks}
    return {"total": observed("epoch_time", **where).pooled("median").estimates(context)[()].value}


PANEL = "{model}, {dataset}"


class Fig5(FormExperiment):
    forms, name = settings.FORMS, "fig5"
    sources: ClassVar = {"portion": "counted"}
    headline, unit = (
        SPEEDUP.where(scaled_by="bandwidth", ranks=settings.RANKS[-1])
        .joined_over(max, "dataset"), "x",
    )  # fmt: skip
    figure_forms = (
        lines.scaling(
            "fig5", "Speed-up over one rank", {"esdg": HERE, **lines.on_v100(SPEEDUP)}, PANEL,
            xlabel="ranks", ylabel="speed-up over one rank", interval=TURN_INTERVAL,
            here="processes of this machine, one core each",
        ),
        Sweep(
            "fig5_projected_split", "Projected seconds of an epoch on the paper's cluster",
            {
                part: STRONG.by_ranks(
                    lambda line, part=part: {p: getattr(e, f"{part}_s") for p, e in line.items()}
                ).where(scaled_by="bandwidth")
                for part in ("compute", "transfer", "communicate")
            },
            panel=PANEL, series="of", x="ranks", gaps={"x": 1}, xlabel="ranks",
            more=lambda *_: {"projected": True}, ylabel="seconds of an epoch", base=2,
        ),
        StackedTime(
            "fig5_measured_split", "Where the time goes on ranks of this machine",
            {"P = 1": SPENT.where(setting="alone"), "P = ": SPENT.per("ranks")},
            panel=PANEL, row="{of}{ranks}", system="esdg", more=total,
            xlabel="time of one epoch, ms", phases_from="phases timed in the same epochs",
        ),
        lines.scaling(
            "fig5_h200", "One node of H200 beside one of V100, projected",
            {f"esdg, {case}": ONE_NODE.where(case=case) for case in ("V100", "H200")}, PANEL,
            xlabel="GPUs", ylabel="speed-up over one V100",
            topology="a node of 8 V100 with NVLink, and one of 8 H200 with NVSwitch",
        ),
    )  # fmt: skip
    claims = {
        "esdg-abs-strong-scaling": combine.shown_beside(
            lines.by_speed(
                lambda speed: rules.near_claim(
                    best().where(**speed), entry="high", within=settings.WITHIN
                )
            ),
            {"with exchanges as slow as Table 2's": best(projection.with_excess).where(
                scaled_by="bandwidth", **MOVING
            )},
        ),
        "esdg-s1-max-system": rules.not_measurable(
            "needs 128 GPUs; here only the model that projections use has so many"
        ),
        "esdg-fig5-compute-scales": combine.as_proxy(
            rules.all_above(PERFECT_SHARE, WELL, unit="of perfect"),
            f"shares of a rank are computed one at a time, of {WIDE} ranks",
        ),
        "esdg-fig5-comm-bottleneck": lines.by_speed(lambda speed: combine.both(
            rules.all_above(STRONG.number(share_growth, **speed, **MOVING), 0,
                            unit="of an epoch more than in one node"),
            rules.all_above(STRONG.number(lead_of_communication, **speed, **MOVING), 1,
                            unit="times the other parts"),
        )),
        "esdg-fig5-node-boundary-drop": lines.by_speed(
            lambda speed: rules.all_below(gain(8, 16, **speed, **MOVING), 1, unit="x")
        ),
        "esdg-s63-inter-node-share": rules.all_equal(
            INSIDE, lambda value, at: projection.GPUS_PER_NODE / at["ranks"]
        ),
        "esdg-s63-recovers-with-nodes": lines.by_speed(lambda speed: combine.both(
            rules.all_above(STRONG.number(recovery, **speed, **MOVING), 1,
                            unit="times the gain from one node to two"),
            *(rules.all_above(gain(p, 2 * p, **speed, **MOVING), GROWTH, unit="x")
              for p in (16, 32, 64)),
        )),
        "esdg-s1-sublinear-nodes": lines.by_speed(
            lambda speed: rules.all_below(gain(8, 128, **speed), 16, unit="x")
        ),
        **{
            f"esdg-tab2-{column}-{settings.IN_LEDGER[model]}": table2_times(model, method)
            for column, method in (("time", "snapshot"), ("hyper-time", "vertex"))
            for model in settings.MODELS
        },
        "esdg-s65-idle-when-t-small": rules.all_equal(
            observed("processes", per="ranks", part="counted", of="idle"),
            lambda value, at: max(0, at["ranks"] - IDLE_STEPS),
        ),
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        few = preset in ("smoke", "quick")
        names = [RANKED] if few else [g.name for g in settings.GRAPHS]
        why = "runs on ranks of CPUs" if device == "cuda" else ""
        cells = [self._cell({"part": "counted"}), self._cell({"part": "links"}, unavailable=why)]
        cells += [
            self._cell(
                {"part": "shares", "dataset": name, "model": model}, timeout_s=60 if few else 1200
            )
            for name, model in product(names, models(preset))
        ]
        return cells + [
            self._cell(
                {"part": "ranks", "dataset": RANKED, "model": model, "ranks": ranks},
                unavailable=devices_lacking(ranks, device),
                group=f"{RANKED}/{model}",
                repeats=1 if few else 5,
                timeout_s=60 if few else 900,
            )
            for model, ranks in product(models(preset), by_preset(MEASURED, preset))
        ]

    def _cell(self, params: dict[str, Any], **fields: Any) -> Cell:
        group = fields.pop("group", "/".join(map(str, params.values())))
        return self.cell_of(params, group, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        part = cell.params["part"]
        if part == "counted":
            return counted(by_preset(COUNTED, context.preset))
        if part == "links":
            return links(short=context.preset == "smoke")
        graph, model = settings.BY_NAME[str(cell.params["dataset"])], str(cell.params["model"])
        if part == "shares":
            return shares(graph, model, context.preset)
        if part == "ranks":
            task = settings.workload(
                graph, model, context.preset, scale=ranks_scale(graph, context.preset)
            )
            least = by_preset(MIN_ROUNDS, context.preset)
            ranks = int(cell.params["ranks"])
            return on_ranks(task, ranks, context, cell.timeout_s, least=least, alone=True)
        raise UnsupportedError(f"fig5 has no part '{part}'")


def models(preset: Preset) -> tuple[str, ...]:
    """Models of a preset; the smallest shows with one that everything runs."""
    return settings.MODELS[:1] if preset == "smoke" else settings.MODELS


def ranks_scale(graph: settings.SnapshotGraph, preset: Preset) -> float:
    """Size of the twin that ranks of this machine train on; also that of the larger shares."""
    return graph.scale("smoke" if preset in ("smoke", "quick") else "quick")


def shares(graph: settings.SnapshotGraph, model: str, preset: Preset) -> Measurement:
    """Rank 0's share at several P on two graphs, what it costs, and what a snapshot weighs."""
    torch.set_num_threads(1)
    sizes = by_preset(LARGE, preset)
    large = ranks_scale(graph, preset)
    kept = settings.snapshots(preset) if preset == "smoke" else None
    tasks = [
        settings.workload(graph, model, preset, snapshots=kept, scale=scale)
        for scale in (large, large / 4)
    ]
    data = [load_timeline(task) for task in tasks]
    wanted = [(data[0], p) for p in sizes] + [(data[1], p) for p in by_preset(SMALL, preset)]
    taken = take_shares(tasks[0], wanted, turns=by_preset(TURNS, preset))
    found = Measurement(data=describe(data[0]))
    observe_costs(found, taken)
    first = taken[0]
    for share in taken[1 : len(sizes)]:
        observe_speedup(found, first.samples, share.samples, mean=True, ranks=share.size)
        found.observe("estimate", first.steps / share.steps, of="speedup", ranks=share.size)
    topology = [data[0].topology[t] for t in range(len(data[0]))]
    changes = sequence_changes(topology)
    plain, sent = (float(each[1:].mean()) for each in (changes.each_plain(), changes.each()))
    entries = graph.printed.get(PRINTED[model])
    steps = graph.printed.get("T", len(data[0]))
    found.observe(
        "estimate", projection.ITEM * 5 * entries / steps if entries else plain, of="snapshot"
    )
    found.observe("portion", (sent or 1.0) / (plain or 1.0), of="differences")
    found.observe("bandwidth", copy_rate(0.1), of="copy")
    found.observe("snapshots", steps)
    found.observe("vertices", graph.printed.get("N", data[0].num_nodes))
    found.observe("smoothing_length", graph.window)
    found.notes = ["one thread; what other ranks would send is zeros"]
    nnz = torch.tensor([csr.nnz for csr in topology])
    entries_check = equal("volumes", changes.entries, nnz, against="entries of the snapshots")
    found.checks = [*share_checks(taken, found), entries_check]
    return found
