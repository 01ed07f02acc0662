"""Figure 4: Base against the graph difference, by model, graph and number of ranks (6.2).

Most claims are about the time of a transfer. Without a CUDA device that is projected: bytes are
counted exactly, and a link is busy for as long as it has bytes to carry. What a CPU measures
decides nothing: it copies at the speed of memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from statistics import median
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import AGAIN, TURN_INTERVAL, observe_speedup, take_control, with_control
from dgbench.lab.estimates import Estimate, EvaluationContext, on_gpu, prefer, real_data
from dgbench.lab.figure_forms import FigureForm, SpeedupBars, StackedTime, Sweep
from dgbench.lab.main_race import MainRace, RaceComparison, observed_ratio
from dgbench.lab.printed import ledger
from dgbench.lab.quantities import MeasuredQuantity, observed, of_rows
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, number, rows_of
from dgbench.runtime.threads import one_thread
from dgbench.runtime.topology.named import PCIE3
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.esdg.experiments import settings
from dgbench.systems.esdg.experiments.common import Changes, Occurrences
from dgbench.systems.esdg.experiments.recount import RawEdges, agree, changes_check, epoch_traffic
from dgbench.systems.esdg.experiments.trainer_race import TrainerRace
from dgbench.systems.esdg.partition import block_ranges, consecutive

BASE, GD = "Base", "GD"
BLOCKS = (1, 4)
"""Blocks of the timeline that bytes are counted for."""
TIMED_BLOCKS = 2
PASSES = 2
"""An epoch runs every block forward, and again to record it."""
FLOATS = 2
"""Floats per vertex that travel beside each matrix."""
COUNTED_GRAPHS = {
    "smoke": ("flickr", "amlsim-20k-fanin200cycle200"),
    "quick": (
        *(graph.name for graph in settings.GRAPHS),
        "amlsim-20k-fanin200cycle200",
        "sx-mathoverflow",
    ),
}
TIMED_GRAPHS = {"smoke": ("flickr",), "quick": ("amlsim-20k-fanin200cycle200",)}
TIMED_SNAPSHOTS = {"smoke": 9, "quick": 9}
TURNS = {"smoke": 3, "quick": 3, "full": 6, "paper": 6}
"""Turns of a process at least; a timed cell has several processes."""
BUDGETS = {"smoke": 0.5, "quick": 0.2, "full": 2.0, "paper": 6.0}

RAW, SMOOTHED = ("cd_gcn",), ("tm_gcn", "evolvegcn_o")
"""Models of raw and of smoothed snapshots."""
SETTINGS = ledger(settings.LEDGER)["s61-settings"]
SIGNIFICANT = 0.1
"""Share of an epoch from which a transfer counts as significant; the paper gives no number."""
LINK = "model of a link"
"""Bytes that are counted take their time over a link, and nothing else does."""

WORKLOAD = ("dataset", "model")
COUNTED = {"part": "bytes", "per": WORKLOAD}
TIMED = {"part": "timed", "per": WORKLOAD}
REAL_FIRST = prefer(real_data)
MATRICES = observed("topology_sent", **COUNTED)
BUSIEST = observed("host_to_device", **COUNTED, of="busiest_rank", ranks=1, blocks=1)
FEWER_OF_RANK = BUSIEST.where(format="plain") / BUSIEST.where(format="sent")
"""Bytes of matrices and inputs as Base sends them over those by difference."""
EPOCH = observed("speedup", **TIMED, setting=GD, baseline=BASE)
TRANSFER = EPOCH.where(phase="transfer")
"""Base over difference, of an epoch and of its transfer."""
EPOCH_S = observed("epoch_time", **TIMED, setting=(BASE, GD))
TRANSFER_S = observed("phase_time", **TIMED, setting=(BASE, GD), phase="transfer")
SHARE = (TRANSFER_S / EPOCH_S).pooled("median")


def fewer(format_: str = "sent", ranks: Any = 1) -> MeasuredQuantity:
    """Bytes of the matrices as Base sends them over those by difference (`forced`: always)."""
    sent = MATRICES.where(format=format_, ranks=ranks, blocks=1)
    return MATRICES.where(format="plain") / sent


def papers_graphs(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on graphs that the paper names."""
    return [one for one in entries if one["dataset"] in settings.PAPERS_GRAPHS.names]


