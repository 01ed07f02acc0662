"""Table 4: how much adjacent rounds sample the same, and what a cache would load again."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import Final

import torch
from torch import Tensor

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.entry_rules import near_entries
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import close
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.gnnflow.experiments.accesses import PRESAMPLING, WITHIN, Accesses, as_printed
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    DAY,
    EPOCHS,
    FORMS,
    by_dataset,
    by_graph,
)
from dgbench.systems.gnnflow.rounds import Round
from dgbench.systems.gnnflow.static_cache import PRESAMPLED_EPOCHS, Visits

PAPERS: Final = ("reddit", "gdelt", "netflix")
HELD: Final = ("wikipedia", "sx-mathoverflow", "college-msg")
GRAPHS: Final = {
    "smoke": ("netflix", "college-msg"),
    "quick": (*PAPERS, *HELD),
    "full": (*PAPERS, *HELD, "enron", "email-eu-core"),
    "paper": (*PAPERS, *HELD),
}
MODEL: Final = "tgat"
ROUNDS: Final = {"smoke": 2, "quick": 3, "full": 8, "paper": 20}
MAX_ROUND_EVENTS: Final = {"smoke": 200, "quick": 2_000, "full": 20_000, "paper": 10**9}
"""Events of a round at most: the first ones of a longer round are taken."""
DAYS: Final = {"wikipedia": DAY}
"""Rounds of a day where `settings` has shorter ones: the table compares days."""
KINDS: Final = ("node", "edge")

OVERLAP: Final = 100 * observed("overlap", per=("dataset", "of", "statistic"))
JACCARD, CACHED = (
    {kind: OVERLAP.where(statistic=name, of=kind) for kind in KINDS}
    for name in ("jaccard", "already cached")
)


class Table4(FormExperiment):
    forms, name = FORMS, "table4"
    device = "cpu"
    axes = {"dataset": GRAPHS, "model": (MODEL,)}
    timeout_s = {"paper": 3600, None: 300}
    headline, unit = OVERLAP.where(statistic="jaccard"), "%"
    figure_forms = (
        Sweep(
            "table4", "What adjacent rounds sample in common (Table 4)",
            OVERLAP.where(statistic=("jaccard", "already cached")),
            panel="{of}", series="{statistic}", x="{dataset}",
            printed=OVERLAP.where(statistic="jaccard").printed(
                lambda at: by_dataset(f"tab4-{at['of']}-jaccard").get(at["dataset"])
            ),
            gaps={"panel": "nodes", "series": "sampled"}, ylog=False, sort=False,
            ylabel="in common with the round before, %",
        ),
    )  # fmt: skip
    claims = {
        **{f"gnnflow-tab4-{kind}-jaccard": as_printed(by_graph(JACCARD[kind], PAPERS))
           for kind in KINDS},
        "gnnflow-tab4-node-above-edge": rules.all_above(
            (JACCARD["node"] - JACCARD["edge"]).where(dataset=PAPERS), 0.0, unit="points",
            required={"dataset": PAPERS},
        ),
        "gnnflow-s22-already-cached": combine.with_printed_value(
            rules.all_above(CACHED["node"] - CACHED["edge"], 0.0, unit="points"),
            near_entries(CACHED, points=WITHIN),
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph, most = BY_NAME[str(cell.params["dataset"])], MAX_ROUND_EVENTS[context.preset]
        accesses = Accesses(graph, MODEL, context.preset)
        rounds = [
            Round(one.number, one.first, min(one.last, one.first + most))
            for one in accesses.rounds(ROUNDS[context.preset], DAYS.get(graph.name))
        ]
        sampled = [sets(accesses, one) for one in rounds]
        kept = [choices(accesses, one) for one in rounds]
        found = Measurement(data=accesses.data.describe(), checks=accesses.checks())
        for kind in KINDS:
            for statistic, masks, share in (
                ("jaccard", sampled, jaccard),
                ("already cached", kept, contained),
            ):
                pairs = list(pairwise(one[kind] for one in masks))
                shares = [share(*pair) for pair in pairs]
                found.observe("overlap", fmean(shares or [0.0]), of=kind, statistic=statistic)
                exact = []
                for before, after in pairs:
                    every = int((before | after).sum())
                    common = int(before.sum()) + int(after.sum()) - every
                    whole = every if statistic == "jaccard" else int(after.sum())
                    exact.append(common / max(1, whole))
                found.checks.append(
                    close("shares", shares, exact, 1e-12, against="sizes of the sets",
                          part=f"{kind}s {statistic}")
                )  # fmt: skip
        return found


def sets(accesses: Accesses, one: Round) -> dict[str, Tensor]:
    """bool[count] by kind: what the epochs of a round sample."""
    seen = {k: torch.zeros(accesses.count(k), dtype=torch.bool) for k in KINDS}
    for epoch in range(EPOCHS):
        for access in accesses.epoch(one, epoch):
            for kind in KINDS:
                seen[kind][access.of(kind)] = True
    return seen


def choices(accesses: Accesses, one: Round) -> dict[str, Tensor]:
    """bool[count] by kind: what a cache holds that is chosen by sampling a round ahead."""
    visits = {kind: Visits(accesses.count(kind)) for kind in KINDS}
    for epoch in range(PRESAMPLED_EPOCHS):
        for access in accesses.epoch(one, PRESAMPLING + epoch):
            for kind in KINDS:
                visits[kind].add(access.of(kind))
    held = {k: torch.zeros(accesses.count(k), dtype=torch.bool) for k in KINDS}
    for kind in KINDS:
        held[kind][visits[kind].top(accesses.capacity(kind))] = True
    return held


def jaccard(a: Tensor, b: Tensor) -> float:
    """Common members of all members of two sets, bool[n] each."""
    return int((a & b).sum()) / max(1, int((a | b).sum()))


def contained(before: Tensor, after: Tensor) -> float:
    """Members of `after` that `before` has, too."""
    return int((before & after).sum()) / max(1, int(after.sum()))
