"""Figure 6: end-to-end training, T-GCN against DyGNN and JODIE (section 6.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import ROUND_INTERVAL, observe_ratio
from dgbench.lab.estimates import Coords, Estimate, EvaluationContext
from dgbench.lab.figure_forms import SpeedupBars
from dgbench.lab.grid import by_preset
from dgbench.lab.main_race import MainRace, RaceComparison, observed_ratio
from dgbench.lab.printed import plain
from dgbench.lab.probes import probe
from dgbench.lab.quality import observed_quality
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.study import FormExperiment
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Contender, Measurement, Preset, RunContext
from dgbench.systems.base.interactions import load_interactions
from dgbench.systems.tgcn.experiments.large import ALONE, PLANNED_BYTES
from dgbench.systems.tgcn.experiments.quality import OURS, STRICT
from dgbench.systems.tgcn.races import (
    DYGNN,
    JODIE,
    JODIE_RELAXED,
    PARTS,
    PROCESSES,
    RELAXED,
    SAME_ORDER,
    TGCN,
    TITLES,
    UNION,
    WHOLE,
    Runner,
    audits_of,
    compare_first,
    opened,
    take_turns,
    task_of,
)
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    FORMS,
    GPU_BYTES,
    NEEDS_CUDA,
    ON_SMALL,
    SMALL_NAMES,
    TWIN_NAMES,
    graph_title,
)

NOT_PADDED = {DYGNN: "dygnn, not padded", JODIE: "jodie, not padded"}
SHOWN = {
    "smoke": ("lastfm", "wikipedia"),
    "quick": (*SMALL_NAMES, "wikipedia"),
    None: (*SMALL_NAMES, "wikipedia", "enron", "sx-mathoverflow"),
}
TURNS = {"smoke": 1, "quick": 2, "full": 4, "paper": 6}
AGAINST = (DYGNN, JODIE, RELAXED, JODIE_RELAXED, WHOLE, PARTS)
LARGE = "twitter"
PADDED = {"smoke": ("wikipedia",), None: SMALL_NAMES}
"""Graphs on which padding is counted: those that the paper says may fail already."""
BUSY = 90
"""Percent of the time from which a GPU is fully used."""
RESIDENT = probe("gpu_kernel_resident_percent")

GAIN = observed("speedup", what="race", setting=None)
"""Time of another contender over T-GCN's, sampling included."""
EACH = GAIN.where(dataset=SMALL_NAMES)
SAME = EACH.where(baseline=tuple(SAME_ORDER.values()))
"""Over the baselines in the order that T-GCN relaxes."""
RATE = observed("throughput", what="race")
UTILISATION = of_rows(
    lambda row: math.nan if (busy := RESIDENT.read(row)) is None else busy,
    what="race", device="cuda", dataset=TWIN_NAMES.__contains__,
).pooled("max")  # fmt: skip
TWITTER_TIME = BY_NAME[LARGE].printed.edges * observed(
    "edge_time", what="rate", device="cuda", setting=TGCN
)
STEP = observed("memory", what="padding", method="planned", dataset=SMALL_NAMES)
HELD = ALONE.where(dataset=SMALL_NAMES)


def faster_than(base: str) -> outcomes.Rule:
    """Geometric mean of the gains over a baseline in the same order on the paper's graphs."""
    same = SAME_ORDER[base]
    mean = GAIN.where(dataset=SMALL_NAMES.__contains__).pooled("workloads")
    return combine.shown_beside(
        combine.complete(
            rules.near_claim(mean.where(baseline=same), above=1.0),
            EACH.where(baseline=same), ON_SMALL,
        ),
        {"in strict order": mean.where(baseline=base)},
    )  # fmt: skip


def throughput(system: str, of: Callable[[Any], float] = plain) -> dict[str, outcomes.Rule]:
    """Edges a second of a contender, on each graph that the number may be of."""
    return {
        graph_title(name): rules.near_claim(RATE.where(setting=system, dataset=name), of=of)
        for name in SMALL_NAMES
    }


