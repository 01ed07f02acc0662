"""Sections 3.1 and 6.2: memory of blocks and borders, what fits on how many devices, time by nb.

The formula of section 3.1 is evaluated three ways at the paper's own sizes, without any data: as
the paper's figures give it, for this implementation, and with what torch's LSTM records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any, Final

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import observe_control, observe_speedup
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.printed import ledger
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, at_most, summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import number
from dgbench.models import build_model
from dgbench.runtime.touched import comparing
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.esdg.experiments import settings
from dgbench.systems.esdg.experiments.recount import Widths, agree, epoch_traffic
from dgbench.systems.esdg.experiments.trainer_race import TrainerRace, open_trainer
from dgbench.systems.esdg.oracle import TimelineOracle, TimelineResult, largest_gap
from dgbench.systems.esdg.plan import device_bytes, step_cost
from dgbench.systems.esdg.system import EsdgTrainer
from dgbench.systems.esdg.techniques import ADDITIONS

DEVICE_BYTES: Final = 32 * 2**30
"""Of a V100 with 32 GB, all of it (6.1)."""

SPARSE: Final = {"tm_gcn": "M_product", "cd_gcn": "nnz", "evolvegcn_o": "edge_life"}
"""Size of Table 1 that a model's matrices have."""

COST_TITLES: Final = {
    "formula": "20 nnz + 4 N (widths)",
    "ours": "this implementation",
    "torch": "torch's LSTM, int64 coordinates",
}

BLOCKS: Final = {
    "smoke": (1, 4),
    "quick": (1, 4, 8),
    "full": (1, 2, 4, 8, 16, 32),
    "paper": (1, 2, 4, 8, 16, 32, 64),
}
SWEPT: Final = {
    "smoke": ("amlsim",),
    "quick": ("amlsim",),
    "full": ("amlsim", "youtube"),
    "paper": tuple(graph.name for graph in settings.GRAPHS),
}
REAL_GRAPH: Final = "amlsim-20k-fanin200cycle200"
SHARES: Final = (0.5, 0.1)
"""Budgets, as shares of the way from the least that any number of blocks takes to one block."""
TURNS: Final = {"smoke": 3, "quick": 2, "full": 4, "paper": 3}
"""Turns of a process at least; a sweep has several processes."""
PANEL: Final = "{model}, {dataset}"
AGAIN: Final = "paper 1, again"
"""Name of the paper's way in one block where it races itself."""
GPUS: Final = int(ledger(settings.LEDGER)["s31-oom-below-8"])
"""Of a node, fewer than which most tasks do not fit on without checkpoint."""
NO_DEVICES: Final = 2 * settings.RANKS[-1]
"""Number of devices of what fits on none that is counted."""
WITHIN: Final = 0.1
"""Relative tolerance of a measured peak against its plan, and against a budget."""
FORMULA: Final = "memory formula"

WORKLOAD = ("dataset", "model")
SWEEP = {"part": "sweep", "per": (*WORKLOAD, "blocks")}
PEAK = observed("memory", **SWEEP, of="peak", setting=("ours", "paper"))
ESTIMATE = observed("estimate", **SWEEP, of="memory", setting=("ours", "paper"))
PLANNED = ESTIMATE.where(method="planned")
EPOCH_S = observed("epoch_time", **SWEEP, setting=("ours", "paper")).pooled("median")
SLOWER = observed("speedup", **SWEEP, baseline=("paper", "ours"))
"""Epoch over that with one block."""
LAYOUT = observed("memory", part="sweep", of="peak", setting="layout") / observed(
    "estimate", part="sweep", of="memory", setting="layout", method="formula"
)
SIZES = observed("memory", part="sizes", per=("model", "method", "dataset"), ranks=settings.RANKS)
"""Bytes on each of so many devices at the sizes of Table 1."""
TRAVELS = observed(
    "snapshots", part="sweep", per="blocks", of="brought", setting="paper"
) / observed("snapshots", part="sweep")
"""Transfers of a snapshot in an epoch, the paper's way."""


def fewest(needs: Sequence[float]) -> int:
    """The fewest devices (of `RANKS`) that hold so many bytes each."""
    fitting = (p for p, need in zip(settings.RANKS, needs, strict=True) if need <= DEVICE_BYTES)
    return next(fitting, NO_DEVICES)


