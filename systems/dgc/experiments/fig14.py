"""Figures 13 and 14: partitions over synthetic graphs of rising non-uniformity (section 7.3.1)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import computed, observed, of_rows
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.study import FormExperiment
from dgbench.models import build_model
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.dgc.experiments.lifetimes import gini
from dgbench.systems.dgc.experiments.partition import PLACED as PLACEMENTS
from dgbench.systems.dgc.experiments.race_rows import (
    Numbers,
    RaceRecord,
    gain,
    over,
    races,
    running,
)
from dgbench.systems.dgc.experiments.race_runs import PLACED, PLAIN, RaceJob, contenders, race
from dgbench.systems.dgc.experiments.race_runs import SHOWN as SHOWN_FORMS
from dgbench.systems.dgc.experiments.settings import FORMS
from dgbench.systems.dgc.partition import PAPER, ChunkSettings, critical_path, partition_chunks
from dgbench.systems.dgc.recount import EdgeRecount, drawn, recounted, unevenness
from dgbench.systems.dgc.synthetic import EDGES, ENDS, FAMILIES, STEPS, VERTICES, Synthetic
from dgbench.systems.dgc.volumes import hearing, shape_of, traffic_of

LEVELS = {"spatial": (0.0, 0.25, 0.5, 1.0), "temporal": (0.0, 0.02, 0.05, 0.1, 0.2)}
"""Standard deviation over mean; of vertices less is enough, as each change ends sequences."""
FEW = {"spatial": (0.0, 0.5, 1.0), "temporal": (0.0, 0.05, 0.2)}
"""Levels of the smaller presets."""
SCALES = {"smoke": 1 / 2500, "quick": 1 / 500, "full": 1 / 20, "paper": 1.0}
TIMED = {"smoke": (1 / 12500, 12), "full": (1 / 50, 100), "paper": (1.0, 100)}
"""Scale and snapshots of timed graphs. Baselines go snapshot by snapshot, so that fewer and fuller
ones take less of what only small graphs suffer from."""
PROCESSES = {"smoke": 1, "full": 5, "paper": 5}
MIN_TURNS = {"smoke": 1, "full": 4, "paper": 10}
BUDGETS_S = {"smoke": 0.05, "full": 1.0, "paper": 10.0}
RANKS = {"smoke": 2, "full": 4, "paper": 8}
WORKERS = 8
MODEL = "tgcn_2layer"
OTHERS = ("snapshots", "sequences", "both")
CHUNKS = "chunks"
DESCRIBED = "chunks-described"
CONTIGUOUS = "snapshots-contiguous"
RIVALS = (*OTHERS, CONTIGUOUS)
SHOWN = (*RIVALS, DESCRIBED, CHUNKS)
"""Partitions whose traffic is counted."""
CLOSE = 0.05
"""Share by which sums over snapshots may miss their totals: a few draws repeat, and a few vertices
have no edge where they enter or leave."""

COUNTED: dict[str, Any] = {"kind": "traffic", "per": ("dataset", "ends", "level")}
SENT = observed("exchanged", ends=ENDS, **COUNTED)
OVER_BEST = SENT.where(method=DESCRIBED).over(SENT.where(method=RIVALS).joined_over(min, "method"))
"""Traffic of the paper's chunks over that of the best other partition."""
FALL = SENT.where(method=DESCRIBED).joined_over(lambda sent: sent[0] - sent[-1], "level")
"""Bytes that the paper's chunks send less at the last level than at the first."""
TOTALS = [
    observed(metric, **COUNTED) / of_rows(lambda row: float(row.data["scale"]), kind="traffic") / n
    for metric, n in (("vertex_steps", VERTICES), ("edges", EDGES))
]
"""Sums over snapshots in those that the paper prints, at the scale of the run."""
UNEVEN = "standard deviation over mean of what varies"
OPTIONS: dict[str, Any] = {"x": "level", "gaps": {"x": 0.0}, "xlabel": UNEVEN, "xlog": False}
BY_PARTITION = {"panel": "{dataset}, {ends}", "series": "{method}", **OPTIONS}


def timed_races(context: EvaluationContext) -> list[RaceRecord]:
    """Epochs timed on synthetic graphs, by what varies, ends and level."""
    found = running(races(context.rows, "fig14", kind="time"), PLAIN)
    return sorted(
        found, key=lambda one: (one.row.params["dataset"], one.part["ends"], one.part["level"])
    )