def largest_rate(of: Callable[[Any], float]) -> outcomes.Rule:
    """The largest of T-GCN's rates on the paper's graphs."""
    rate = RATE.where(setting=TGCN, dataset=SMALL_NAMES)
    return rules.near_claim(rate, of=of, report=rules.largest)


def padding_fills(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: padding alone takes a baseline beyond its GPU on a small graph of printed size."""
    totals: dict[Coords, Estimate] = {}
    filled = 0
    for base, not_padded in NOT_PADDED.items():
        held = HELD.where(setting=base)
        padded = held.less(STEP.where(setting=not_padded) - STEP.where(setting=base))
        before = held.estimates(context)
        for at, one in padded.estimates(context).items():
            coords = (("system", base), *at)
            totals[coords] = one
            filled += before[at].value <= GPU_BYTES < one.value
    if len(totals) < len(NOT_PADDED) * len(SMALL_NAMES):
        return outcomes.RuleOutcome(
            lacking="needs padded steps of both baselines on the three small graphs"
        )
    return replace(
        outcomes.outcome(context, totals, "bytes"), sides=(("any", 1 if filled else -1),),
        measured=f"padding fills the GPU in {filled} of {len(totals)} cases",
    )  # fmt: skip


def _over(rival: str, words: str, **more: Any) -> RaceComparison:
    return RaceComparison(
        subject="T-GCN", rival=words, **more,
        ratio=observed_ratio("speedup", what="race", setting=None, baseline=rival),
    )  # fmt: skip


RACE = MainRace(
    verb="trains",
    dims=("dataset",),
    where={"what": "race"},
    titles={name: graph.title for name, graph in BY_NAME.items()},
    comparisons=(
        _over(
            DYGNN, "DyGNN (re-implemented, strict order)",
            quality=observed_quality(contender={"model": OURS}, reference={"model": STRICT}),
        ),
        _over(JODIE, "JODIE (re-implemented, strict order)"),
        _over(RELAXED, "DyGNN with the same relaxed order", fairer=True),
        _over(JODIE_RELAXED, "JODIE with the same relaxed order", fairer=True),
    ),
)  # fmt: skip


class Fig6(FormExperiment):
    forms, name = FORMS, "fig6"
    main_race = RACE
    group = "{what}/{dataset}"
    repeats, interleaved = PROCESSES, True
    timeout_s = {"smoke": 90, "quick": 180, "full": 1800, "paper": 36000}
    headline, unit = GAIN.where(baseline=AGAINST).per("dataset"), "x"
    figure_forms = (
        SpeedupBars(
            "fig6", "End-to-end time per edge, T-GCN over the others",
            GAIN.where(baseline=(*AGAINST, UNION)).per("dataset"),
            panel="over {baseline}", row="{dataset}", system=TGCN, baseline="baseline",
            baseline_label="each system", xlabel="speed-up of T-GCN", interval=ROUND_INTERVAL,
            contenders={
                RELAXED: Contender(DYGNN, TITLES[RELAXED]),
                JODIE_RELAXED: Contender(JODIE, TITLES[JODIE_RELAXED]),
                PARTS: Contender(TGCN, TITLES[PARTS]),
                WHOLE: Contender(TGCN, TITLES[WHOLE]),
                UNION: Contender(TGCN, TITLES[UNION]),
            },
        ),
    )  # fmt: skip
    claims = {
        "tgcn-fig6-vs-dygnn": faster_than(DYGNN),
        "tgcn-fig6-vs-jodie": faster_than(JODIE),
        "tgcn-fig6-beats-both-everywhere": combine.shown_beside(
            rules.all_above(
                SAME, 1.0, report=lambda many: min(many, key=lambda one: one.value),
                required={"baseline": tuple(SAME_ORDER.values()), **ON_SMALL},
            ),
            {"in strict order": EACH.where(baseline=tuple(SAME_ORDER)).joined_over(
                min, "dataset", "baseline")},
        ),
        "tgcn-fig6-gpu-underused-small": combine.needs_gpu(
            rules.all_below(UTILISATION, BUSY, report=rules.largest), NEEDS_CUDA
        ),
        "tgcn-fig6-twitter-time": combine.needs_gpu(
            combine.by_model(rules.near_claim(TWITTER_TIME), "rate on a part, multiplied up"),
            NEEDS_CUDA,
        ),
        "tgcn-abs-e2e-max-speedup": combine.complete(
            rules.near_claim(SAME, above=1.0, report=rules.largest), SAME, ON_SMALL
        ),
        "tgcn-s24-prior-throughput-floor": combine.interpretations(
            "of which system and graph is not said",
            {
                **{
                    f"{TITLES[system]} on {graph}": rule
                    for system in (DYGNN, JODIE)
                    for graph, rule in throughput(
                        system, lambda value: plain(value["prior"])
                    ).items()
                },
                "T-GCN": largest_rate(lambda value: plain(value["T-GCN"])),
            },
        ),
        **{
            f"tgcn-s62-throughput-{system}": combine.interpretations(
                "no graph is named", throughput(system)
            )
            for system in (DYGNN, JODIE)
        },
        "tgcn-s62-throughput-tgcn": largest_rate(plain),
        "tgcn-s62-padding-blocks-baselines": combine.by_model(padding_fills, PLANNED_BYTES),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"dataset": name, "what": "race"} for name in by_preset(SHOWN, preset))
        yield from ({"dataset": name, "what": "padding"} for name in by_preset(PADDED, preset))
        yield {"dataset": LARGE, "what": "rate"}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        lacks = "" if device == "cuda" else "its time stands for a GPU's: needs a CUDA device"
        return [
            self.cell(
                one,
                preset,
                unavailable=lacks if one["what"] == "rate" else "",
                **({} if one["what"] == "race" else {"repeats": 1}),
            )
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name = str(cell.params["dataset"])
        what = str(cell.params["what"])
        if what == "padding":
            return pad(name, context)
        names: dict[str, dict[str, Any]] = {TGCN: {}}
        if what == "race":
            names |= {other: {} for other in (*AGAINST, UNION)}
        return race(name, context, names)


def race(name: str, context: RunContext, names: dict[str, dict[str, Any]]) -> Measurement:
    """Contenders in turns; gains are of T-GCN over each of the others, and of its form that
    computes all vertices anew over those of the same order."""
    task = task_of(name, context.preset)
    data = load_interactions(task)
    with opened(names, task, data, context.device) as runners:
        audits = audits_of(runners)
        seconds = take_turns(runners, TURNS[context.preset], context.device, audits)
        found = Measurement(data=data.describe())
        observe_planned(found, runners)
        compare_first(found, context, task, data, runners, audits)
    for key, one in seconds.items():
        found.observe("throughput", 1 / median(one), setting=key)
        if key != TGCN:
            observe_ratio(found, "speedup", one, seconds[TGCN], baseline=key)
        if PARTS in seconds and key in SAME_ORDER.values():
            observe_ratio(found, "speedup", one, seconds[PARTS], baseline=key, setting=PARTS)
    found.observe("turns", TURNS[context.preset])
    return found


def pad(name: str, context: RunContext) -> Measurement:
    """Bytes and edges of a step of the baselines, padded and not; nothing is timed."""
    task = task_of(name, context.preset)
    data = load_interactions(task)
    names: dict[str, dict[str, Any]] = {}
    for kind, bare in NOT_PADDED.items():
        names |= {kind: {}, bare: {"contender": kind, "switches": {"padding": False}}}
    found = Measurement(data=data.describe())
    with opened(names, task, data, context.device) as runners:
        for runner in runners.values():
            runner.turn()
        observe_planned(found, runners)
        compare_first(found, context, task, data, runners)
    return found


def observe_planned(found: Measurement, runners: Mapping[str, Runner]) -> None:
    """Observe the bytes that baselines plan for a step."""
    for key, runner in runners.items():
        if (planned := runner.trainer.report().get("planned_bytes")) is not None:
            found.observe("memory", int(planned), method="planned", setting=key)