def devices(cost: str, of: str) -> MeasuredQuantity:
    """The fewest devices of each configuration, `whole` or in blocks (`best`), by one formula."""
    return SIZES.where(method=cost, of=of).joined_over(fewest, "ranks")


def by_each_formula(rule: Callable[[str], outcomes.Rule]) -> outcomes.Rule:
    """A claim on what fits at the paper's sizes, by each way to count it."""
    return combine.interpretations(
        "what the authors' program took beside it on its GPUs is not printed",
        {title: combine.by_model(rule(cost), FORMULA) for cost, title in COST_TITLES.items()},
    )


def budgeted(of: str) -> MeasuredQuantity:
    """Bytes over those of the budget."""
    each = {"part": "budget", "per": (*WORKLOAD, "budget_share")}
    return observed("memory", **each, of=of) / observed("memory", **each, of="budget")


def rate(context: EvaluationContext, dims: Mapping[str, Any], one: Estimate) -> dict[str, Any]:
    """Snapshots a second, of all processes of a cell, beside its peak."""
    (epoch,) = EPOCH_S.where(**dims).estimates(context).values()
    snapshots = number(one.rows[0], "snapshots")
    return {"rate": snapshots / epoch.value, "base": dims["blocks"] == 1}


class Memory(FormExperiment):
    forms, name = settings.FORMS, "memory"
    group = "{part}/{model}"
    headline, unit = SLOWER.where(baseline="paper"), "x"
    figure_forms = (
        Sweep(
            "memory_blocks",
            "Peak memory by the number of blocks: measured, planned, by the formula",
            {
                "measured": PEAK.where(setting="ours"),
                "planned": PLANNED.where(setting="ours"),
                "measured, the paper's way": PEAK.where(setting="paper"),
                "20 nnz + 4 N (widths)": ESTIMATE.where(setting="ours", method="formula"),
            },
            series="of", panel=PANEL, x="blocks", gaps={"series": "measured", "x": None},
            xlabel="blocks", ylabel="bytes at the peak", base=2,
        ),
        Sweep(
            "memory_time", "Time of an epoch over that with one block", SLOWER,
            series="{baseline}", panel=PANEL, x="blocks", gaps={"series": "measured", "x": None},
            xlabel="blocks", ylabel="time over one block", base=2, hline=1.0,
            hline_label="one block",
        ),
        FigureForm(
            "frontier", "memory_buys", "What memory buys: peak and speed by the number of blocks",
            PEAK, {"series": "{setting}", "panel": PANEL, "setting": "{blocks}"}, value="memory",
            more=rate, gaps={"series": "esdg", "setting": "blocks"},
            options={"ylabel": "snapshots/s"},
        ),
        Sweep(
            "memory_sizes", "Bytes on each device without checkpoint, at the paper's sizes",
            {
                title: SIZES.where(of="whole", method=cost,
                                   model=("cd_gcn",) if cost == "torch" else settings.MODELS)
                for cost, title in COST_TITLES.items()
            },
            series="{dataset}", panel="{model}, {of}", x="ranks",
            gaps={"series": "all graphs", "x": 1}, xlabel="GPUs",
            ylabel="bytes a GPU", base=2, hline=float(DEVICE_BYTES), hline_label="32 GiB",
        ),
    )  # fmt: skip
    claims = {
        "esdg-s31-oom-below-8": by_each_formula(lambda cost: rules.on_most(
            devices(cost, "whole"), lambda fewest: fewest >= GPUS, "configuration"
        )),
        "esdg-s62-baseline-oom-node": by_each_formula(lambda cost: combine.both(
            rules.all_above(devices(cost, "whole"), GPUS),
            rules.all_below(devices(cost, "best"), GPUS),
        )),
        "esdg-s31-block-memory": combine.shown_beside(
            combine.by_model(rules.at_most((PEAK / PLANNED - 1).map(abs), WITHIN), FORMULA),
            {"one block over 20 nnz + 4 N (widths), held as the paper's": LAYOUT},
        ),
        "esdg-s31-fewer-blocks-faster": rules.all_above(
            SLOWER.where(baseline="paper"), 1.0, unit="x"
        ),
        "esdg-s32-transfer-twice": rules.all_equal(TRAVELS, lambda value, at: value),
        "esdg-s62-bsize-tuned": combine.by_model(combine.both(
            rules.at_most(budgeted("planned"), 1.0),
            rules.at_most(budgeted("peak"), 1.0 + WITHIN),
            rules.all_above(budgeted("fewer"), 1.0),
            whatever_ran=True,
        ), FORMULA),
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        swept = [("sweep", name, model) for name in SWEPT[preset] for model in settings.MODELS]
        tuned = [("budget", REAL_GRAPH, model) for model in settings.MODELS]
        if preset == "smoke":
            swept, tuned = swept[1:2], tuned[2:]
        if preset == "quick":
            swept = swept[:2]
        limit = 1800 if preset in ("full", "paper") else 120
        return [
            *(self.cell({"system": "esdg", "part": "sizes", "model": model}, preset)
              for model in settings.MODELS),
            *(
                self.cell(
                    {"system": "esdg", "part": part, "dataset": name, "model": model}, preset,
                    group=f"{part}/{name}/{model}", timeout_s=limit,
                    repeats=turn_rounds(preset) if part == "sweep" else 1,
                    interleaved=part == "sweep",
                )
                for part, name, model in (*swept, *tuned)
            ),
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        part, model = str(cell.params["part"]), str(cell.params["model"])
        if part == "sizes":
            return sizes(model)
        graph = settings.BY_NAME[str(cell.params["dataset"])]
        fields: dict[str, Any] = {}
        if context.preset in ("smoke", "quick"):  # every setting of a cell is trained in turns
            scale = 1.0 if graph.real else graph.scale(context.preset) / 4
            fields = {"scale": scale, "snapshots": 9}
        task = settings.workload(graph, model, context.preset, **fields)
        return (_sweep if part == "sweep" else _budgets)(task, context)


def _sweep(task: TimelineWorkload, context: RunContext) -> Measurement:
    """Peaks and epochs by the number of blocks, the paper's way and ours."""
    data = load_timeline(task)
    found, wanted = Measurement(data=describe(data)), Measurement()
    checks: list[ResultCheck] = []

    def weigh(trainer: EsdgTrainer, **where: Any) -> None:
        """Peak, plan and formula, before anything is trained: what a link has taken it keeps."""
        found.observe("memory", trainer.measure_peak(), of="peak", **where)
        where["of"] = "memory"
        found.observe("estimate", trainer.planned_bytes(), method="planned", **where)
        found.observe("estimate", trainer.paper_bytes(), method="formula", **where)

    with TrainerRace(task, data, context) as race:
        ways: dict[str, dict[str, Any]] = {}
        for n, setting in product(BLOCKS[context.preset], ("paper", "ours")):
            if n < len(data):
                race.open(f"{setting} {n}", ADDITIONS if setting == "ours" else {}, nb=n)
                ways[f"{setting} {n}"] = {"setting": setting, "blocks": n}
        if race.oracle is not None:  # bytes of tensors are the same in every process
            for name, trainer in race.trainers.items():
                weigh(trainer, **ways[name])
            layout = open_trainer(task, data, context, {"paper_layout": True}, nb=1)
            weigh(layout, setting="layout")
            result = TimelineResult.of(layout, race.oracle.request)
            checks += race.oracle.checks({"layout": result}, "")
            layout.close()
        race.open(AGAIN, {}, nb=1)
        turns = race.take_turns(
            TURNS[context.preset], context.budget_s / turn_rounds(context.preset)
        )
        seconds = turns.seconds
        observe_control(found, seconds["paper 1"], seconds.pop(AGAIN), setting="paper")
        for name, times in seconds.items():
            trainer = race.trainers[name]
            came = trainer.meter.counters
            brought = (came["snapshots_plain"] + came["snapshots_difference"]) // len(times)
            _observe_traffic(found, {"brought": brought, "bytes": turns.sent[name]}, **ways[name])
            count = len(trainer.blocks)
            traffic = epoch_traffic(data, task.model, task.window, trainer.on, count)
            _observe_traffic(wanted, traffic, **ways[name])
        checks += race.checks(turns, without=AGAIN)
    checks.append(agree(found, wanted, against="arrays of the snapshots"))
    for name, times in seconds.items():
        setting, blocks = ways[name].values()
        found.observe("epoch_time", median(times), **ways[name])
        if blocks > 1:  # how much longer it takes than in one block
            one = seconds[f"{setting} 1"]
            observe_speedup(found, times, one, baseline=setting, blocks=blocks)
    found.observe("epoch_time", median(seconds["ours 1"]), samples=seconds["ours 1"])
    found.observe("snapshots", len(data) - 1)
    found.deviation = race.deviation(checks)
    found.checks = summarised(checks)
    return found


def _observe_traffic(found: Measurement, traffic: Mapping[str, int], **where: Any) -> None:
    """Matrices and bytes that an epoch brings, see `epoch_traffic`."""
    found.observe("snapshots", traffic["brought"], of="brought", **where)
    found.observe("host_to_device", traffic["bytes"], **where)


def _budgets(task: TimelineWorkload, context: RunContext) -> Measurement:
    """Observe the number of blocks planned for each budget, and if the budget is kept."""
    data = load_timeline(task)
    whole = open_trainer(task, data, context, ADDITIONS, nb=1)
    needs = [whole.bytes_with(n) for n in range(1, len(data))]
    whole.close()
    most, least = needs[0], min(needs)
    oracle = TimelineOracle(task, data, device=context.device)
    before: dict[str, TimelineResult] = {}
    after: dict[str, TimelineResult] = {}
    losses: dict[str, list[float]] = {}
    found = Measurement(data=describe(data))
    for share in SHARES:
        budget = int(least + share * (most - least))
        trainer = open_trainer(task, data, context, ADDITIONS, memory_bytes=budget)
        blocks = len(trainer.blocks)
        found.observe("memory", budget, of="budget", budget_share=share)
        found.observe("memory", trainer.measure_peak(), of="peak", budget_share=share)
        found.observe("memory", int(trainer.planned_bytes()), of="planned", budget_share=share)
        if blocks > 1:
            fewer = int(trainer.bytes_with(blocks - 1))
            found.observe("memory", fewer, of="fewer", budget_share=share)
        found.notes += [note for note in trainer.notes if note not in found.notes]
        name = f"{share:g}"
        with comparing():
            before[name] = TimelineResult.of(trainer, oracle.request)
            trainer.train_epoch()
            trainer.train_epoch()
            losses[name] = list(trainer.losses)
            # The parameters of one serve all, and so does a single result of the oracle.
            state = after[next(iter(after))].state if after else trainer.state()
            after[name] = TimelineResult.of(trainer, oracle.request, state)
        trainer.close()
    found.checks = oracle.trained_checks(before, after, losses)
    found.deviation = {"output": largest_gap(found.checks, "outputs", "gradients")}
    return found


def sizes(name: str) -> Measurement:
    """Bytes on each of P devices at the sizes of Table 1, by each way to count them.

    Memory is that of the `whole` timeline without checkpoint, and that of the `best` number of
    blocks. Bytes by the paper's figures are checked against widths of real tensors; tests compare
    the plans of this implementation with peaks.
    """
    found, gaps = Measurement(), []
    for graph in settings.GRAPHS:
        model = build_model(name, feature_dim=2, hidden_dim=6, task="link", window=graph.window)
        n, t = graph.printed["N"], graph.printed["T"]
        entries = graph.printed[SPARSE[name]]
        widths = Widths.of(name, window=graph.window)
        step = 20 * entries / t + 4 * n * widths.activations
        for method, ranks in product(COST_TITLES, settings.RANKS):
            cost = step_cost(method, model)
            needs = {
                "whole": device_bytes(cost, model, n, t, entries, 1, ranks, checkpoint=False),
                "best": min(
                    device_bytes(cost, model, n, t, entries, blocks, ranks)
                    for blocks in range(1, t + 1)
                ),
            }
            for of, count in needs.items():
                found.observe(
                    "memory", int(count), of=of, method=method, dataset=graph.name, ranks=ranks
                )
            if method == "formula":
                wanted = {
                    "whole": math.ceil(t / ranks) * step,
                    "best": min(
                        math.ceil(math.ceil(t / blocks) / ranks) * step
                        + blocks * 4 * n * widths.border / ranks
                        for blocks in range(1, t + 1)
                    ),
                }
                gaps += [abs(int(needs[of]) - wanted[of]) for of in wanted]
    found.checks = [
        # Bytes are cut to whole numbers.
        at_most("bytes", max(gaps), 1.01, against="widths of tensors", compared=len(gaps))
    ]
    return found
