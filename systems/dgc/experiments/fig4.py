"""Figure 4: how PSS, PTS and PSS-TS train DySAT on different graphs, on 4 ranks (section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.evidence import uses_twin
from dgbench.lab.figure_forms import StackedTime, Sweep
from dgbench.lab.quantities import computed
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.dgc.experiments import race_runs as runs
from dgbench.systems.dgc.experiments.common import RankGrid
from dgbench.systems.dgc.experiments.fig5 import spread
from dgbench.systems.dgc.experiments.race_rows import (
    Numbers,
    RaceRecord,
    apart,
    epoch_total,
    gain,
    mean_of_processes,
    of_placements,
    of_races,
    over,
    phase_times,
    races_on,
)
from dgbench.systems.dgc.experiments.settings import FORMS, GRAPHS, HELD, standing_in
from dgbench.systems.dgc.turns import CLOCKED

NAME: Final = "fig4"
MODEL: Final = "dysat"
HELD_GRAPH: Final = {"held": "email-eu-core"}
"""Graph of a cell whose name is no dataset's."""
CLOCKS: Final = {"smoke": 1, "quick": 1, "full": CLOCKED, "paper": CLOCKED}
"""Epochs that phases are taken from."""
TIMEOUTS_S: Final = {"smoke": 30, "quick": 120, "full": 900, "paper": 3600}
SIZES: Final[Mapping[str, Mapping[Any, Any]]] = {
    "least": {"smoke": 1, "quick": 2, "full": 6, "paper": 20},
    "budget_s": {"smoke": 0.05, "quick": 0.1, "full": 2.0, "paper": 30.0},
    "timeout_s": TIMEOUTS_S,
    "clocked": CLOCKS,
}
"""Turns, seconds and clocked epochs of a race."""
FAR: Final = 1.5
"""Communication is far longer from this factor on, and work alike below it."""

RACE_FORMS: Final = replace(FORMS, labels={**FORMS.labels, "setting": runs.TITLES})


def leads(one: RaceRecord) -> Numbers:
    """Lead of the fastest baseline over the next one."""
    first = one.best(runs.PLACED)
    gains = [gain(one, name, first) for name in one.baselines if name != first]
    yield {"setting": first}, min(gains, key=lambda lead: (lead.side(1.0), lead.value))


def leads_of_pts(one: RaceRecord) -> Numbers:
    """Epochs of PSS and PSS-TS over those of PTS; on Movie, where PTS is the slowest, turned."""
    for name in (one.named(runs.PSS), runs.PSS_TS):
        slow, fast = (runs.PTS, name) if one.dataset == "movie" else (name, runs.PTS)
        yield {"setting": name}, gain(one, slow, fast)


def spent(one: RaceRecord) -> Numbers:
    """Seconds that each of the paper's baselines computes and communicates."""
    for baseline in runs.BASELINE_NAMES:
        name, dims = one.named(baseline), {"baseline": baseline}
        yield {**dims, "phase": "compute"}, Estimate(one.computing(name), rows=one.rows)
        waited = one.spent("communicate", name)
        yield {**dims, "phase": "communicate"}, Estimate(waited, rows=one.rows)


def waits_of_pts(one: RaceRecord) -> Numbers:
    """Communication of PTS over that of PSS and PSS-TS, by process."""
    waits = {name: one.each("phase_time", name, "communicate") for name in one.baselines}
    for name in (one.named(runs.PSS), runs.PSS_TS):
        yield {"setting": name}, over(waits[runs.PTS], waits[name], one.rows)


def share_of_reassignment(one: RaceRecord) -> Numbers:
    """Communication's share of an epoch of PSS-TS over that of PTS, by process."""
    shares = {
        name: [s / epoch for s, epoch in zip(
            one.each("phase_time", name, "communicate"), one.seconds(name), strict=True)]
        for name in (runs.PSS_TS, runs.PTS)
    }  # fmt: skip
    yield {}, over(shares[runs.PSS_TS], shares[runs.PTS], one.rows)


def unevenness(context: EvaluationContext) -> Numbers:
    """Divergence of PSS and PSS-TS over that of PTS, and of PTS over that of PTS on Stack."""
    found = races_on(context, NAME)
    stacks = standing_in("stack", found, lambda o: o.dataset, lambda o: o.twin)[:1]
    for one in found:
        each = {name: one.each("divergence", name) for name in one.baselines}
        for name in (one.named(runs.PSS), runs.PSS_TS):
            dims = {"dataset": one.dataset, "setting": name}
            yield dims, over(each[name], each[runs.PTS], one.rows)
        for stack in (other for other in stacks if other.dataset != one.dataset):
            dims = {"dataset": one.dataset, "setting": "PTS over PTS on Stack"}
            other, even = (mean_of_processes(of, "divergence", runs.PTS) for of in (one, stack))
            yield dims, apart(other, even)


