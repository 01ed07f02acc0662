"""Figure 6: convergence under both partitions, against training on one process (section 6.4)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.lab.charts import chart, failures, sweep
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, at_most, summarised
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.ranks import launch
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import (
    PlainTimeline,
    TimelineTask,
    TimelineTrainer,
    TimelineWorkload,
    load_timeline,
)
from dgbench.systems.esdg.experiments.recount import OVER_EDGES, agree, common, distinct, entry_keys
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES, MODELS, workload
from dgbench.systems.esdg.experiments.table2_runs import CUTS, SAMPLES, methods
from dgbench.systems.esdg.oracle import (
    AGAINST,
    EXACT,
    ResultRequest,
    TimelineOracle,
    TimelineResult,
    largest_gap,
    load_parameters,
)
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.vertex_parts import VertexParts, split_vertices

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

PARTITIONS: Final = ("snapshot", "vertex")
PLAIN: Final = "plain"
"""One process without any of the techniques."""

FLOAT64: Final = "float64"
Curves = dict[tuple[str, str, str], list[float]]
"""(metric, setting, `FLOAT64` or "") -> values by epoch."""
LR: Final = 0.05
"""Not printed; large enough that a dozen epochs lead somewhere."""

SEED: Final = 4
"""First of the seeds of first parameters."""

APART: Final = 1e-5
"""Relative gap of two losses from which on curves count as apart."""

EPOCHS: Final = {"smoke": 4, "quick": 6, "full": 100, "paper": 200}
EPOCHS64: Final = {"smoke": 3, "quick": 3, "full": 50, "paper": 100}
"""Epochs in float64 from the first seed, which only tell rounding apart."""
KEPT: Final = {"smoke": 3, "quick": 3, "full": 9, "paper": None}
RANKS: Final = {"smoke": 2, "quick": 2, "full": 4, "paper": 4}
SEEDS: Final = {"smoke": 1, "quick": 5, "full": 5, "paper": 5}
"""Seeds, from `SEED` on; each has a cell of its own."""


class Fig6(Experiment):
    paper = "esdg"
    name = "fig6"
    sources: ClassVar = {"accuracy": "learned", "loss": "learned"}
    title = "Figure 6: convergence"
    question = "Do both partitions converge as one process does?"
    reading = (
        "Link prediction on a real run of the paper's generator with 20 000 accounts, cut into 9 "
        "windows. One process without any of the techniques is the sequential run; ranks reproduce "
        "it up to the order in which floats are added, which Adam enlarges from step to step. "
        "Float64 beside it shows how much of a gap is rounding. Accuracy is on edges of the last "
        "snapshot that the loss does not score. Learning rate (0.05), number of epochs and first "
        "parameters are ours, the paper prints none; a statement has to hold from each of five "
        "seeds, and curves are drawn from the first."
    )
    claims = (
        "esdg-fig6-convergence-tmgcn",
        "esdg-fig6-convergence-cdgcn",
        "esdg-fig6-convergence-egcn",
        "esdg-s64-sequential-equivalence",
        "esdg-s64-theta",
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell_of(
                {"dataset": SAMPLES[0], "model": model, "ranks": RANKS[preset], "seed": seed},
                f"{model}/{seed}",
                timeout_s=1800 if preset in ("full", "paper") else 60,
                unavailable=devices_lacking(RANKS[preset], device),
            )
            for model in (MODELS[:1] if preset == "smoke" else MODELS)
            for seed in range(SEED, SEED + SEEDS[preset])
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        preset, ranks = context.preset, int(cell.params["ranks"])  # type: ignore[arg-type]
        task = workload(
            BY_NAME[str(cell.params["dataset"])],
            str(cell.params["model"]),
            preset,
            **{**CUTS["dense"], "snapshots": KEPT[preset], "lr": LR, "seed": cell.params["seed"]},
        )
        data = load_timeline(task)
        steps = range(len(data) - 1)
        parts = split_vertices([data.topology[t] for t in steps], ranks, methods("quick")[0])  # type: ignore[arg-type]
        oracle = TimelineOracle(task, data, device=context.device)
        epochs64 = EPOCHS64[preset] if task.seed == SEED else 0
        found = launch(
            _train,
            ranks,
            (task, data, parts, EPOCHS[preset], epochs64, oracle.request),
            timeout_s=cell.timeout_s,
            device=context.device,
            threads=1,
            seed=task.seed,
        )
        curves: Curves = {}
        for rank in found:
            curves |= rank.curves
        counted = _drawn(task, data)
        checks = _compared(oracle, found[0], curves)
        gap = largest_gap([check for check in checks if check.tolerance > EXACT], "gradients")
        counted.checks = [
            *checks,
            *_sample_checks(task, data, counted),
            *_accuracy_checks(oracle, task, data, found[0].states, curves),
        ]
        for (metric, setting, mark), values in curves.items():
            where = {"setting": setting} | ({"dtype": mark} if mark else {})
            for epoch, value in enumerate(values):
                counted.observe(metric, value, epoch=epoch, **where)
        counted.observe("epochs", EPOCHS[preset])
        counted.deviation = {"gradient": gap}
        counted.data = describe(data)
        counted.notes = [f"vertices parted by {parts.method}", f"{ranks} processes of one machine"]
        return counted

    def figures(self) -> list[FigureSpec]:
        options = {"xlabel": "epoch", "xlog": False}
        alike = {"together": True, "start": "same seed and first parameters"}
        return [
            chart("curves", "fig6", "Loss by epoch and by time",
                lambda rows: curve_points(rows, "loss"), **alike, ylabel="loss", goal="down"),
            sweep("fig6_gap", "Gap between the loss of a partition and that of one process",
                gap_points, **options, ylabel="relative gap", hline=APART,
                hline_label="counts as apart"),
            chart("curves", "fig6_accuracy", "Test accuracy by epoch and by time",
                lambda rows: curve_points(rows, "accuracy"), **alike, ylabel="accuracy"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = trained(rows)
        if not found:
            return ""
        parts = []
        for model in dict.fromkeys(row.params["model"] for row in found):
            mine = [(row, p) for row in found if row.params["model"] == model for p in PARTITIONS]
            gap = max(gaps(row, p, PLAIN)[-1] for row, p in mine)
            at = min((e for row, p in mine if (e := apart(row, p)) is not None), default=None)
            words = f"within {APART:g} throughout" if at is None else f"apart from epoch {at} on"
            parts.append(f"{MODEL_TITLES[model]} {words}, {gap:.1e} at the end")
        return "Losses of both partitions against one process, relative: " + "; ".join(parts) + "."


@dataclass(slots=True)
class _VolumeRankOutput:
    """Output of one rank, by partition (`snapshot64` in float64).

    Attributes:
        curves: of what it trained.
        before, after: results of untrained and of trained models.
        states: parameters in the end.
    """

    curves: Curves
    before: dict[str, TimelineResult]
    after: dict[str, TimelineResult]
    states: dict[str, dict[str, Tensor]]


def _train(
    comm: Communicator,
    task: TimelineWorkload,
    data: SnapshotSequence,
    parts: VertexParts,
    epochs: int,
    epochs64: int,
    request: ResultRequest,
) -> _VolumeRankOutput:
    """Be one rank: first of both partitions, then with a sequential run of its own."""
    found = _VolumeRankOutput({}, {}, {}, {})
    precisions = {"": torch.float32} | ({"64": torch.float64} if epochs64 else {})
    for mark, dtype in precisions.items():
        for name in PARTITIONS:
            trainer = SnapshotRankTrainer(
                comm,
                task,
                data,
                partition=name,  # type: ignore[arg-type]
                parts=parts if name == "vertex" else None,
                dtype=dtype,
            )
            before = TimelineResult.of(trainer, request)
            curves = _curves(trainer, trainer if not mark else None, epochs64 if mark else epochs)
            after = TimelineResult.of(trainer, request)
            if comm.rank == 0:
                found.before[name + mark], found.after[name + mark] = before, after
                found.states[name + mark] = trainer.state()
                dtype_name = FLOAT64 if mark else ""
                found.curves |= {(what, name, dtype_name): c for what, c in curves.items()}
    jobs = [(PLAIN, dtype) for dtype in precisions.values()]
    for name, dtype in jobs[comm.rank :: comm.size]:
        dtype_name = "" if dtype == torch.float32 else FLOAT64
        plain = PlainTimeline(task, data, dtype=dtype)
        judge = None if dtype_name else SnapshotRankTrainer(LocalCommunicator(), task, data)
        curves = _curves(plain, judge, epochs64 if dtype_name else epochs)
        found.curves |= {(what, name, dtype_name): c for what, c in curves.items()}
    return found


def _curves(
    trainer: TimelineTrainer, judge: SnapshotRankTrainer | None, epochs: int
) -> dict[str, list[float]]:
    """Loss before each step, its time and, where a judge is given, test accuracy after it.

    The judge scores what the trainer has learnt, so that all are tested on the same pairs.
    """
    found: dict[str, list[float]] = {"loss": [], "epoch_time": []}
    for _ in range(epochs):
        begin = time.perf_counter()
        found["loss"].append(trainer.train_epoch())
        found["epoch_time"].append(time.perf_counter() - begin)
        if judge is not None:
            if judge is not trainer:
                judge.model.load_state_dict(trainer.model.state_dict())
            found.setdefault("accuracy", []).append(judge.accuracy())
    return found


def _compared(
    oracle: TimelineOracle, found: _VolumeRankOutput, curves: Curves
) -> list[ResultCheck]:
    """Results and first losses of both partitions, in both precisions; float64 leaves no room."""
    checks = []
    for mark, exact in (("", False), ("64", True)):
        names = [name + mark for name in PARTITIONS if name + mark in found.before]
        if not names:
            continue
        for when, results in (("before training", found.before), ("after training", found.after)):
            checks += oracle.checks({name: results[name] for name in names}, when, exact=exact)
        checks += oracle.liveness({name: found.after[name] for name in names})
        trained = PARTITIONS if exact else (*PARTITIONS, PLAIN)
        dtype = FLOAT64 if exact else ""
        losses = {f"{name}{mark}": curves["loss", name, dtype] for name in trained}
        checks += oracle.loss_checks(losses, exact=exact)
    return [
        *summarised([check for check in checks if check.tolerance != EXACT]),
        *summarised([check for check in checks if check.tolerance == EXACT]),
    ]


def _sample_checks(
    task: TimelineWorkload, data: SnapshotSequence, own: Measurement
) -> list[ResultCheck]:
    """Positives are so many distinct edges of the next snapshot, and negatives as many."""
    todo = TimelineTask(data, task)
    total = dict.fromkeys(DRAWN, 0)
    strangers = pairs_seen = 0
    for t in range(todo.steps):
        keys = entry_keys(data.topology[t + 1])
        source, target = (x.numpy() for x in todo.pairs(t)[0][:, todo.pairs(t)[1] == 1])
        drawn = distinct(target * data.num_nodes + source)
        strangers += len(source) - common(drawn, keys)
        pairs_seen += len(source)
        share = math.ceil(task.theta * len(keys))
        for name, count in zip(DRAWN, (len(keys), share, share, len(keys) > 0), strict=True):
            total[name] += count
    return [
        agree(own, _observed(total), against=OVER_EDGES),
        at_most(
            "samples", strangers / max(1, pairs_seen), 0.0, against="edges", compared=pairs_seen
        ),
    ]


def _accuracy_checks(
    oracle: TimelineOracle,
    task: TimelineWorkload,
    data: SnapshotSequence,
    states: dict[str, dict[str, Tensor]],
    curves: Curves,
) -> list[ResultCheck]:
    """The last accuracies, from float64 outputs, on edges that the loss has not seen."""
    judge = SnapshotRankTrainer(LocalCommunicator(), task, data)
    step, (pairs,), label = judge.test_pairs
    known = judge.task.pairs(step)[0][:, judge.task.pairs(step)[1] == 1]
    keys = [(p[1] * data.num_nodes + p[0]).numpy() for p in (pairs[:, label == 1], known)]
    edges = entry_keys(data.topology[step + 1])
    # New edges, each once, and none of the known ones.
    bad = len(keys[0]) - common(distinct(keys[0]), edges) + common(*map(distinct, keys))
    found = [at_most("samples", bad / max(1, len(keys[0])), 0.0, against="edges",
                     compared=len(keys[0]), part="test pairs")]  # fmt: skip
    for name in PARTITIONS:
        plain = PlainTimeline(task, data, dtype=torch.float64)
        load_parameters(plain, states[name])
        scores = plain.model.head(plain.outputs()[step], pairs)
        right = int((scores.argmax(-1) == label).sum()) / len(label)
        gap = abs(curves["accuracy", name, ""][-1] - right)
        # A few pairs may lie where both classes are equally likely.
        found.append(at_most("accuracies", gap, 1e-3, against=AGAINST, compared=1, part=name))
    return summarised(found)


DRAWN: Final = ("edges", "positives", "negatives", "rounded_up")
"""Counted quantities of the pairs that a loss scores."""


def _drawn(task: TimelineWorkload, data: SnapshotSequence) -> Measurement:
    """Numbers of edges at the target snapshots, and of scored pairs."""
    todo = TimelineTask(data, task)
    total = dict.fromkeys(DRAWN, 0)
    for t in range(todo.steps):
        label, edges = todo.pairs(t)[1], data.topology[t + 1].nnz
        total["edges"] += edges
        total["positives"] += int((label == 1).sum())
        total["negatives"] += int((label == 0).sum())
        total["rounded_up"] += edges > 0  # a share of a step's edges is a whole number of them
    return _observed(total)


def _observed(drawn: dict[str, int]) -> Measurement:
    found = Measurement()
    found.observe("edges", drawn["edges"])
    for of in DRAWN[1:]:
        found.observe("pairs", drawn[of], of=of)
    return found


# What rows say.


def trained(rows: Sequence[Any], **params: Any) -> list[Any]:
    """Rows of this experiment."""
    return rows_of(rows, experiment="fig6", **params)


def first_seeds(rows: Sequence[Any]) -> list[Any]:
    """The row of the first seed of each model, whose curves are drawn."""
    found: dict[str, Any] = {}
    for row in sorted(trained(rows), key=lambda row: row.params.get("seed", SEED)):
        found.setdefault(row.params["model"], row)
    return list(found.values())


def curve(row: Any, metric: str, setting: str, dtype: str | None = None) -> list[float]:
    """Loss, accuracy or seconds by epoch; [] where there is none."""
    found = Table.of([row]).where(metric, setting=setting, dtype=dtype).numbers("epoch")
    return [found[epoch] for epoch in sorted(found)]


def gaps(row: Any, one: str, other: str, dtype: str | None = None) -> list[float]:
    """Relative gaps of two losses by epoch."""
    pairs = zip(*(curve(row, "loss", name, dtype) for name in (one, other)), strict=True)
    return [abs(a - b) / max(abs(b), 1e-30) for a, b in pairs]


def apart(row: Any, partition: str) -> int | None:
    """First epoch, counted from 1, whose loss is more than `APART` off the sequential run's."""
    found = (i + 1 for i, gap in enumerate(gaps(row, partition, PLAIN)) if gap > APART)
    return next(found, None)


