"""Table 5: sizes of the five graphs (section 6)."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources
from typing import Any, ClassVar, Final

import numpy as np

from dgbench import datasets
from dgbench.datasets.sources import find_form
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.metrics import STATED
from dgbench.lab.printed import ledger, same_printed
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, FORMS, GRAPHS, LEDGER, TWIN_NAMES

SIZES: Final = ("nodes", "edges")
METRICS: Final = {"nodes": "vertices", "edges": "edges"}


NEAR: Final = 0.05
"""Relative difference up to which a length of time agrees with a printed one."""
ALL: Final = {"dataset": TWIN_NAMES}


def counted_first(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Counts of files, and what publishers state of graphs whose files are not here."""
    counted = {one["dataset"] for one in entries if one["setting"] == "counted"}
    return [e for e in entries if e["setting"] == "counted" or e["dataset"] not in counted]


SIZE: Final = {
    size: observed(metric, per="dataset", setting=bool).keep(counted_first)
    for size, metric in METRICS.items()
}
"""Sizes that are known, by graph."""
PRINTED: Final = {
    size: known.printed(lambda at, size=size: BY_NAME[at["dataset"]].printed[size])
    for size, known in SIZE.items()
}


def as_printed(size: str) -> outcomes.Rule:
    """Every graph has the printed size; those that are known say the direction."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        known, printed = (of[size].estimates(context) for of in (SIZE, PRINTED))
        if not known:
            return outcomes.RuleOutcome(lacking="the sizes of the graphs were not looked up here")
        sides = tuple(
            (outcomes.words(context, at), 1 if same_printed(one.value, printed[at].value) else -1)
            for at, one in known.items()
        )
        found = replace(outcomes.outcome(context, known), sides=sides)
        return replace(found, met=found.side > 0 and len(known) == len(GRAPHS))

    return rule


def needs_files(rule: outcomes.Rule) -> outcomes.Rule:
    """The outcome of a rule where the publishers' files of all graphs are here."""
    return combine.first_found(rule, rules.not_measurable(
        "needs the publishers' files of the five graphs; the twins were fitted to these numbers"
    ))  # fmt: skip


def times_near(claim: str, of: str) -> outcomes.Rule:
    """Lengths of time in the files near the printed ones, where these have a number."""
    seconds = observed("window", per="dataset", of=of)
    printed = seconds.printed(
        lambda at: seconds_of(ledger(LEDGER)[claim][BY_NAME[at["dataset"]].title]) or None
    )
    return needs_files(combine.both(
        rules.all_above(seconds, 0.0, unit="s", required=ALL),
        rules.all_within(seconds.over(printed), 1 - NEAR, 1 + NEAR, unit="x"),
    ))  # fmt: skip


def seconds_of(words: str) -> float:
    """Seconds of `15 mins.`, `1 day` or `1 month`; 0 for what has no number (`few secs.`)."""
    units = {"min": 60.0, "day": 86_400.0, "month": 30 * 86_400.0, "year": 365.25 * 86_400.0}
    number, unit = words.split()
    if not number.replace(".", "").isdigit():
        return 0.0
    return float(number) * next(s for name, s in units.items() if unit.startswith(name))


class Table5(FormExperiment):
    forms, name = FORMS, "table5"
    device = "cpu"
    headline, unit = SIZE["nodes"].over(PRINTED["nodes"]), "x"
    figure_forms = (
        Sweep(
            "table5", "Sizes of the graphs, as printed and as published",
            {
                f"{size}, {source}": of[size] for size in SIZES
                for source, of in (("published", SIZE), ("Table 5", PRINTED))
            },
            series="of", x="{dataset}", gaps={"series": "nodes, published", "x": GRAPHS[0].title},
            xlabel="", ylabel="", sort=False,
        ),
    )  # fmt: skip
    claims = {
        **{f"gnnflow-tab5-{size}": as_printed(size) for size in SIZES},
        **{
            f"gnnflow-tab5-{kind}-dim": needs_files(rules.all_equal(
                observed("columns", per="dataset", of=kind),
                lambda value, at: value[BY_NAME[at["dataset"]].title] or 0, required=ALL,
            ))
            for kind in ("node", "edge")
        },
        "gnnflow-tab5-span": times_near("tab5-span", "stream"),
        "gnnflow-tab5-granularity": times_near("tab5-granularity", "step"),
        "gnnflow-s5-loc": rules.not_measurable(
            "needs the authors' code, this is another implementation"
        ),
        "gnnflow-s6-testbed": rules.not_measurable("the machine of the paper, a g4dn.metal"),
    }  # fmt: skip
    axes: ClassVar[Any] = {"what": ("sizes",)}
    group = "{what}"
    timeout_s: ClassVar[Any] = {"paper": 3600, None: 120}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Measurement(
            data={"dataset": "publishers' counts", "twin": False, "scale": 1.0, "note": ""}
        )
        stated: dict[tuple[str, str], int] = {}
        for graph in GRAPHS:
            card = datasets.card(graph.name)
            for size in SIZES:
                one = getattr(card.published, size, None) if card.published else None
                if one:
                    stated[graph.name, size] = int(one)
                    found.observe(METRICS[size], int(one), dataset=graph.name, setting=STATED)
            if find_form(card) is None:
                known = (graph.name, "edges") in stated
                said = "sizes as its publisher states them" if known else "nobody states its sizes"
                found.notes.append(f"{graph.title}: no files here, {said}")
                continue
            events = datasets.open_events(graph.name, source="real")
            found.observe("vertices", events.num_nodes, dataset=graph.name, setting="counted")
            found.observe("edges", len(events), dataset=graph.name, setting="counted")
            for kind, rows in (("node", events.node_feat), ("edge", events.edge_feat)):
                width = 0 if rows is None else rows.shape[1]
                found.observe("columns", width, dataset=graph.name, of=kind)
            if card.unit_s is None:  # the unit of the times has no length
                continue
            t = events.t.numpy()
            steps = np.diff(np.unique(t))
            span = float(t[-1] - t[0]) if t.size else 0.0
            found.observe("window", span * card.unit_s, dataset=graph.name, of="stream")
            if steps.size:
                step = float(np.median(steps)) * card.unit_s
                found.observe("window", step, dataset=graph.name, of="step")
        if stated:
            found.checks.append(stated_check(stated))
        return found


def stated_check(stated: dict[tuple[str, str], int]) -> ResultCheck:
    """A check of stated sizes by the text of the cards."""
    cards = resources.files("dgbench.datasets").joinpath("cards")
    text = "\n".join(f.read_text() for f in cards.iterdir() if f.name.endswith(".yaml"))
    written = {}
    for name, size in stated:
        entry = re.search(rf"^- name: {name}$(.*?)(?=^- name: |\Z)", text, re.M | re.S)
        number = re.search(rf"\b{size}: *([\d_]+)", entry[1]) if entry else None
        written[name, size] = int(number[1]) if number else -1
    return equal("counters", stated, written, against="text of the cards")
