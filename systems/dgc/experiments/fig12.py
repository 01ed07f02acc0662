"""Figure 12: DGC, its modules one by one, and three baselines, in turns (sections 7.2 and 7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import median
from typing import Any, Final

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.charts import chart
from dgbench.lab.compare import ROUND_INTERVAL
from dgbench.lab.estimates import Estimate, EvaluationContext, gaps_of_failures
from dgbench.lab.figure_forms import SpeedupBars, StackedTime
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, computed, of_rows
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, Contender, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments import race_runs as runs
from dgbench.systems.dgc.experiments.fig4 import CLOCKS
from dgbench.systems.dgc.experiments.fig12_rows import (
    MEAN,
    NAME,
    PLACE,
    RACE,
    SIDES,
    Numbers,
    Pairs,
    Races,
    all_steps,
    best_of,
    gains,
    mean_gain,
    means_on_real,
    on_four,
    on_graph,
    on_real,
    over,
    projected_gains,
    raced,
    standing,
)
from dgbench.systems.dgc.experiments.projection_runs import COUNTED, project_twin
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, dataset_title, real, running
from dgbench.systems.dgc.experiments.settings import FORMS, MODEL_OF, MODELS
from dgbench.systems.dgc.projection import LINKS, WORKERS

QUICK: Final = "sx-mathoverflow"
WIRED: Final = (QUICK, "email-eu-core")
"""Graphs that are raced over emulated links, too."""
TIMEOUTS_S: Final = {"smoke": 30, "quick": 240, "full": 900, "paper": 3600}
SIZES: Final[Mapping[str, Mapping[Any, Any]]] = {
    "least": {"smoke": 1, "quick": 2, "full": 6, "paper": 20},
    "budget_s": {"smoke": 0.05, "quick": 0.1, "full": 2.0, "paper": 60.0},
    # What turns beyond the fewest may fill.
    "total_s": {"full": 40.0, "paper": 600.0, None: 0.0},
    "timeout_s": TIMEOUTS_S,
    "clocked": CLOCKS,
}
"""Turns, seconds and clocked epochs of a race."""
SLOW: Final = runs.PLAIN
"""Contender that races from `full` on and on real graphs: the bare partition, whose thousands of
chunks cost a call each, takes some fifty times as long an epoch as with fusion."""
MODULE_STEPS: Final = (
    (runs.PLAIN, "chunks (PGC)"), (runs.EXACT, "chunk fusion (CF)"), (runs.DGC, "stale rows (SG)")
)  # fmt: skip
"""Feature that each contender adds to the one before it."""
TOGETHER: Final = ((runs.EXACT, "chunks (PGC) and fusion (CF)"), MODULE_STEPS[-1])
"""The same where the bare partition did not race."""
MODULES: Final = {
    words: Contender("dgc", switch=switch)
    for (_, words), switch in zip(
        (*MODULE_STEPS, TOGETHER[0]), ("pgc", "", "stale", "pgc"), strict=True
    )
}

CLOSE: Final = 1.1
"""Two epoch times less than a tenth apart are about the same."""
STACK: Final = "Stack or its site"
LINK_WORDS: Final = {
    "gloo": "", "wire": f", {runs.LINK_TITLES['wire']}", "nvlink": "NVLink", "pcie": "PCIe"
}  # fmt: skip
RACE_FORMS: Final = replace(
    FORMS,
    facts={"model": ("models", lambda names: names.split()[0])},
    labels={**FORMS.labels, "setting": {**runs.SHOWN, runs.DGC: "dgc"}, "baseline": runs.SHOWN,
            "link": LINK_WORDS, "ranks": lambda count: f"{count} ranks"},
)  # fmt: skip

Rows = Sequence[Any]

OVER_BASELINES: Final = over(*runs.BASELINE_NAMES)
"""Pairs of a contender over each of the paper's baselines."""
PROJECTED: Final = projected_gains(*runs.PLACED)
STEPS_OVER_BEST: Final = computed(all_steps, per=(*PLACE, *SIDES)).where(part="race")


