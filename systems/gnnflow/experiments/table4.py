"""Table 4: how much adjacent rounds sample the same, and what a cache would load again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.lab.charts import failed, failures, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.lab.table import number, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.gnnflow.experiments.accesses import PRESAMPLING, Accesses
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, DAY, EPOCHS, by_dataset, panel
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


class Table4(Grid):
    paper = "gnnflow"
    name = "table4"
    title = "Table 4: what adjacent rounds sample in common"
    device = "cpu"
    question = "How much of what a round samples did the round before sample, too?"
    reading = (
        "Sets of all nodes and edges that three epochs of TGAT sample in a round, compared between "
        "rounds of a day by Jaccard's index; the means over adjacent pairs stand here. Section "
        "2.2 says of a static cache that 92 % of the nodes and 22 % of the edges to be loaded are "
        "there already and points to this table, which holds no such numbers: that share is "
        "counted apart, over caches of the paper's size that are chosen by sampling two epochs "
        "ahead."
    )
    claims = (
        "gnnflow-tab4-node-jaccard",
        "gnnflow-tab4-edge-jaccard",
        "gnnflow-tab4-node-above-edge",
        "gnnflow-s22-already-cached",
    )

    axes: ClassVar[Any] = {"dataset": GRAPHS, "model": (MODEL,)}
    timeout_s: ClassVar[Any] = {"paper": 3600, None: 300}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        accesses = Accesses(graph, MODEL, context.preset)
        rounds = [
            Round(
                one.number, one.first, min(one.last, one.first + MAX_ROUND_EVENTS[context.preset])
            )
            for one in accesses.rounds(ROUNDS[context.preset], DAYS.get(graph.name))
        ]
        sampled = [sets(accesses, one) for one in rounds]
        kept = [choices(accesses, one) for one in rounds]
        found = Measurement(data=accesses.describe())
        for kind in KINDS:
            pairs = list(pairwise(one[kind] for one in sampled))
            loads = list(pairwise(one[kind] for one in kept))
            shares = {
                "jaccard": mean([jaccard(a, b) for a, b in pairs]),
                "contained": mean([contained(a, b) for a, b in pairs]),
                "already cached": mean([contained(a, b) for a, b in loads]),
            }
            for statistic, share in shares.items():
                found.observe("overlap", share, of=kind, statistic=statistic)
            found.observe("requests", sum(int(one[kind].sum()) for one in sampled), of=kind)
            found.observe("slots", accesses.capacity(kind), of=kind)
        found.checks = [*accesses.checks(), *recount(accesses, rounds, (sampled, kept))]
        found.observe("rounds", len(rounds))
        found.observe("events", sum(one.events for one in rounds))
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table4", "What adjacent rounds sample in common (Table 4)", points,
                ylabel="in common with the round before, %", ylog=False, sort=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment="table4")
        if not found:
            return ""
        parts = []
        for kind in KINDS:
            shares = [common(row, kind) for row in found]
            parts.append(f"{min(shares):.0f} to {max(shares):.0f} % of the {kind}s")
        return f"By Jaccard's index {' and '.join(parts)}, over {len(found)} graphs."


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
    few = [Round(one.number, one.first, min(one.last, one.first + RECOUNTED))
           for one in rounds[-2:]]  # fmt: skip
    plain = [plain_sets(accesses, one) for one in few]
    own, wanted = {}, {}
    for k, (one, (seen, held)) in enumerate(zip(few, plain, strict=True)):
        both = (sets(accesses, one), seen), (choices(accesses, one), held)
        for name, (mine, exact) in zip(("sampled", "cached"), both, strict=True):
            for kind in KINDS:
                ids = torch.tensor(sorted(exact[kind]), dtype=torch.int64)
                own[f"{kind}s {name}, round {k}"] = mine[kind].nonzero()[:, 0]
                wanted[f"{kind}s {name}, round {k}"] = ids
    shares: dict[str, float] = {}
    exact_shares: dict[str, float] = {}
    for kind in KINDS:
        for name, one in zip(("sampled", "cached"), masks, strict=True):
            for before, after in pairwise(one):
                a, b = (set(mask[kind].nonzero()[:, 0].tolist()) for mask in (before, after))
                key = f"{kind}s {name} {len(shares)}"
                shares[f"{key} jaccard"] = jaccard(before[kind], after[kind])
                exact_shares[f"{key} jaccard"] = len(a & b) / max(1, len(a | b))
                shares[f"{key} contained"] = contained(before[kind], after[kind])
                exact_shares[f"{key} contained"] = len(a & b) / max(1, len(b))
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


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def common(row: Any, kind: str, statistic: str = "jaccard") -> float:
    """Overlap of adjacent rounds of a row, in percent."""
    return 100 * number(row, "overlap", of=kind, statistic=statistic)


def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Jaccard's index by graph, with the printed one beside, and what a cache would load again."""
    made: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment="table4"):
        for kind in KINDS:
            where = {"panel": f"{kind}s", "x": panel(row)}
            for value, words in (("jaccard", "sampled"), ("already cached", "to be cached")):
                share = common(row, kind, value)
                made.append(mark(row, **where, series=words, y=share, counted=True))
            printed = by_dataset(f"tab4-{kind}-jaccard").get(row.params["dataset"])
            if printed is not None:
                made.append({**where, "series": "printed", "y": printed, "paper": True})
    return made + [
        {"panel": "nodes", "series": "sampled", "x": panel(row), "failed": failed(row)}
        for row in failures(rows, "table4")
    ]
