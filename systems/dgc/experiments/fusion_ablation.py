"""Gain of each half of chunk fusion, and a check that neither changes results (section 5.1)."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

import torch

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.compare import ROUND_INTERVAL
from dgbench.lab.estimates import gaps_of_failures
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.kept import KeptLosses
from dgbench.systems.base.race import audited, relative
from dgbench.systems.base.sequences import load_sequences, sequence_model
from dgbench.systems.base.turns import turn_rounds, turns_of
from dgbench.systems.dgc.boundary_loads import FUSED, UNFUSED, count_boundary, recounted_loads
from dgbench.systems.dgc.chunk_memory import kept_by_chunks
from dgbench.systems.dgc.experiments.common import observe_gains, trainer_on_one
from dgbench.systems.dgc.experiments.settings import BY_NAME, FORMS, MODELS, workload
from dgbench.systems.dgc.loading import OFF, ON, SETTINGS, SPATIAL, TEMPORAL, dealt_out
from dgbench.systems.dgc.plan import plan_worker
from dgbench.systems.dgc.recount import EdgeRecount, recounted
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.dgc.time_encoders import CONTENDERS, PADDED, time_encoders

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.sequences import SequenceWorkload
    from dgbench.systems.dgc.dealing import WorkAssignment

WORKERS: Final = {"smoke": 2, "quick": 2, "full": 4, "paper": 8}
SMALL: Final = ("email-eu-core", "wikipedia", "sx-mathoverflow")
GRAPHS: Final = {
    "smoke": SMALL[:1], "quick": SMALL[:1], "full": SMALL,
    "paper": (*SMALL, "amazon", "epinions", "movie", "stack"),
}  # fmt: skip
FIRST: Final = {"smoke": 6, "quick": 8, "full": None, "paper": None}
"""Snapshots from the first on, of which the last is the target; a small graph's end is sparse."""
TURNS: Final = {"smoke": 3, "quick": 3, "full": 12, "paper": 20}
SECONDS: Final = {"smoke": 0.0, "quick": 0.0, "full": 5.0, "paper": 20.0}
EPOCHS: Final = {"smoke": 3, "quick": 3, "full": 5, "paper": 5}
"""In which the memory of every chunk is measured."""
MAIN: Final = "mpnn_lstm_bare"
ONE_MODEL: Final = ("smoke", "quick")
"""Where only epochs of MAIN are timed; the other models are compared alone."""

NEAR: Final = 0.05
"""Change of a chunk's memory up to which it is nearly the same."""
EQUAL: Final = 1e-6
"""Relative deviation up to which float32 results count as equal."""


def with_boundary(entries: list[Entry], _: Any) -> list[Entry]:
    """Entries of graphs where a chunk hears another chunk of its worker."""
    return [one for one in entries if number(one.row, "boundary_rows", 0)]


GAIN = observed(
    "speedup", per=("dataset", "model", "setting"), setting=(SPATIAL, TEMPORAL, ON), baseline=OFF
).keep(gaps_of_failures)
"""An epoch without fusion over one with it."""
ENCODER = observed("operation_time", per="dataset", format=tuple(CONTENDERS), model=MAIN)


def loads(**of: str) -> MeasuredQuantity:
    """Loads of rows that another chunk of their worker hears."""
    return observed("rows_loaded", per=("dataset", "model"), **of).keep(with_boundary)


def changed(of: str) -> MeasuredQuantity:
    """Largest change of any chunk's memory."""
    return observed("deviation", per=("dataset", "model"), of=of)


LATER = changed("memory_later").joined_over(max, "dataset", "model")
BOUNDARY = observed("boundary_rows", per=("dataset", "model"))
UNFUSED_LOADS = loads(of="boundary", format=UNFUSED) / BOUNDARY
FUSED_LOADS = loads(of="boundary", format=FUSED) / BOUNDARY
AT_LEAST_TWICE = combine.both(
    rules.all_equal(loads(of="least"), 2), rules.all_equal(FUSED_LOADS, 1)
)
"""One of the other chunks is enough for that; several load a row more often."""