def over_each(fast: str, slow: Sequence[str]) -> MeasuredQuantity:
    """One contender over each of several, where both ran."""
    return gains(
        raced, lambda one: [(name, fast) for name in slow if {name, fast} <= set(one.names)]
    ).keep(gaps_of_failures)


def beside(form: str, model: str = "") -> dict[str, MeasuredQuantity]:
    """Numbers beside a form's gain: over the best placement that has chunk fusion, too, what
    this fusion gains for the best baseline, and projections to eight V100."""
    found = {
        "over the best placement with chunk fusion": mean_gain(
            on_real(*runs.FAIR, form, model=model), best_of(runs.FAIR, (form,))
        ),
        "chunk fusion for the best baseline": mean_gain(
            on_real(*runs.FAIR, *runs.PLACED, model=model), best_of(runs.PLACED, runs.FAIR)
        ),
    }
    chosen = PROJECTED.where(setting=form, **({"model": model} if model else {}))
    return found | {
        f"projected to 8 V100 by {LINK_WORDS[link]} from twins, at {words}": chosen.where(link=link)
        .joined_over(pick, "model", "dataset")
        for link in LINKS for words, pick in (("least", min), ("most", max))
    }  # fmt: skip


def speedups(form: str) -> outcomes.Rule:
    """Lowest and highest gain of a form over any baseline."""
    every = gains(on_real(form, *runs.PLACED), OVER_BASELINES(form))
    ends = {name: every.joined_over(pick, *PLACE, *SIDES)
            for name, pick in (("low", min), ("high", max))}  # fmt: skip
    return combine.shown_beside(
        rules.entries_near_claim(ends, rules.all_above(every, 1.0)), beside(form)
    )


def average(model: str) -> outcomes.Rule:
    """Mean over graphs and baselines of DGC's gain for one model."""
    races = on_real(runs.DGC, *runs.PLACED, model=model)
    return combine.interpretations("the paper does not say which mean", {
        f"{word} mean": combine.shown_beside(
            rules.near_claim(
                mean_gain(races, OVER_BASELINES(runs.DGC), arithmetic=word == "arithmetic"),
                above=1.0,
            ), beside(runs.DGC, model),
        )
        for word in ("arithmetic", "geometric")
    })  # fmt: skip


def named_cell(model: str, dataset: str, baseline: str) -> outcomes.Rule:
    """A factor printed for one model, graph and baseline; projected where no real race tells it."""
    needed = runs.PSS_ORDERS if baseline == runs.PSS else (baseline,)
    races = on_graph(dataset, *needed, runs.DGC, model=model, any_graph=True)

    def timed(select: Races) -> outcomes.Rule:
        return rules.near_claim(mean_gain(select, over(baseline)(runs.DGC)), above=1.0)

    made = projected_gains(baseline).where(model=model, dataset=dataset, setting=runs.DGC)
    return combine.first_found(
        timed(lambda rows: real(races(rows))),
        combine.by_model(projection(made), "alpha-beta model"),
        timed(races),
    )