def no_single_winner(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: on real graphs, a clear winner of one that is not the clear winner of another."""
    numbers = LEADS.estimates(context)
    real = {at: one for at, one in numbers.items() if not uses_twin(one.rows)}
    if len(real) < 2:
        return outcomes.RuleOutcome(lacking="two real graphs are needed: 'fig4' raced fewer")
    clear = [dict(at)["setting"] for at, one in real.items() if one.side(1.0) > 0]
    side = 1 if len({*clear}) > 1 else 0 if len(clear) < len(real) else -1
    return replace(
        outcomes.outcome(context, real, "x"), sides=(("clear winners that differ", side),)
    )


LEADS = of_races(NAME, leads, "setting")
EPINION = of_races(NAME, spent, "phase", on=("epinions",))
WORK, WAITS = (EPINION.where(phase=phase) for phase in ("compute", "communicate"))


class Fig4(RankGrid, FormExperiment):
    forms = replace(
        RACE_FORMS, facts={"dataset": ("graphs", lambda name: HELD_GRAPH.get(name, name))}
    )
    name = NAME
    headline, unit = LEADS, "x"
    figure_forms = (
        StackedTime(
            "fig4a", "An epoch of DySAT under three partitions", phase_times(), row="{dataset}",
            system="setting", phase="of", more=epoch_total, xlabel="time of one epoch, ms",
            phases_from=runs.PHASES_FROM,
        ),
        Sweep(
            "fig4b", "Work of the rank that has most over that of the one that has least",
            of_placements("divergence"),
            series="{setting}", x="{dataset}", xlabel="graph", ylabel="Tmax / Tmin", ylog=False,
            hline=1.0, hline_label="even",
        ),
        Sweep(
            "fig4_bytes", "Bytes that an epoch sends between ranks",
            of_placements("exchanged"), scale=1e-6, series="{setting}", x="{dataset}",
            xlabel="graph", ylabel="MB an epoch",
        ),
    )  # fmt: skip
    claims = {
        "dgc-fig4a-pts-best-three": rules.all_above(
            of_races(NAME, leads_of_pts, "setting", on=("amazon", "epinions", "stack", "movie")),
            1.0, unit="x",
        ),
        "dgc-fig4a-epinion-pss-comm": combine.both(
            rules.at_most(
                WORK.where(baseline=runs.BASELINE_NAMES).joined_over(spread, "baseline"), FAR
            ),
            rules.at_least(
                WAITS.where(baseline=runs.PSS)
                .over(WAITS.where(baseline=(runs.PTS, runs.PSS_TS))), FAR,
            ),
        ),
        "dgc-fig4a-movie-pts-comm": rules.all_above(
            of_races(NAME, waits_of_pts, "setting", on=("movie",)), 1.0, unit="x"
        ),
        "dgc-fig4a-psst-reassign": rules.all_above(
            of_races(NAME, share_of_reassignment, on=("amazon", "stack")), 1.0, unit="x"
        ),
        "dgc-fig4-no-single-winner": no_single_winner,
        "dgc-fig4b-pts-stack-balance": rules.near_claim(
            of_races(
                NAME, lambda one: [({}, mean_of_processes(one, "divergence", runs.PTS))],
                on=("stack",),
            )
        ),
        "dgc-fig4b-balance-order": rules.all_above(
            computed(unevenness, per=("dataset", "setting")), 1.0, unit="x"
        ),
    }  # fmt: skip

    axes: ClassVar = {
        "graphs": {
            "smoke": tuple(HELD_GRAPH),
            "quick": ("sx-mathoverflow",),
            None: tuple(graph.name for graph in (*GRAPHS, *HELD)),
        },
        "model": (MODEL,),
        "ranks": {"smoke": (2,), None: (4,)},
    }
    group = "{graphs}"
    repeats: ClassVar = {"smoke": 1, None: 5}
    timeout_s: ClassVar = TIMEOUTS_S

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graphs = str(cell.params["graphs"])
        chosen = runs.contenders(*runs.PLACED)
        jobs = runs.jobs_of(HELD_GRAPH.get(graphs, graphs), (MODEL,), context.preset, chosen)
        sizes = {name: of[context.preset] for name, of in SIZES.items()}
        return runs.race(jobs, int(cell.params["ranks"]), context, control=True, **sizes)  # type: ignore[arg-type]