def timed_too(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on graphs whose epochs were timed, too."""
    timed = rows_of(context.rows, experiment="fig4", part="timed")
    return [one for one in entries if one["dataset"] in {row.params["dataset"] for row in timed}]


def most(quantity: MeasuredQuantity) -> outcomes.Rule:
    """The largest gain against the claim's."""
    return rules.near_claim(quantity, above=1.0, entry="high", report=rules.largest)


def most_over_link(gains: Mapping[str, MeasuredQuantity]) -> outcomes.Rule:
    """The largest gain over a link, by what it may be of."""
    return combine.interpretations(
        "", {name: combine.by_model(most(gain), LINK) for name, gain in gains.items()}
    )


def smoothed_above_raw(gain: MeasuredQuantity) -> outcomes.Rule:
    """Each model of smoothed snapshots gains more than one of raw ones, on every graph."""
    pairs = [(model, raw) for model in SMOOTHED for raw in RAW]
    return combine.both(
        *(rules.clearly_larger(gain.where(model=pair), {"model": pair[0]}) for pair in pairs),
        whatever_ran=True,
    )


def kept_otherwise(row: Any) -> int:
    """Counts of snapshots with a predecessor on their rank that are not those of the formula."""
    steps = number(row, "snapshots")
    return sum(
        number(row, "snapshots", None, of="kept", blocks=blocks, ranks=ranks)
        != sum(max(0, len(block) - ranks) for block in block_ranges(steps, blocks))
        for blocks, ranks in product(BLOCKS, settings.RANKS)
    )


def too_many_differences(row: Any) -> float:
    """Differences of an epoch, which brings blocks twice, beyond those that can be; NaN without."""
    sent = number(row, "snapshots", setting=GD, format="difference")
    can_be = 2 * (number(row, "snapshots") - number(row, "timeline_blocks"))
    return max(0, sent - can_be) if sent else math.nan


def largest_rise(gains: Sequence[float]) -> float:
    """Largest factor from one gain to the next."""
    return max(after / before for before, after in pairwise(gains))


def components(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: shares of transfer, of which the paper prints none."""
    shares = SHARE.estimates(context)
    lacking = "" if shares else "no epoch of Figure 4 was timed in this run"
    return replace(outcomes.outcome(context, shares), lacking=lacking)


def epoch_of_bar(_: EvaluationContext, dims: Mapping[str, Any], one: Estimate) -> dict[str, Any]:
    """Seconds of the epoch that a bar is of, and its deviation from the reference."""
    total = median(number(row, "epoch_time", setting=dims["setting"]) for row in one.rows)
    gaps = [row.deviation["output"] for row in one.rows if "output" in row.deviation]
    return {"total": total, "deviation": max(gaps, default=None)}


BY_RANKS = fewer(ranks=settings.RANKS).where(model=SMOOTHED).keep(REAL_FIRST)


class Fig4(FormExperiment):
    forms, name = settings.FORMS, "fig4"
    main_race = MainRace(
        verb="trains an epoch",
        where={"part": "timed"},
        titles=settings.RACE_TITLES,
        comparisons=(
            RaceComparison(
                subject="ESDG with graph differences",
                rival="ESDG with whole snapshots",
                ratio=observed_ratio(phase=None),
            ),
        ),
    )
    control = {"dataset": "amlsim-20k-fanin200cycle200", "model": "tm_gcn", "part": "timed"}
    timeout_s = {"full": 600, "paper": 1800, None: 60}
    headline, unit = fewer().where(model=SMOOTHED), "x"
    figure_forms = (
        Sweep(
            "fig4", "Bytes of Base over bytes by difference, by ranks", fewer(ranks=settings.RANKS),
            panel="{dataset}", series="{model}", x="ranks", gaps={"series": "all models", "x": 1},
            xlabel="ranks", ylabel="fewer bytes of matrices (x)", base=2, hline=1.0,
            hline_label="Base",
        ),
        StackedTime(
            "fig4_split", "An epoch of one rank: transfer and the rest",
            {
                "transfer": TRANSFER_S.pooled("median"),
                "compute": (EPOCH_S - TRANSFER_S).map(partial(max, 0.0)).pooled("median"),
            },
            panel="{model}", row="{dataset}", system="setting", phase="of", more=epoch_of_bar,
            xlabel="time of one epoch, ms",
            phases_from="transfer timed in the same epochs, compute: the rest",
        ),
        FigureForm(
            "time_split", "fig4_link",
            "Transfer of an epoch over PCIe 3 on one rank, projected from bytes",
            {name: BUSIEST.where(format=format_) / PCIE3
             for name, format_ in ((BASE, "plain"), (GD, "sent"))},
            {"panel": "{model}", "row": "{dataset}", "system": "of", "phase": "transfer"},
            value="seconds", more=lambda _, dims, one: {"projected": True, "total": one.value},
        ),
        SpeedupBars(
            "fig4_gain", "Gain of the difference over Base on one rank",
            {
                "transfer, measured": TRANSFER,
                "epoch, measured": EPOCH,
                "transfer over PCIe 3, projected": FEWER_OF_RANK.keep(timed_too),
            },
            panel="of", row="{model}, {dataset}", system="esdg", baseline=BASE,
            more=lambda _, dims, one: {} if one.ratio else {"projected": True},
            gaps={"panel": "transfer, measured"}, baseline_label="Base",
            xlabel="Base / difference", interval=TURN_INTERVAL,
        ),
    )  # fmt: skip
    claims = {
        "esdg-abs-gd-transfer": combine.first_found(
            most(TRANSFER.where(model=SMOOTHED).keep(on_gpu)),
            most_over_link({
                name: gain.where(model=SMOOTHED).keep(prefer(papers_graphs))
                for name, gain in (("matrices", fewer()), ("matrices and inputs", FEWER_OF_RANK))
            }),
        ),
        "esdg-abs-gd-overall": rules.near_claim(
            EPOCH.where(model=SMOOTHED).keep(prefer(on_gpu))
            .map_pooled(lambda gain: 100 * (1 - 1 / gain)),
            above=0.0, entry="high", report=rules.largest,
        ),
        "esdg-s62-cdgcn-gd": combine.first_found(
            most(TRANSFER.where(model=RAW).keep(real_data, on_gpu)),
            most_over_link({
                name: fewer(format_).where(model=RAW).keep(real_data)
                for name, format_ in (("plain where that is less", "sent"),
                                      ("always a difference", "forced"))
            }),
        ),
        "esdg-s62-gd-order-smoothing": combine.first_found(
            smoothed_above_raw(TRANSFER.keep(on_gpu)),
            combine.by_model(smoothed_above_raw(fewer().keep(REAL_FIRST)), LINK),
        ),
        "esdg-s62-gd-gains-shrink": combine.by_model(
            combine.both(
                rules.at_most(BY_RANKS.joined_over(largest_rise, "ranks"), 1.0),
                rules.all_below(BY_RANKS.joined_over(lambda by: by[-1] / by[0], "ranks"), 1.0),
            ), LINK,
        ),
        "esdg-s62-gd-benefit-fraction": combine.both(
            rules.all_equal(of_rows(kept_otherwise, **COUNTED).keep(REAL_FIRST), 0),
            rules.all_equal(of_rows(too_many_differences, **TIMED).keep(REAL_FIRST), 0),
            whatever_ran=True,
        ),
        "esdg-s61-settings": combine.both(
            *(
                rules.all_equal(observed("columns", **TIMED, of=of).keep(REAL_FIRST), SETTINGS[key])
                for key, of in (("intermediate_features", "hidden"), ("classes", "classes"))
            ),
            rules.all_above(
                observed("turns", **TIMED).keep(REAL_FIRST).pooled("min"),
                SETTINGS["epochs_averaged"] - 1,
            ),
        ),
        "esdg-s32-transfer-important": rules.all_above(SHARE.where(setting=BASE), SIGNIFICANT),
        "esdg-fig4-components": components,
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        everything = tuple(graph.name for graph in settings.ALL)
        # Raw snapshots, hardly any with repeats, go plain either way.
        models = {"smoke": settings.MODELS[:2], "quick": SMOOTHED}.get(preset, settings.MODELS)
        counted = [
            self.cell({"dataset": name, "part": "bytes"}, preset, group=f"bytes/{name}")
            for name in COUNTED_GRAPHS.get(preset, everything)
        ]
        return counted + [
            self.cell(
                {"dataset": name, "model": model, "part": "timed"}, preset,
                group=f"{name}/{model}", repeats=turn_rounds(preset), interleaved=True,
            )
            for name in TIMED_GRAPHS.get(preset, everything)
            for model in models
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = settings.BY_NAME[str(cell.params["dataset"])]
        if cell.params["part"] == "bytes":
            return count_bytes(graph, context.preset)
        kept = TIMED_SNAPSHOTS.get(context.preset, settings.snapshots(context.preset))
        task = settings.workload(graph, str(cell.params["model"]), context.preset, snapshots=kept)
        # So that the copying thread has a core of its own.
        with one_thread() if context.device == "cpu" else nullcontext():
            return _time(task, context, control=self.controls(cell))


def runs_of(steps: int, blocks: int, ranks: int) -> list[list[range]]:
    """[rank][block]: the snapshots that a rank brings of a block, one after the other."""
    shares = [consecutive(block, ranks) for block in block_ranges(steps, blocks)]
    return [[block[rank] for block in shares] for rank in range(ranks)]


def count_bytes(graph: settings.SnapshotGraph, preset: Preset) -> Measurement:
    """Bytes that one epoch brings in both its passes, for all models, blocks and ranks.

    Matrices (`topology_sent`) are plain, as differences (`forced`), or as whichever is less
    (`sent`); `host_to_device` adds inputs and is that of the rank that brings most. Snapshots
    `kept` are those of a pass that are not the first of a run.
    """
    occurrences = Occurrences.of(graph, preset)
    lives, edges = occurrences.lives(), RawEdges(occurrences)
    steps = occurrences.steps - 1  # the last snapshot is only predicted
    row = 4 * FLOATS * occurrences.events.num_nodes
    counted = Measurement(data=occurrences.data)
    counted.observe("snapshots", steps)
    splits = [
        (runs_of(steps, blocks, ranks), {"blocks": blocks, "ranks": ranks})
        for blocks, ranks in product(BLOCKS, settings.RANKS)
        if blocks <= steps
    ]
    for runs, where in splits:
        brought = sum(bool(run) for own in runs for run in own)
        counted.observe("snapshots", steps - brought, of="kept", **where)
    for model, length in zip(settings.MODELS, (graph.window, 1, graph.edge_life), strict=True):
        changes = Changes.of(lives, length).first(steps)
        counted.observe("topology_sent", PASSES * changes.plain(), model=model, format="plain")
        for runs, where in splits:
            matrices, busiest = bytes_by_rank(changes, runs, row)
            for name, count in matrices.items():
                counted.observe("topology_sent", PASSES * count, format=name, model=model, **where)
            for name, count in busiest.items():
                dims = {"of": "busiest_rank", "format": name, "model": model, **where}
                counted.observe("host_to_device", PASSES * count, **dims)
        counted.checks.append(changes_check(changes, edges.changes(length).first(steps)))
    return counted


def bytes_by_rank(
    changes: Changes, runs: Sequence[Sequence[range]], row: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of one pass by format: of all matrices, and of all that the busiest rank brings, with
    inputs of `row` bytes beside each snapshot of its runs (`runs_of`)."""
    plain = changes.each_plain()
    starts = [run.start for own in runs for run in own if run]
    sent = {"sent": changes.each(), "forced": changes.each(fallback=False)}
    for each in sent.values():
        each[starts] = plain[starts]
    busiest = {
        name: max(sum(int(each[run].sum()) + row * len(run) for run in own) for own in runs)
        for name, each in (("plain", plain), ("sent", sent["sent"]))
    }
    return {name: int(each.sum()) for name, each in sent.items()}, busiest


def _time(task: TimelineWorkload, context: RunContext, *, control: bool) -> Measurement:
    """Epochs of Base and of the difference in turns, both compared with the plain trainer."""
    data = load_timeline(task)
    timed, wanted = Measurement(data=describe(data)), Measurement()
    with TrainerRace(task, data, context) as race:
        for name, difference in with_control({BASE: False, GD: True}, on=control).items():
            race.open(name, {"difference": difference}, nb=TIMED_BLOCKS, timing=True)
        turns, budget_s = TURNS[context.preset], context.budget_s * BUDGETS[context.preset]
        found = race.take_turns(turns, budget_s, most=10 * turns)
        take_control(timed, found.seconds)
        for name in found.seconds:
            trainer, epochs = race.trainers[name], len(found.seconds[name])
            differences = trainer.meter.counters["snapshots_difference"] // epochs
            timed.observe("snapshots", differences, setting=name, format="difference")
            timed.observe("host_to_device", found.sent[name], setting=name)
            traffic = epoch_traffic(data, task.model, task.window, trainer.on, TIMED_BLOCKS)
            wanted.observe("host_to_device", traffic["bytes"], setting=name)
            timed.notes += [note for note in trainer.notes if note not in timed.notes]
        timed.checks = race.checks(found, without=AGAIN)
    timed.checks.append(agree(timed, wanted, against="arrays of the snapshots"))
    for name, seconds in found.seconds.items():
        timed.observe("epoch_time", median(seconds), setting=name)
    observe_speedup(timed, found.seconds[BASE], found.seconds[GD], setting=GD, baseline=BASE)
    taken = {name: found.parts[name]["transfer"] for name in (BASE, GD)}
    for name, seconds in taken.items():
        timed.observe("phase_time", median(seconds), setting=name, phase="transfer")
    observe_speedup(timed, *taken.values(), setting=GD, baseline=BASE, phase="transfer")
    timed.observe("epoch_time", median(found.seconds[GD]), samples=found.seconds[GD])
    timed.observe("turns", len(found.seconds[GD]))
    timed.observe("columns", task.hidden_dim, of="hidden")
    timed.observe("columns", task.classes, of="classes")
    timed.observe("snapshots", len(data) - 1)
    timed.observe("timeline_blocks", TIMED_BLOCKS)
    timed.deviation = race.deviation(timed.checks)
    return timed
