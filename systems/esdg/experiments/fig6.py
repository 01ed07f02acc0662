"""Figure 6: convergence under both partitions, against training on one process (section 6.4)."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed, of_rows
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, at_most, equal, summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, Table
from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.ranks import launch
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import (
    PlainTimeline,
    TimelineTask,
    TimelineTrainer,
    TimelineWorkload,
    load_timeline,
)
from dgbench.systems.esdg.experiments.recount import common, distinct, entry_keys
from dgbench.systems.esdg.experiments.settings import BY_NAME, FORMS, MODELS, workload
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
"""(metric, setting, "64" or "") -> values by epoch."""
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


LOSS = observed("loss", per=("model", "setting", "epoch"))
COINCIDE: Final = 1e-3
"""Relative gap of two losses that no plot shows."""
MILD: Final = 0.02
"""Largest relative gap of curves that `differ only slightly`."""
SAME_POINTS: Final = 0.005
"""Gap of accuracies that no plot shows: half a point."""
NOISY: Final = 0.1
"""Share of epochs whose loss rises from which on a run counts as fluctuating."""


def curve(row: Any, metric: str, setting: str, dtype: str | None = None) -> list[float]:
    """Loss, accuracy or seconds by epoch; [] where there is none."""
    values = Table.of([row]).where(metric, setting=setting, dtype=dtype).numbers("epoch")
    return [values[epoch] for epoch in sorted(values)]


def gaps(row: Any, one: str, other: str, dtype: str | None = None) -> list[float]:
    """Relative gaps of two losses by epoch."""
    pairs = zip(*(curve(row, "loss", name, dtype) for name in (one, other)), strict=True)
    return [abs(a - b) / max(abs(b), 1e-30) for a, b in pairs]


def accuracy_gap(row: Any) -> float:
    """Largest gap between the accuracies of both partitions."""
    pairs = zip(*(curve(row, "accuracy", name) for name in PARTITIONS), strict=True)
    return max(abs(a - b) for a, b in pairs)


def of_seeds(value: Callable[[Any], float], **where: Any) -> MeasuredQuantity:
    """A number of each seed of a model."""
    return of_rows(value, per=("model", "seed"), **where)


def to_one_process(row: Any, epoch: int) -> float:
    """Relative gap of the losses of an epoch to those of one process, of either partition."""
    return max(gaps(row, name, PLAIN)[epoch] for name in PARTITIONS)


def rounding(row: Any) -> float:
    """The largest such gap of all epochs in float64; NaN where there are none."""
    every = (gap for name in PARTITIONS for gap in gaps(row, name, PLAIN, FLOAT64))
    return max(every, default=math.nan)


BETWEEN = of_seeds(lambda row: max(gaps(row, *PARTITIONS)))
"""Largest relative gap between the losses of both partitions; also of either half of the epochs."""
FIRST_HALF, SECOND_HALF = (
    of_seeds(lambda row, half=half: max(half(gaps(row, *PARTITIONS))), model="cd_gcn")
    for half in (lambda of: of[: len(of) // 2], lambda of: of[len(of) // 2 :])
)
VISIBLE = of_seeds(
    lambda row: max(max(gaps(row, *PARTITIONS)) / COINCIDE, accuracy_gap(row) / SAME_POINTS)
)
"""Gap of losses or of accuracies over the largest that no plot shows."""
RISES = of_seeds(lambda row: fmean(b > a for a, b in pairwise(curve(row, "loss", PLAIN))))
"""Share of the epochs of one process whose loss rises."""
EDGES = observed("edges").pooled("sum")
PAIRS = observed("pairs", per="of").pooled("sum")


def theta_and_negatives(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Drawn positives over the edges that they are drawn from, and as many negatives."""
    outcome = rules.near_claim(PAIRS.where(of="positives").over(EDGES))(context)
    if outcome.lacking or outcome.target is None:
        return outcome
    pairs = {of: one.value for ((_, of),), one in PAIRS.estimates(context).items()}
    (edges,) = EDGES.estimates(context).values()
    # A step draws a whole number of edges, so each may add one.
    spare = pairs["positives"] - outcome.target * edges.value
    right = pairs["negatives"] == pairs["positives"] and 0 <= spare <= pairs["rounded_up"]
    return replace(outcome, sides=(("pairs", 1 if right else -1),))