def timed_trend(context: EvaluationContext) -> Numbers:
    """Epochs of the best other contender over those of chunks at every level, and of chunks at the
    first level over those at the last."""
    series: dict[tuple[str, str], list[RaceRecord]] = {}
    for one in timed_races(context):
        dataset, ends = one.row.params["dataset"], one.part["ends"]
        series.setdefault((dataset, ends), []).append(one)
        best = one.best([name for name in one.names if name != PLAIN])
        yield {"dataset": dataset, **one.part}, gain(one, best, PLAIN)
    for (dataset, ends), (first, *others) in series.items():
        for last in others[-1:]:
            rows = (*first.rows, *last.rows)
            yield (
                {"dataset": dataset, "ends": ends, "level": "first level over last"},
                over(first.seconds(PLAIN), last.seconds(PLAIN), rows),
            )


def epochs(context: EvaluationContext) -> Numbers:
    """Median epoch of each contender, with the quickest and the slowest turn."""
    for one in timed_races(context):
        for name in one.names:
            dims = {"dataset": one.row.params["dataset"], "setting": SHOWN_FORMS.get(name, name)}
            turns = one.turns(name)
            yield (
                {**dims, **one.part, "kind": "time"},
                Estimate(one.epoch(name), min(turns), max(turns), one.rows, "seeds"),
            )


