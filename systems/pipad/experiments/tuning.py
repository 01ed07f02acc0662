"""The tuner against every fixed choice, on every workload of Figure 10 (section 4.4; ours)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from dgbench.lab import outcomes
from dgbench.lab.compare import observe_ratio
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import oracle_of
from dgbench.systems.base.system import Trainer
from dgbench.systems.base.turns import RaceContender, opened, turns_of
from dgbench.systems.pipad.experiments.fig10 import Fig10
from dgbench.systems.pipad.experiments.settings import BY_NAME, FORMS, MODEL_TITLES, task_of
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.pipad.tuner import OPTIONS

SIZES = (1, 2, 4, 8)
TUNED = "tuned"
PAPERS = stage(PUBLISHED)
"""The tuner chooses for steps of PiPAD as published, whose activations autograd keeps."""
SMOKE = (("hepth", "tgcn_model"), ("hepth", "evolvegcn"))
MIN_TURNS = 6
BUDGETS = 3.0
"""Budgets of a process that one process may take, since five contenders share it."""
WITHIN = 1.05
"""Largest factor by which the tuner may be slower than the best fixed choice."""
CAPACITY = 16 << 30
"""Bytes of the paper's device."""
CHOICE = observed("slowdown", per=("model", "dataset"))
"""The tuner's step time over the best fixed one."""
DECIDED = observed("frames", of="decided")
EXTRACTED = observed("memory", experiment="preparation", part=None, of="aggregation",
                     per=("snapshots_together",))  # fmt: skip


def over_best(row: Any, size: int) -> float:
    """Step time with a fixed S_per over that of the best one."""
    table = Table.of([row])
    steps = table.where("step_time").numbers("snapshots_together")
    best = table.where("partition_size", setting="best")
    return steps[size] / steps[best.one().value] if best else math.nan


def chosen_sizes(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, str]:
    """Sizes that the tuner chose, beside its mark."""
    chosen = Table.of(one.rows).where("partition_size", setting=None).values
    return {"s_per": ", ".join(sorted({f"{size:g}" for size in chosen}))} if (
        dims["of"] == "pipad") else {}  # fmt: skip


def decided(context: EvaluationContext, **where: Any) -> list[Any]:
    """Rows whose tuner decided; of PiPAD as published, else those from before it."""
    found = [one.row for one in DECIDED.where(**where).samples(context) if one.value]
    return [row for row in found if row.params.get("system") == PUBLISHED] or found