def first_seed(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries of the first seed of each model, whose curves are drawn."""
    seeds: dict[str, int] = {}
    for one in sorted(entries, key=lambda one: one["seed"]):
        seeds.setdefault(one["model"], one["seed"])
    return [one for one in entries if one["seed"] == seeds[one["model"]]]


def relative_gap(dtype: str | None, unit: float) -> MeasuredQuantity:
    """Relative gap of losses to those of one process; equal ones stand at the unit of rounding."""
    loss = LOSS if dtype is None else LOSS.where(dtype=dtype)
    plain = loss.where(setting=PLAIN)
    gap = (loss.where(setting=PARTITIONS) - plain) / plain
    return gap.map(lambda value: max(abs(value), unit)).keep(first_seed)


def epoch_of(context: Any, dims: Mapping[str, Any], _: Estimate) -> dict[str, Any]:
    """Epochs trained."""
    return {"x": dims["epoch"] + 1}


def time_of(context: Any, dims: Mapping[str, Any], one: Estimate) -> dict[str, Any]:
    """Epochs and seconds trained; one process is the reference."""
    epochs, setting = dims["epoch"] + 1, dims["setting"]
    spent = curve(one.rows[0], "epoch_time", setting)[:epochs]
    timed = {"seconds": sum(spent)} if spent else {}
    alone = {"series": "one process", "reference": True} if setting == PLAIN else {}
    return {"x": epochs, **timed, **alone}


def curves_of(name: str, title: str, metric: str, **options: Any) -> FigureForm:
    """A line for each way to train, a panel for each model."""
    values = observed(metric, per=("model", "epoch"), setting=(PLAIN, *PARTITIONS))
    return FigureForm(
        "curves", name, title, values.keep(first_seed),
        {"panel": "{model}", "series": "esdg, {setting}", "x": "epoch"}, more=time_of,
        gaps={"series": "esdg, snapshot partition", "x": None},
        options={"together": True, "start": "same seed and first parameters", **options},
    )  # fmt: skip


class Fig6(FormExperiment):
    forms, name = FORMS, "fig6"
    sources: ClassVar = {"accuracy": "learned", "loss": "learned"}
    axes = {
        "dataset": SAMPLES[:1],
        "model": {"smoke": MODELS[:1], None: MODELS},
        "ranks": {"smoke": (2,), "quick": (2,), None: (4,)},
        "seed": {"smoke": (SEED,), None: range(SEED, SEED + 5)},
    }
    group = "{model}/{seed}"
    timeout_s = {"full": 1800, "paper": 1800, None: 60}
    headline = of_rows(lambda row: to_one_process(row, -1), per="model").pooled("max")
    figure_forms = (
        curves_of("fig6", "Loss by epoch and by time", "loss", ylabel="loss", goal="down"),
        Sweep(
            "fig6_gap", "Gap between the loss of a partition and that of one process",
            {
                "float32": relative_gap(None, 2.0**-24),
                FLOAT64: relative_gap(FLOAT64, 2.0**-53),
            },
            panel="{model}", series="{setting}, {of}", x="epoch", more=epoch_of, gaps={"x": 1},
            xlabel="epoch", xlog=False, ylabel="relative gap", hline=APART,
            hline_label="counts as apart",
        ),
        curves_of("fig6_accuracy", "Test accuracy by epoch and by time", "accuracy",
                  ylabel="accuracy"),
    )  # fmt: skip
    claims = {
        "esdg-fig6-convergence-tmgcn": combine.both(
            rules.at_most(BETWEEN.where(model="tm_gcn"), COINCIDE, unit="of the loss"),
            rules.at_most(of_seeds(accuracy_gap, model="tm_gcn"), SAME_POINTS, unit="of accuracy"),
        ),
        "esdg-fig6-convergence-cdgcn": combine.both(
            rules.at_most(FIRST_HALF, COINCIDE, unit="of the loss in the first half"),
            rules.all_within(SECOND_HALF, COINCIDE, MILD, unit="in the second"),
        ),
        "esdg-fig6-convergence-egcn": combine.both(
            rules.all_above(VISIBLE.where(model="evolvegcn_o"), 1.0, unit="of what a plot shows"),
            rules.all_above(RISES.where(model="evolvegcn_o"), NOISY, unit="of epochs rise alone"),
        ),
        "esdg-s64-sequential-equivalence": combine.both(
            rules.at_most(of_seeds(rounding), APART, unit="in float64"),
            rules.at_most(
                of_seeds(lambda row: to_one_process(row, 0)),
                APART,
                unit="at first in float32",
                required={"model": MODELS},
            ),
        ),
        "esdg-s64-theta": theta_and_negatives,
    }

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(point, preset, unavailable=devices_lacking(point["ranks"], device))
            for point in self.points(preset, device)
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
            *counted.checks,
            *_accuracy_checks(oracle, task, data, found[0].states, curves),
        ]
        for (metric, setting, mark), values in curves.items():
            where = {"setting": setting} | ({"dtype": FLOAT64} if mark else {})
            for epoch, value in enumerate(values):
                counted.observe(metric, value, epoch=epoch, **where)
        counted.deviation = {"gradient": gap}
        counted.data = describe(data)
        counted.notes = [f"vertices parted by {parts.method}", f"{ranks} processes of one machine"]
        return counted


@dataclass(slots=True)
class _VolumeRankOutput:
    """Curves that one rank trained, results of untrained and of trained models, and their
    parameters in the end, by partition (`snapshot64` in float64)."""

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
                found.curves |= {(what, name, mark): values for what, values in curves.items()}
    for mark, dtype in list(precisions.items())[comm.rank :: comm.size]:
        plain = PlainTimeline(task, data, dtype=dtype)
        judge = None if mark else SnapshotRankTrainer(LocalCommunicator(), task, data)
        curves = _curves(plain, judge, epochs64 if mark else epochs)
        found.curves |= {(what, PLAIN, mark): values for what, values in curves.items()}
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
    checks: list[ResultCheck] = []
    for mark, exact in (("", False), ("64", True)):
        names = [name + mark for name in PARTITIONS if name + mark in found.before]
        if not names:
            continue
        mine: list[ResultCheck] = []
        for when, results in (("before training", found.before), ("after training", found.after)):
            mine += oracle.checks({name: results[name] for name in names}, when, exact=exact)
        mine += oracle.liveness({name: found.after[name] for name in names})
        trained = PARTITIONS if exact else (*PARTITIONS, PLAIN)
        losses = {f"{name}{mark}": curves["loss", name, mark] for name in trained}
        checks += summarised([*mine, *oracle.loss_checks(losses, exact=exact)])
    return checks


def _drawn(task: TimelineWorkload, data: SnapshotSequence) -> Measurement:
    """Numbers of edges at the target snapshots, and of scored pairs: positives are so many distinct
    edges of the next snapshot, and negatives as many."""
    todo, counts, wanted = TimelineTask(data, task), Counter[str](), Counter[str]()
    strangers = 0
    for t in range(todo.steps):
        (pairs, label), keys = todo.pairs(t), entry_keys(data.topology[t + 1])
        source, target = pairs[:, label == 1].numpy()
        drawn = distinct(target * data.num_nodes + source)
        strangers += len(source) - common(drawn, keys)
        counts.update(positives=len(source), negatives=int((label == 0).sum()))
        counts["edges"] += len(keys)
        counts["rounded_up"] += len(keys) > 0  # a share of a step's edges is a whole number of them
        share = math.ceil(task.theta * len(keys))
        wanted.update(positives=share, negatives=share)
    found = Measurement()
    found.observe("edges", counts["edges"])
    for of in ("positives", "negatives", "rounded_up"):
        found.observe("pairs", counts[of], of=of)
    pairs_seen = counts["positives"]
    apart = strangers / max(1, pairs_seen)
    found.checks = [
        equal("counters", {of: counts[of] for of in wanted}, wanted, against="shares of edges"),
        at_most("samples", apart, 0.0, against="edges", compared=pairs_seen),
    ]
    return found


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