class Fig14(FormExperiment):
    forms, name = FORMS, "fig14"
    timeout_s = {"full": 300, "paper": 3600, None: 60}
    headline, unit = OVER_BEST, "x"
    figure_forms = (
        Sweep(
            "fig13", "Non-uniformity of the synthetic graphs (Figure 13)",
            observed("gini_index", of=("edges", "lengths"), ends=ENDS[0], kind="traffic",
                     per=("dataset", "level")),
            panel="varied: {dataset}", series="{of}", ylabel="Gini index", ylog=False, **OPTIONS,
        ),
        Sweep(
            "fig14_traffic", "Traffic of an epoch by partition, 8 workers",
            SENT.where(method=SHOWN), scale=1e-6, ylabel="MB per epoch", **BY_PARTITION,
        ),
        Sweep(
            "fig14_span", "How much of a recurrence runs in a row by partition, 8 workers",
            observed("span", ends=ENDS, **COUNTED).where(method=SHOWN),
            ylabel="vertex-steps in a row, even share = 1", **BY_PARTITION,
        ),
        Sweep(
            "fig14", "Epoch time by partition (Figure 14)",
            computed(epochs, per=("dataset", "ends", "level", "setting")).where(kind="time"),
            scale=1e3, panel="{dataset}, {ends}", series="{setting}", x="level",
            gaps={"x": 0.0, "series": SHOWN_FORMS[PLAIN]}, xlabel=UNEVEN, xlog=False,
            ylabel="ms per epoch, median",
        ),
    )  # fmt: skip
    claims = {
        "dgc-s731-synthetic": combine.both(
            *(rules.all_within(total, 1 - CLOSE, 1 + CLOSE) for total in TOTALS),
            rules.all_equal(observed("snapshots", **COUNTED), STEPS),
        ),
        # Timed epochs decide; without any, the traffic of the paper's chunks.
        "dgc-fig14-nonuniform-trend": combine.first_found(
            rules.all_above(computed(timed_trend, per=COUNTED["per"]), 1.0, unit="x"),
            combine.as_proxy(
                combine.both(rules.at_most(OVER_BEST, 1.0), rules.all_above(FALL, 0.0)),
                "traffic for the time of an epoch",
            ),
        ),
    }

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        # A time needs several processes, for which quick has no room; its traffic decides there.
        timed = {"smoke": FAMILIES[:1], "quick": ()}.get(preset, FAMILIES)
        kinds = [(family, "traffic", WORKERS, 1) for family in FAMILIES]
        kinds += [(family, "time", RANKS[preset], PROCESSES[preset]) for family in timed]
        return [
            self.cell(
                {"dataset": f"synthetic-{family}", "kind": kind, "model": MODEL, "ranks": ranks},
                preset, group=f"{family}-{kind}-{MODEL}-{ranks}", repeats=repeats,
                interleaved=kind == "time",
            )
            for family, kind, ranks, repeats in kinds
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        run = _count if cell.params["kind"] == "traffic" else _time
        with one_thread():  # graphs are small, and ranks have one thread each
            return run(cell, context)


def _count(cell: Cell, context: RunContext) -> Measurement:
    """Traffic of every partition at every level."""
    family = str(cell.params["dataset"]).removeprefix("synthetic-")
    workers = int(cell.params["ranks"])  # type: ignore[arg-type]
    shape = shape_of(
        build_model(cell.params["model"], feature_dim=2, hidden_dim=32, task="class", classes=2)
    )
    counts = shape.counts()
    spatial, temporal = counts.weights()
    found = Measurement()
    checks: list[ResultCheck] = []
    made = None
    levels = FEW if context.preset in ("smoke", "quick") else LEVELS
    for ends, level in product(ENDS, levels[family]):
        made = Synthetic(
            family=family, level=level, ends=ends, scale=SCALES[context.preset]  # type: ignore[arg-type]
        )  # fmt: skip
        data = made.snapshots()
        graph = build_supergraph(
            data.topology[:], spatial=spatial, temporal=temporal, per_length=counts.all_steps
        )
        placements = {name: place(graph, workers) for name, place in PLACEMENTS.items()}
        for name, settings in ((DESCRIBED, PAPER), (CHUNKS, ChunkSettings())):
            placements[name] = partition_chunks(graph, counts, workers, settings, None).placement
        at: dict[str, Any] = {"ends": ends, "level": level}
        lengths = np.diff(graph.start.numpy())
        edges = np.array(data.num_edges)
        found.observe("vertex_steps", graph.num_vertices, **at)
        found.observe("edges", int(edges.sum()), **at)
        found.observe("snapshots", len(data), **at)
        found.observe("gini_index", gini(lengths[lengths > 0]), of="lengths", **at)
        found.observe("gini_index", gini(edges), of="edges", **at)
        hears, recount = hearing(data, graph), EdgeRecount(data, len(data))
        wanted, steps = recount.sizes(**at), np.unique(recount.entity, return_counts=True)[1]
        wanted.observe("gini_index", unevenness(steps), of="lengths", **at)
        wanted.observe("gini_index", unevenness(recount.per_step()), of="edges", **at)
        (chosen,) = drawn((*SHOWN,), 1)
        for name, placement in placements.items():
            sent = traffic_of(graph, hears, placement, shape).bytes()
            span = critical_path(graph, placement)[1]
            checks.append(recount.partition(placement, name))
            sides = [(found, sent, span)]
            if name == chosen:
                sent = sum(recount.bytes(placement, shape).values())
                sides.append((wanted, sent, recount.span(placement)[1]))
            for out, size, in_a_row in sides:
                out.observe("exchanged", size, method=name, **at)
                out.observe("span", in_a_row, method=name, **at)
        checks += [recount.vertex_steps(graph), *recounted(found, wanted)]
    found.data, found.checks = made.described() if made else {}, checks
    found.notes = ["'span' counts vertex-steps that recurrences run one after another"]
    return found


def _time(cell: Cell, context: RunContext) -> Measurement:
    """Epochs of the baselines and of the partition alone, in turns, at several levels."""
    family, preset = str(cell.params["dataset"]).removeprefix("synthetic-"), context.preset
    chosen = contenders(*PLACED, PLAIN)
    levels = LEVELS[family]
    jobs = []
    for ends, level in [("groups", levels[-1])] if preset == "smoke" else product(ENDS, levels):
        scale, steps = TIMED[preset]
        made = Synthetic(
            family=family, level=level, ends=ends, scale=scale, steps=steps  # type: ignore[arg-type]
        )  # fmt: skip
        task = SequenceWorkload(dataset=made.name, model=cell.params["model"])  # type: ignore[arg-type]
        part = {"ends": ends, "level": level}
        jobs.append(RaceJob(made.name, task, made.snapshots(), chosen, part))
    found = race(
        jobs, int(cell.params["ranks"]), context, least=MIN_TURNS[preset],  # type: ignore[arg-type]
        budget_s=BUDGETS_S[preset], timeout_s=cell.timeout_s, control=True,
    )  # fmt: skip
    found.data = made.described()
    return found