def weighs_options(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: the sizes that the tuner weighed are the claim's; 1 is our fall-back.

    Where no tuner decided, the options whose partitions were really extracted.
    """
    rows = decided(context)
    options = Table.of(rows).where("frames", of="option")
    sizes = set(options.by("snapshots_together"))
    if not rows:
        found = EXTRACTED.estimates(context)
        sizes = {dict(at)["snapshots_together"] for at in found}
        rows = list({row.id: row for one in found.values() for row in one.rows}.values())
    if not rows:
        return outcomes.RuleOutcome(lacking="neither a tuner nor an extraction of partitions ran")
    measured = sorted(sizes - {1})
    side = 1 if measured == list(context.claim.value) else -1
    return outcomes.RuleOutcome((("options", side),), tuple(rows), measured)


def fits_claim(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: the largest option that 16 GB hold for certain, at the printed number of vertices.

    What a frame keeps one snapshot at a time grows with the vertices; a partition of S takes at
    most S times that (4.4), which is the tuner's own bound. The T-GCN model has no partitions left
    to choose, so it says nothing.
    """
    rows = decided(context, size="large")
    largest: dict[str, int] = {}
    for row in rows:
        graph, table = BY_NAME[row.params["dataset"]], Table.of([row])
        kept, vertices = (table.where(name).one().value for name in ("memory", "vertices"))
        fits = [s for s in OPTIONS if s * kept * graph.printed["N"] / vertices <= CAPACITY]
        largest[f"{graph.title}, {MODEL_TITLES[row.params['model']]}"] = max(fits, default=0)
    if not rows:
        return outcomes.RuleOutcome(lacking="no large graph was trained with the tuner in this run")
    sides = tuple((name, 1 if size < max(OPTIONS) else -1) for name, size in largest.items())
    return outcomes.RuleOutcome(
        sides, tuple(rows), largest, met=set(largest.values()) == {context.claim.value},
        model="formula of a frame's memory", remarks=("scaled to the printed vertices",),
    )  # fmt: skip


class Tuning(FormExperiment):
    forms, name = FORMS, "tuning"
    group = "{model}"
    fixed = {"system": PUBLISHED}
    repeats = {"full": 5, "paper": 5, None: 1}
    timeout_s = {"full": 900, "paper": 900, None: 90}
    headline, unit = CHOICE, "x"
    figure_forms = (
        Sweep(
            "tuning", "Step time over the best fixed S_per; PiPAD tunes it",
            {
                **{
                    f"S_per {size}": of_rows(
                        partial(over_best, size=size), per=("model", "dataset")
                    ).pooled("median")
                    for size in SIZES
                },
                "pipad": CHOICE,
            },
            panel="{model}", series="of", x="{dataset}", gaps={"series": "pipad"},
            more=chosen_sizes, xlabel="step time over the best fixed choice",
            ylabel="step time over the best fixed choice", hline=WITHIN,
            hline_label="5 % behind",
        ),
    )  # fmt: skip
    claims = {"pipad-s43-sper-options": weighs_options, "pipad-s52-sper-large": fits_claim}

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        if preset == "smoke":
            return [{"dataset": dataset, "model": model} for dataset, model in SMOKE]
        return list(Fig10().points(preset, device))

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        task = task_of(cell.params, context.preset)
        fixed = {"tuner": False, **PAPERS}
        contenders = {
            **{str(size): RaceContender("pipad", fixed, {"s_per": size}) for size in SIZES},
            TUNED: RaceContender("pipad", PAPERS),
        }
        with opened(contenders, task, context) as trainers:
            kept = frame_bytes(trainers["1"])
            turns = turns_of(trainers, MIN_TURNS, context.budget_s * BUDGETS)
            tuned: Any = trainers[TUNED]
            oracle, first = oracle_of(task, context), context.round == 1
            checks = turns.audited(oracle, first=first)
            checks += oracle.settings(trainers, first=first, starts=turns.starts)
            report, notes = tuned.report(), list(tuned.notes)
            decisions = list(tuned.controller.decisions)
        found, losses = turns.seconds, {name: one[-1] for name, one in turns.losses.items()}
        base = losses["1"] or 1.0
        measured = Measurement(
            checks=checks,
            deviation={"loss": max(abs(loss - base) / abs(base) for loss in losses.values())},
            data=describe(tuned.data),
            notes=notes,
        )
        measured.observe("step_time", median(found[TUNED]), samples=found[TUNED])
        for size in SIZES:
            seconds = median(found[str(size)])
            measured.observe("step_time", seconds, snapshots_together=size)
        compare_with_best(measured, found)
        for metric, value in report.items():
            measured.observe(metric, value)
        measured.observe("memory", kept, of="frame")
        measured.observe("vertices", int(tuned.data.num_nodes))
        measured.observe("turns", len(found[TUNED]))
        measured.observe("frames", len(decisions), of="decided")
        weighed = Counter(option.s_per for one in decisions for option in one.options)
        for size, count in weighed.items():
            measured.observe("frames", count, of="option", snapshots_together=size)
        return measured


def compare_with_best(measured: Measurement, found: Mapping[str, Sequence[float]]) -> None:
    """Observe the best fixed S_per and the tuner's time over its time.

    Picked on every second turn and compared on the rest.
    """
    best = min(SIZES, key=lambda size: median(found[str(size)][::2]))
    observe_ratio(measured, "slowdown", found[TUNED][1::2], found[str(best)][1::2])
    measured.observe("partition_size", best, setting="best")


def frame_bytes(trainer: Trainer) -> int:
    """Bytes that autograd keeps of the forward pass of a frame, parameters left out."""
    own = {p.data_ptr() for p in trainer.trained().values()}  # type: ignore[attr-defined]
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trainer.gradients(0)
    return sum(kept.values())
