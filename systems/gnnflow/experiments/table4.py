"""Table 4: how much adjacent rounds sample the same, and what a cache would load again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from statistics import fmean
from typing import Final

import torch
from torch import Tensor

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.entry_rules import near_entries
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, close, equal
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
RECOUNTED: Final = 40
"""Events of a round whose sets are built once more."""
KINDS: Final = ("node", "edge")
NAMES: Final = ("sampled", "cached")
"""Samples of a round, and contents of a cache that is chosen for it."""


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
        found = Measurement(data=accesses.describe())
        for kind in KINDS:
            for statistic, masks, share in (
                ("jaccard", sampled, jaccard),
                ("contained", sampled, contained),
                ("already cached", kept, contained),
            ):
                shares = [share(*pair) for pair in pairwise(one[kind] for one in masks)]
                found.observe("overlap", fmean(shares or [0.0]), of=kind, statistic=statistic)
            found.observe("requests", sum(int(one[kind].sum()) for one in sampled), of=kind)
            found.observe("slots", accesses.capacity(kind), of=kind)
        found.checks = [*accesses.checks(), *recount(accesses, rounds, (sampled, kept))]
        found.observe("rounds", len(rounds))
        found.observe("events", sum(one.events for one in rounds))
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


def recount(
    accesses: Accesses, rounds: Sequence[Round], masks: Sequence[Sequence[dict[str, Tensor]]]
) -> list[ResultCheck]:
    """Checks of the sets of the last two rounds and of what they have in common.

    Args:
        accesses, rounds: of the row.
        masks: what each round samples, and what its cache holds.
    """
    own, wanted = {}, {}
    for one in rounds[-2:]:
        few = Round(one.number, one.first, min(one.last, one.first + RECOUNTED))
        both = sets(accesses, few), choices(accesses, few)
        for name, mine, exact in zip(NAMES, both, plain_sets(accesses, few), strict=True):
            for kind in KINDS:
                key = f"{kind}s {name}, round {few.number}"
                own[key], wanted[key] = mine[kind].nonzero()[:, 0], sorted(exact[kind])
    shares: dict[str, float] = {}
    exact_shares: dict[str, float] = {}
    for (name, each), kind in product(zip(NAMES, masks, strict=True), KINDS):
        for number, (before, after) in enumerate(pairwise(one[kind] for one in each)):
            a, b = (set(mask.nonzero()[:, 0].tolist()) for mask in (before, after))
            key = f"{kind}s {name} {number}"
            shares |= {f"{key} jaccard": jaccard(before, after), key: contained(before, after)}
            exact_shares[f"{key} jaccard"] = len(a & b) / max(1, len(a | b))
            exact_shares[key] = len(a & b) / max(1, len(b))
    against = "Python's sets"
    return [
        equal("ids", own, wanted, against=against),
        close("shares", shares, exact_shares, 1e-12, against=against),
    ]


def plain_sets(accesses: Accesses, one: Round) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
    """Ids that the epochs of a round sample, and ids of a cache chosen ahead, by kind."""
    seen: dict[str, set[int]] = {kind: set() for kind in KINDS}
    visits = {kind: Counter() for kind in KINDS}
    for epoch in range(EPOCHS):
        for access in accesses.epoch(one, epoch):
            for kind in KINDS:
                seen[kind].update(access.of(kind).tolist())
    for epoch in range(PRESAMPLED_EPOCHS):
        for access in accesses.epoch(one, PRESAMPLING + epoch):
            for kind in KINDS:
                visits[kind].update(set(access.of(kind).tolist()))
    held = {}
    for kind, counts in visits.items():
        most = sorted(counts, key=lambda i: (-counts[i], i))
        held[kind] = set(most[: accesses.capacity(kind)])
    return seen, held


def jaccard(a: Tensor, b: Tensor) -> float:
    """Common members of all members of two sets, bool[n] each."""
    return int((a & b).sum()) / max(1, int((a | b).sum()))


def contained(before: Tensor, after: Tensor) -> float:
    """Members of `after` that `before` has, too."""
    return int((before & after).sum()) / max(1, int(after.sum()))