class FusionAblation(FormExperiment):
    forms, name = FORMS, "fusion_ablation"
    group = "{dataset}/{model}"
    timeout_s = {"full": 900, "paper": 3600, None: 60}
    headline, unit = GAIN, "x"
    figure_forms = (
        Sweep(
            "fusion_ablation", "An epoch without fusion over an epoch with it", GAIN,
            panel="{dataset}", series="{model}", x="setting", gaps={"x": ON},
            xlabel="what is fused", ylabel=f"times as fast ({ROUND_INTERVAL})", hline=1.0,
            hline_label=OFF,
        ),
        Sweep(
            "fusion_encoders", "Forward and backward pass of MPNN-LSTM's time encoder",
            ENCODER.pooled("seeds"), series="{dataset}", x="format", scale=1e3,
            gaps={"x": PADDED}, xlabel="rows of sequences", ylabel="ms",
        ),
    )  # fmt: skip
    claims = {
        "dgc-s511-memory-stable": combine.shown_beside(
            rules.at_most(changed("memory"), NEAR),
            {"from the second epoch on": 100 * LATER}, "%",
        ),
        "dgc-s511-redundant-load": combine.shown_beside(
            combine.or_direction(
                combine.both(AT_LEAST_TWICE, rules.all_equal(loads(of="most"), 2)), AT_LEAST_TWICE
            ),
            {"mean loads unfused": UNFUSED_LOADS.mean_over("dataset", "model")}, "",
        ),
        "dgc-s512-mask-correct": rules.at_most(
            observed("deviation", per="model", setting=TEMPORAL, of=("forward", "backward"))
            .pooled("max").joined_over(max, "of"),
            EQUAL, required={"model": MODELS},
        ),
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                {"dataset": name, "model": model}, preset,
                # Its claims are on counts and memory; in quick one process shows the times.
                repeats=turn_rounds(preset) if model == MAIN and preset != "quick" else 1,
                interleaved=True, unavailable=devices_lacking(1, device),
            )
            for name in GRAPHS[preset]
            for model in (MODELS if preset != "smoke" else (MAIN,))
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        preset, model = context.preset, str(cell.params["model"])
        task = workload(BY_NAME[str(cell.params["dataset"])], model, preset, snapshots=None)
        data = load_sequences(task)
        kept = FIRST[preset]
        if kept is not None and kept < len(data):
            data = data.slice(0, kept)
        with one_thread():
            dealt = dealt_out(task, data, WORKERS[preset], context.device)
            found = _epochs(task, data, dealt, context)
            if context.round == 1:  # counts and comparisons are the same in every process
                loads, fused = count_boundary(task, data, dealt)
                found.observations += loads.observations
                wanted = recounted_loads(EdgeRecount(data), dealt, fused)
                found.checks += recounted(loads, wanted)
                _memory(task, data, dealt, context, found)
            if model == MAIN:
                _encoders(task, data, dealt, context, found)
        found.notes, found.checks = list(dealt.notes), summarised(found.checks)
        return found


def _epochs(
    task: SequenceWorkload, data: SnapshotSequence, dealt: WorkAssignment, context: RunContext
) -> Measurement:
    """Epochs of all four settings in turns, compared with the oracle or with the first process."""
    trainers = {name: trainer_on_one(task, data, dealt, name, context.device) for name in SETTINGS}
    found = Measurement(data=describe(data))
    kept = KeptLosses(task, data, context.device)
    compare = context.round == 1 or kept.known is None
    if compare:
        oracle = SequenceOracle(task, data, context.device)
        outputs = {name: trainer.evaluate(0) for name, trainer in trainers.items()}
        slopes = {name: trainer.gradients(0) for name, trainer in trainers.items()}
        worst = max(oracle.gap(outputs[name], slopes[name]) for name in trainers)
        found.deviation = {"output": worst}
        grads = {name: torch.cat([g.flatten() for g in of.values()]) for name, of in slopes.items()}
        for name in (SPATIAL, TEMPORAL, ON):
            for of, made in (("forward", outputs), ("backward", grads)):
                found.observe("deviation", relative(made[name], made[OFF]), of=of, setting=name)
    preset, timed = context.preset, context.preset not in ONE_MODEL or task.model == MAIN
    audits: list[ResultCheck] = []
    losses: dict[str, list[float]] = {}
    if timed:
        taken = turns_of(trainers, TURNS[preset], SECONDS[preset])
        losses = taken.losses
        observe_gains(found, taken.seconds, OFF)
        audits = audited(taken, task, context, data)
    if compare:
        edges, checks = EdgeRecount(data), oracle.check_used(trainers, timed=timed)
        kept.keep(losses, checks)
        found.checks = [*checks, edges.vertex_steps(dealt.graph), edges.partition(dealt.placement)]
    else:
        found.checks = kept.checks(losses)
    found.checks += audits
    return found


def _memory(
    task: SequenceWorkload,
    data: SnapshotSequence,
    dealt: WorkAssignment,
    context: RunContext,
    found: Measurement,
) -> None:
    """Change of every chunk's bytes over some epochs, from the first and from the second on."""
    plan = plan_worker(
        data, dealt.graph, dealt.placement, 0, attention=True, norm=task.norm, entries=dealt.entries
    ).structure
    if not plan.groups:
        return
    model = sequence_model(task).to(context.device)
    kept = kept_by_chunks(model, plan, context.device, EPOCHS[context.preset])
    for of, begin in (("memory", 0), ("memory_later", 1)):
        change = (kept[begin:] - kept[begin]).abs() / kept[begin].clamp(min=1)
        found.observe("deviation", float(change.max()), of=of)


def _encoders(
    task: SequenceWorkload,
    data: SnapshotSequence,
    dealt: WorkAssignment,
    context: RunContext,
    found: Measurement,
) -> None:
    """Forms of the time encoder alone, in turns."""
    preset = context.preset
    timed = time_encoders(
        task, data, dealt, context.device, TURNS[preset], SECONDS[preset] / 2,
        compare=context.round == 1,
    )  # fmt: skip
    for name, form in timed.items():
        found.observe("operation_time", median(form.seconds), format=name)
        found.checks += form.checks
