"""Figure 10: end-to-end training time of five methods, three models, seven graphs (section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from dgbench.lab import outcomes, race_rules, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext, unnoted
from dgbench.lab.figure_forms import FigureForm, SpeedupBars, Sweep
from dgbench.lab.grid import TrainingRace
from dgbench.lab.main_race import MainRace, RaceComparison, paired_systems
from dgbench.lab.quality import observed_quality
from dgbench.lab.quantities import MeasuredQuantity, observed, paired, speedup
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, number, rows_of
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    EPOCHS,
    FORMS,
    FRAME,
    METHODS,
    MODEL_TITLES,
    MODELS,
    SMOKE_GRAPHS,
    task_of,
)
from dgbench.systems.pipad.experiments.table2 import MODEL_WORDS, Table2
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, REUSED, STAGES, stage

COMPILED = "compiled"
"""Not in the paper: torch.compile over the reference, with CUDA graphs on a device."""
COMPILE_S = 600
"""Seconds that a cell of COMPILED may take at least; compiling is a part of its preparation."""
QUICK_GRAPHS = ("flickr", "pems08", "covid19-england")
QUICK_WHOLE = "covid19-england"
"""Graph that quick has on a CPU with all models."""
NEVER_MOVED = ("aggregations", "topology_sent")
"""Counts that claims expect to be 0."""
FACTORS = {
    "re-implementation": ("pygt", BARE),
    "the paper's techniques": (BARE, PUBLISHED),
    "ours (not the paper's)": (PUBLISHED, "pipad"),
}
"""Factors whose product is PiPAD's speed-up over the released baseline: (slower, faster)."""

WORKLOAD = ("dataset", "model")
FACTOR = 0.25
"""Tolerance of a factor, as for printed ones."""
T_GCN = {"model": "tgcn_model"}
STAGE_OF = {"pygt": BARE, "pygt-g": REUSED}
"""Baseline of the paper -> what stands for it on our engine."""

QUALITY = observed_quality("mean_squared_error", contender={})
"""Reader of the errors of `quality`: all forms of PiPAD train the same model."""

TRAINING = MainRace(
    verb="trains",
    checks={"check": True},
    titles={
        **{graph.name: graph.title for graph in ALL},
        **MODEL_TITLES,
        "covid19-england": "England-Covid",
        "tgcn_model": "T-GCN model",
    },
    comparisons=(
        RaceComparison(
            subject="PiPAD",
            rival="PyG-Temporal",
            package="torch-geometric-temporal",
            rival_without="PyG-Temporal (re-implemented)",
            systems=(PUBLISHED, "pygt"),
            ratio=paired_systems("pygt", PUBLISHED, "end_to_end_time"),
            quality=QUALITY,
        ),
        RaceComparison(
            subject="PiPAD",
            rival="PyGT-G, the paper's strongest variant of it (re-implemented)",
            systems=(PUBLISHED, "pygt-g"),
            ratio=paired_systems("pygt-g", PUBLISHED, "end_to_end_time"),
            quality=QUALITY,
            fairer=True,
        ),
        RaceComparison(
            subject="PiPAD",
            rival="its own engine with all techniques off",
            systems=(PUBLISHED, BARE),
            ratio=paired_systems(BARE, PUBLISHED, "end_to_end_time"),
            quality=QUALITY,
            fairer=True,
        ),
    ),
)
"""End to end: preparation and all epochs."""