def projection(made: MeasuredQuantity) -> outcomes.Rule:
    """Projected gains by link have one sign, which is the claim's direction."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        found = rules.all_above(made, 1.0, unit="x")(context)
        if found.lacking:
            return found
        sides = {side for _, side in found.sides}
        return replace(found, sides=(), direction=sides.pop() if len(sides) == 1 else 0)

    return rule


def order(dataset: str, pairs: Pairs) -> outcomes.Rule:
    """Baselines of all races of a graph in an order."""
    return rules.all_above(
        gains(on_graph(dataset, *runs.PLACED, fallback=True), pairs), 1.0, unit="x"
    )


def module(fast: str, slow: str, **shown: MeasuredQuantity) -> outcomes.Rule:
    """Gain of one module on real graphs."""
    races, pair = on_real(fast, slow), lambda one: [(slow, fast)]
    return combine.shown_beside(
        combine.interpretations("the paper does not say if its number is the mean or the best", {
            "mean": rules.near_claim(mean_gain(races, pair), above=1.0),
            "best": rules.near_claim(gains(races, pair), above=1.0, report=rules.largest),
        }), shown,
    )  # fmt: skip


def fusion_gains(context: EvaluationContext) -> Numbers:
    """Gain of chunk fusion by model on Stack, or a graph of its site, and on other graphs."""
    found = running(on_four(raced(context.rows)), runs.PLAIN, runs.EXACT)
    found = real(found) or found
    stack = standing("stack", found)
    for one in found:
        case = STACK if one in stack else dataset_title(one.dataset, one.twin)
        yield (
            {"model": one.model, "case": case},
            Estimate.of_ratio(one.gain(runs.PLAIN, runs.EXACT), one.rows),
        )


def timed_epochs(row: Any) -> float:
    """Epochs of each contender that a process timed, at least."""
    turns = Table.of([row]).where("epoch_time").by("dataset", "model", "setting")
    return min(map(len, turns.values()), default=float("nan"))


def parts_of_time(context: EvaluationContext) -> Numbers:
    """Seconds of an epoch of the paper's six in each phase."""
    for one in raced(context.rows):
        place = {"part": "race", **{name: getattr(one, name) for name in PLACE}}
        for name, phase in product((n for n in runs.PAPER_NAMES if n in one.names), runs.PHASES):
            spent = Estimate(one.spent(phase, name), rows=one.rows, kind="timed")
            yield {**place, "setting": name, "phase": phase}, spent


def epoch_total(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, float]:
    """Median epoch of a contender, as the total of its bar."""
    times = Table.of(one.rows).where("epoch_time", model=dims["model"], setting=dims["setting"])
    return {"total": median(times.values)}


def module_points(rows: Rows) -> list[dict[str, Any]]:
    """From the best baseline to everything on, a panel per race on real data."""
    points = []
    for one in running(real(raced(rows)), *runs.PLACED, runs.EXACT, runs.DGC):
        first = one.best()
        panel = {"panel": one.title, "row_ids": [one.row.id], "exact": True}
        points.append({**panel, "step": 0, "technique": first, "seconds": one.epoch(first)})
        before = first
        steps = MODULE_STEPS if runs.PLAIN in one.names else TOGETHER
        for step, (name, words) in enumerate(steps, 1):
            ratio = one.gain(before, name)
            points.append(
                {
                    **panel,
                    "step": step,
                    "technique": words,
                    "seconds": one.epoch(name),
                    "gain": ratio.value,
                    "gain_low": ratio.low,
                    "gain_high": ratio.high,
                    "same": ratio.side == 0 and ratio.low is not None,
                    "exact": name != runs.DGC,
                    "deviation": ratio.deviation,
                    **({"quality": _points_of(one, before, name)} if name == runs.DGC else {}),
                }
            )
            before = name
    return points


def _points_of(one: RaceRecord, before: str, name: str) -> str:
    """Test accuracy of the last turn against the contender before, in words."""
    gained = 100 * (one.number("accuracy", name) - one.number("accuracy", before))
    return f"{gained + 0.0:+.1f} points of accuracy"


OF_RACE: Final[dict[str, Any]] = {
    "panel": "{model}",
    "row": "{dataset}, {ranks}{link}",
    "interval": ROUND_INTERVAL,
}