def fluctuation(row: Any) -> tuple[float, float]:
    """Of sequential runs: share of epochs whose loss rises, and mean change of accuracy."""
    alone = Table.of([row]).where(setting=lambda name: name not in (*PARTITIONS, None), dtype=None)
    rises, jumps = [], []
    for of_run in alone.by("setting").values():
        losses, right = (of_run.where(metric).values for metric in ("loss", "accuracy"))
        rises += [b > a for a, b in pairwise(losses)]
        jumps += [abs(b - a) for a, b in pairwise(right)]
    return fmean(rises), fmean(jumps)


SERIES: Final = {
    PLAIN: "one process",
    "snapshot": "snapshot partition",
    "vertex": "vertex partition",
}


def curve_points(rows: Sequence[Any], what: str) -> list[dict[str, Any]]:
    """Points of `curves`: a line per way to train, a panel per model, one process the reference.
    Rows of older runs kept no seconds."""
    points: list[dict[str, Any]] = []
    for row in first_seeds(rows):
        for name, title in SERIES.items():
            spent = list(accumulate(curve(row, "epoch_time", name)))
            points += [
                {
                    "panel": MODEL_TITLES[row.params["model"]],
                    "series": title if name == PLAIN else f"esdg, {title}",
                    "x": epoch + 1,
                    "y": y,
                    "row_ids": [row.id],
                }
                | ({"reference": True} if name == PLAIN else {})
                | ({"seconds": spent[epoch]} if spent else {})
                for epoch, y in enumerate(curve(row, what, name))
            ]
    return points + [
        {"panel": MODEL_TITLES[row.params["model"]], "series": f"esdg, {SERIES['snapshot']}",
         "failed": f"{row.status}: {row.reason}", "row_ids": [row.id]}
        for row in failures(rows, "fig6")
    ]  # fmt: skip


def gap_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Relative gaps by epoch in both precisions; equal losses stand at the unit of rounding."""
    points = []
    for row in first_seeds(rows):
        for dtype, unit, words in ((None, 2.0**-24, "float32"), (FLOAT64, 2.0**-53, FLOAT64)):
            for name in PARTITIONS:
                points += [
                    {
                        "panel": MODEL_TITLES[row.params["model"]],
                        "series": f"{SERIES[name]}, {words}",
                        "x": epoch + 1,
                        "y": max(gap, unit),
                        "row_ids": [row.id],
                    }
                    for epoch, gap in enumerate(gaps(row, name, PLAIN, dtype))
                ]
    return points