def timed_rows(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries of timed processes; older runs compared in cells of their own."""
    return [one for one in entries if not one.row.params.get("check")]


def times(metric: str, *per: str, **where: Any) -> MeasuredQuantity:
    """Times of timed processes."""
    return observed(metric, per=per, **where).keep(timed_rows)


def race(slow: str, fast: str, *per: str, **where: Any) -> MeasuredQuantity:
    """End-to-end time of one contender over that of another."""
    return speedup(times("end_to_end_time", *per, **where), slow, fast)


def own_deviation(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, float]:
    """Largest deviation of the faster contender alone, whatever that of its rival is."""
    own = outcomes.system_deviation(one.rows, dims["of"])
    return {} if own is None else {"deviation": own}


def with_product(rule: outcomes.Rule, slow: str, **where: Any) -> outcomes.Rule:
    """A rule about the paper's techniques on our engine, with the factor over the released baseline
    beside it: a product."""
    stands = STAGE_OF[slow]
    return combine.shown_beside(
        rule,
        {
            f"PiPAD + dgbench over {slow}": race(slow, "pipad", **where),
            "re-implementation": race(slow, stands, **where),
            "the paper's techniques": race(stands, PUBLISHED, **where),
            "ours": race(PUBLISHED, "pipad", **where),
        },
    )


def factor_range(low: str) -> outcomes.Rule:
    """The least factor over one stage and the largest over the bare engine; all of the first lie
    above 1x."""
    least, most = race(low, PUBLISHED, *WORKLOAD), race(BARE, PUBLISHED, *WORKLOAD)
    return with_product(
        rules.entries_near_claim(
            {"low": least.joined_over(min, *WORKLOAD), "high": most.joined_over(max, *WORKLOAD)},
            rules.all_above(least, 1.0, unit="x"),
        ),
        "pygt",
    )


def small_gain_more(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: PiPAD gains more on small graphs, PyGT-A on large ones, where there is a link to hide.

    Without the other half PiPAD's may break the statement and cannot carry the whole of it.
    """
    pipad = rules.clearly_larger(race(BARE, PUBLISHED, "size"), {"size": "small"})
    copies = rules.clearly_larger(race("pygt", "pygt-a", "size"), {"size": "large"})
    found = pipad(context)
    with unnoted():
        linked = not copies(context).lacking and all(row.device == "cuda" for row in found.rows)
    if found.lacking or linked:
        found = combine.both(pipad, copies)(context)
        return replace(found, direction=found.side)
    why = "PyGT-A hides copies over a link, which a CPU does not have: half of the statement"
    return replace(found, met=False, remarks=(why,))


def steady_counts(context: EvaluationContext, metric: str) -> tuple[int, list[Any]]:
    """Most that steady steps of PiPAD with the T-GCN model count, and the rows; a counter that
    never moved is 0.

    Empty where no baseline of the same workloads moved the counter: then nobody counted.
    """
    rows = [row for row in rows_of(context.rows, experiment="fig10", **T_GCN)
            if not row.params.get("check")]  # fmt: skip
    pipad = [row for row in rows if row.params["system"] in (PUBLISHED, "pipad")]
    datasets = {row.params["dataset"] for row in pipad}
    others = [row for row in rows if row.params["system"] in (BARE, "pygt")
              and row.params["dataset"] in datasets and number(row, metric, 0) > 0]  # fmt: skip
    if not pipad or not others:
        return 0, []
    return max(number(row, metric, 0) for row in pipad), [*pipad, *others]


def steady_count_is(metric: str, wanted: Callable[[Any], int]) -> outcomes.Rule:
    """Steady steps of PiPAD with the T-GCN model count what `wanted` gives of the claim's value."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        count, rows = steady_counts(context, metric)
        if not rows:
            return outcomes.RuleOutcome(lacking=f"no baseline of the T-GCN model counted {metric}")
        side = 1 if count == wanted(context.claim.value) else -1
        return outcomes.RuleOutcome(((f"{count} {metric}", side),), tuple(rows), count)

    return rule


def removes_aggregation(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: no aggregation in steady steps of the T-GCN model, and the order that follows."""
    races = combine.both(
        rules.all_above(race(REUSED, PUBLISHED, **T_GCN), 1.0),
        rules.all_within(race("pygt-r", "pygt-g", **T_GCN), 1 / (1 + FACTOR), 1 + FACTOR),
    )(context)
    counts = steady_count_is("aggregations", lambda _: 0)(context)
    if races.lacking or counts.lacking:
        return races if races.lacking else counts
    return replace(races, sides=(*counts.sides, *races.sides),
                   rows=outcomes.rows_of_all(races, counts))  # fmt: skip


def preparation_over(system: str) -> outcomes.Rule:
    """Preparation of PiPAD in epochs of a contender; the bound must hold on every workload."""
    epochs = paired(
        times("preparation_time", *WORKLOAD, system=PUBLISHED),
        times("epoch_time", *WORKLOAD, system=system),
    )
    return rules.near_claim(epochs.joined_over(max, *WORKLOAD), needs_interval=True)


def topology_a_step(system: str) -> MeasuredQuantity:
    """Topology bytes that a step of a two-layer model sends on large graphs."""
    where = {"system": system, "dataset": ("youtube", "flickr"),
             "model": ("evolvegcn", "mpnn_lstm")}  # fmt: skip
    sent, steps = (
        times(name, **where).pooled("sum") for name in ("topology_sent", "counted_steps")
    )
    return sent.over(steps)


def protocol(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: frames and epochs, which are settings."""
    numbers = observed("end_to_end_time", per="system").estimates(context)
    if not numbers:
        return outcomes.RuleOutcome(lacking="no end-to-end time was measured in this run")
    measured = {"frame_size": FRAME, "epochs": EPOCHS}
    side = 1 if context.claim.value == measured else -1
    return replace(
        outcomes.outcome(context, numbers), measured=measured, sides=(("settings", side),)
    )


class Fig10(FormExperiment, TrainingRace):
    forms, name = FORMS, "fig10"
    main_race = TRAINING
    axes = {
        "dataset": {"smoke": SMOKE_GRAPHS, "quick": QUICK_GRAPHS, None: [g.name for g in ALL]},
        "model": MODELS,
    }
    repeats = {"smoke": 1, "quick": 5, None: 7}
    timeout_s = {"full": COMPILE_S, "paper": COMPILE_S, None: 60}
    watched = {"dataset": "flickr", "model": "mpnn_lstm"}
    headline, unit = race("pygt", PUBLISHED, *WORKLOAD), "x"
    figure_forms = (
        SpeedupBars(
            "fig10", "End-to-end speed-up over PyGT",
            {
                name: race("pygt", name, "model", "dataset")
                for name in (*METHODS[1:-1], PUBLISHED, METHODS[-1], COMPILED)
            },
            panel="{model}", row="{dataset}", system="of", baseline="pygt", more=own_deviation,
            baseline_label="PyGT (PyG-Temporal)", xlabel="speed-up over PyGT, end to end",
        ),
        Sweep(
            "fig10_factors", "PiPAD's speed-up over PyGT as a product of three factors",
            {
                name: race(*sides, "model", "dataset")
                for name, sides in {**FACTORS, "product": ("pygt", "pipad")}.items()
            },
            panel="{model}", series="of", x="{dataset}", xlabel="factor, end to end",
            ylabel="factor, end to end", hline=1.0, hline_label="no gain",
        ),
        FigureForm(
            "failed_cells", "fig10_cells", "Seconds of a step",
            times("step_time", *WORKLOAD, "system").pooled("median"),
            {"model": "{model}", "dataset": "{dataset}", "system": "system"}, value="seconds",
            gaps={},
        ),
    )  # fmt: skip
    claims = {
        **Table2.claims,
        "pipad-abs-speedup-range": factor_range(REUSED),
        "pipad-fig10-speedup-range-pygt": factor_range(BARE),
        **{
            f"pipad-fig10-avg-{word}": with_product(
                rules.near_claim(race(BARE, PUBLISHED, model=model), above=1.0), "pygt", model=model
            )
            for word, model in MODEL_WORDS.items()
        },
        "pipad-fig10-pipad-best": with_product(
            race_rules.ahead_of_all(
                lambda rival: race(rival, PUBLISHED, *WORKLOAD), (BARE, REUSED, *METHODS[:-1])
            ),
            "pygt-g",
        ),
        "pipad-fig10-pygtg-second": race_rules.ahead_of_all(
            lambda rival: race(rival, "pygt-g", *WORKLOAD), METHODS[:3], most=True
        ),
        "pipad-fig10-small-gain-more": small_gain_more,
        "pipad-s43-preprocessing-epochs": combine.interpretations(
            "whose epochs are meant is not told",
            {
                "epochs of PyGT": preparation_over("pygt"),
                "epochs on our engine": preparation_over(BARE),
            },
        ),
        "pipad-s44-reuse-removes-topology-transfer": steady_count_is(
            "topology_sent", lambda value: value
        ),
        "pipad-s51-protocol": protocol,
        "pipad-s52-csc-extra-transfer": rules.all_above(
            topology_a_step("pygt-g").over(topology_a_step("pygt-r")), 1.0, unit="x"
        ),
        "pipad-s52-evolvegcn-vs-pygtg": with_product(
            rules.near_claim(race(REUSED, PUBLISHED, model="evolvegcn"), above=1.0),
            "pygt-g", model="evolvegcn",
        ),
        "pipad-s52-model-order-vs-pygtg": rules.clearly_larger(
            race(REUSED, PUBLISHED, "model"), {"model": "evolvegcn"}, required={"model": MODELS}
        ),
        "pipad-s52-mpnn-lowest": with_product(
            race_rules.extreme_near_claim(
                race(REUSED, PUBLISHED, *WORKLOAD, "size"), min, "low",
                {"model": "mpnn_lstm", "size": "large"},
            ),
            "pygt-g", model="mpnn_lstm", size="large",
        ),
        "pipad-s52-mpnn-highest": with_product(
            race_rules.extreme_near_claim(
                race(BARE, PUBLISHED, *WORKLOAD, "size"), max, "high",
                {"model": "mpnn_lstm", "size": "small"},
            ),
            "pygt", model="mpnn_lstm", size="small",
        ),
        "pipad-s52-tgcn-all-agg-removed": removes_aggregation,
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        """All of the race; smoke, and quick on a CPU, have all models for one graph and one for the
        others."""
        every = super().cells(preset, device)
        if preset != "smoke" and (preset, device) != ("quick", "cpu"):
            return every
        shown = ("pygt", "pipad")
        return [
            msgspec.structs.replace(cell, phases=cell.phases and cell.params["system"] in shown)
            for cell in every
            if cell.params["dataset"] == QUICK_WHOLE
            or cell.params["model"] == self.watched["model"]
        ]

    def contenders(self, preset: Preset, device: str) -> tuple[str, ...]:
        """On a CPU nothing is copied, so PyGT-A would be PyGT run twice. COMPILED needs time."""
        methods = METHODS if device == "cuda" else tuple(m for m in METHODS if m != "pygt-a")
        compiles = preset in ("full", "paper") or (preset == "quick" and device == "cuda")
        raced = (*methods[:-1], *STAGES, methods[-1])
        return (*raced, COMPILED) if compiles else raced

    def limit_s(self, system: str, preset: Preset) -> float:
        return COMPILE_S if system == COMPILED else super().limit_s(system, preset)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        system, task = str(cell.params["system"]), task_of(cell.params, context.preset)
        switches = stage(system) if system in STAGES else None
        name = "pipad" if system in STAGES else system
        measured = timed(name, task, context, epochs=EPOCHS, switches=switches)
        if name == "pipad":  # a counter of its meter that never moved is 0, and says so
            counted = {one.metric for one in measured.observations}
            for metric in NEVER_MOVED:
                if metric not in counted:
                    measured.observe(metric, 0)
        return measured