class Fig12(FormExperiment):
    forms, name = RACE_FORMS, NAME
    main_race = RACE
    # Where vertices and blocks come to lie in memory is settled once in a process.
    repeats = {"smoke": 1, None: 5}
    timeout_s = TIMEOUTS_S
    headline, unit = computed(means_on_real, per=("method",)), "x"
    charts = (
        chart("ablation", "fig12_modules", "From the best baseline to DGC, module by module",
              module_points, system=runs.DGC, contenders=MODULES),
    )  # fmt: skip
    figure_forms = (
        SpeedupBars(
            "fig12", "DGC and its modules over the best baseline, time of an epoch",
            STEPS_OVER_BEST.keep(gaps_of_failures), system="{setting}", baseline="baseline",
            gaps={"baseline": ""}, **OF_RACE, main=True,
            more=lambda context, dims, one: {"rest": True} if dims["baseline"] == MEAN else {},
            baseline_label="best of PyGT-PSS, -PTS and -PSS-TS",
            xlabel="speed-up over the best baseline",
        ),
        SpeedupBars(
            "fig12_each", "DGC over each baseline", over_each(runs.DGC, runs.PLACED), **OF_RACE,
            system="over {baseline}", baseline="{baseline}", baseline_label="the baseline named",
            xlabel="speed-up of DGC",
        ),
        SpeedupBars(
            "fig12_fair", "DGC without stale rows over baselines that have chunk fusion, too",
            over_each(runs.EXACT, runs.FAIR), **OF_RACE, system="over {baseline}",
            baseline="{baseline}",
            baseline_label="the baseline named, with our chunk fusion",
            xlabel="speed-up of DGC w/o SG",
        ),
        SpeedupBars(
            "fig12_printed", "DGC + dgbench over DGC", over_each(runs.ADDED, (runs.DGC,)),
            **OF_RACE, system="over {baseline}", baseline="{baseline}",
            baseline_label="DGC, labels propagated once", xlabel="speed-up of our refinement",
        ),
        StackedTime(
            "fig12_split", "What an epoch is spent on",
            computed(parts_of_time, per=(*PLACE, "setting", "phase")).where(part="race")
            .keep(gaps_of_failures),
            panel="{model}", row="{dataset}, {ranks}{link}", system="{setting}", more=epoch_total,
            xlabel="time of one epoch, ms", phases_from=runs.PHASES_FROM,
        ),
        SpeedupBars(
            "fig12_projected", "Eight V100: DGC over the best baseline, projected",
            PROJECTED.keep(gaps_of_failures), panel="{model}", row="{dataset}, {link}",
            system="{setting}", baseline="best baseline",
            more=lambda context, dims, one: {"projected": True, "twin": True},
            baseline_label="best of PyGT-PSS, -PTS and -PSS-TS, projected",
            xlabel="speed-up over the best baseline",
        ),
    )  # fmt: skip
    claims = {
        "dgc-abs-speedup-range": speedups(runs.DGC),
        **{f"dgc-fig12-avg-{title.lower()}": average(model) for title, model in MODEL_OF.items()},
        "dgc-fig12-dgc-best": combine.shown_beside(
            rules.all_above(
                gains(on_real(runs.DGC, *runs.PLACED), OVER_BASELINES(runs.DGC)), 1.0, unit="x"
            ),
            beside(runs.DGC),
        ),
        "dgc-s71-protocol": rules.all_above(of_rows(timed_epochs, per="ranks", part="race"), 99.0),
        "dgc-fig12-amazon-order": order("amazon", lambda one: [
            *((name, runs.PTS) for name in one.baselines if name != runs.PTS),
            *((runs.PSS_TS, name) for name in one.baselines if name != runs.PSS_TS),
        ]),
        "dgc-fig12-epinion-order": order("epinions", lambda one: [
            (one.named(runs.PSS), name) for name in (runs.PTS, runs.PSS_TS)
        ]),
        "dgc-s72-tgcn-movie": named_cell(MODEL_OF["T-GCN"], "movie", runs.PTS),
        "dgc-s72-dysat-epinion": named_cell(MODEL_OF["DySAT"], "epinions", runs.PSS),
        "dgc-s72-mpnn-movie": named_cell(MODEL_OF["MPNN-LSTM"], "movie", runs.PTS),
        "dgc-s72-mpnn-epinion": named_cell(MODEL_OF["MPNN-LSTM"], "epinions", runs.PSS),
        "dgc-s731-pgc-only": speedups(runs.PLAIN),
        "dgc-s731-amazon-pts-close": rules.all_within(
            gains(on_graph("amazon", runs.PTS, runs.PLAIN), over(runs.PTS)(runs.PLAIN)),
            1 / CLOSE, CLOSE, unit="x",
        ),
        "dgc-s732-cf-speedup": module(runs.EXACT, runs.PLAIN, **{
            f"fusion for {runs.TITLES[name]}": mean_gain(
                on_real(runs.EXACT, runs.PLAIN, *runs.FUSED, *runs.FAIR),
                lambda one, name=name: [(name, runs.FUSED[name])],
            )
            for name in runs.FUSED
        }),
        "dgc-s732-cf-stack-best": rules.clearly_larger(
            computed(fusion_gains, per=("model", "case")), {"case": STACK}
        ),
        "dgc-s733-sg-speedup": module(runs.DGC, runs.EXACT),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        """Races of a preset; in quick one real graph, which is trained by all models."""

        def raced_on(dataset: str, ranks: int = 4, link: runs.Link = "gloo") -> dict[str, Any]:
            models = " ".join(MODELS[2:] if preset == "smoke" else MODELS)
            place = {"part": "race", "dataset": dataset, "models": models}
            return {**place, "ranks": ranks, "link": link}

        if preset in ("smoke", "quick"):
            return [raced_on("email-eu-core", 2) if preset == "smoke" else raced_on(QUICK)]
        return [
            *map(raced_on, (*runs.HELD_NAMES, *runs.TWINS)),
            *(raced_on(name, link="wire") for name in WIRED),
            raced_on(runs.HELD_NAMES[0], 8),
        ]

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        found: list[Cell] = []
        for point in self.points(preset, device):
            lacking = devices_lacking(point["ranks"], device)
            if point["link"] == "wire" and device == "cuda":
                lacking = lacking or "a wire is emulated between host memories"
            # For the figure over time, the first race runs once more with instruments.
            found.append(self.cell(
                point, preset, group="{dataset}/{ranks}/{link}".format(**point), interleaved=True,
                unavailable=lacking, phases=not found and preset != "quick",
            ))  # fmt: skip
        return found + [
            self.cell({"part": "projected", "dataset": name, "workers": WORKERS}, preset,
                      group=f"projected/{name}", repeats=1, device="cpu")
            for name in by_preset(COUNTED, preset)
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        params, preset = cell.params, context.preset
        if params["part"] == "projected":
            return project_twin(str(params["dataset"]), preset)
        dataset, link = str(params["dataset"]), params["link"]
        models = str(params["models"]).split()
        if context.instrumented:  # no ratio uses it, so one model and the fewest turns will do
            models = models[:1]
        names = racing(dataset, "smoke" if context.instrumented else preset)
        chosen = runs.contenders(*names, link=link)  # type: ignore[arg-type]
        jobs = runs.jobs_of(dataset, models, preset, chosen)
        sizes = {name: by_preset(of, preset) for name, of in SIZES.items()}
        if context.round > 1:
            sizes["clocked"] = 0  # a figure shows them, no claim
        if context.instrumented:
            sizes |= {"least": 2, "total_s": 0.0}
        ranks, control = int(params["ranks"]), not context.instrumented  # type: ignore[arg-type]
        found = runs.race(jobs, ranks, context, control=control, **sizes)
        if context.instrumented:
            found.data["workload"] = f"{dataset}, {models[0]}, {link}"
        return found


def racing(dataset: str, preset: Preset) -> tuple[str, ...]:
    """Contenders on a graph.

    The paper's six with both orders of PSS, and on real graphs all baselines with chunk fusion, and
    DGC with our refinement. What is left out for its time runs from `full` on, see `SLOW`.
    """
    short = dataset not in runs.HELD_NAMES or preset == "smoke"
    names = (*runs.PAPER_NAMES, runs.CONTIGUOUS) if short else runs.EVERY
    return tuple(name for name in names if name != SLOW or not (short or preset == "quick"))
