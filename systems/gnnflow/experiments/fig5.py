"""Figure 5: how often nodes and edges are accessed, and by which law."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext, gaps_of_failures, real_data
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.laws import fit, gini
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, close
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.gnnflow.experiments.accesses import Access, Accesses
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, FORMS, STATIC_MODELS
from dgbench.systems.gnnflow.rounds import Round

GRAPHS: Final = {
    "smoke": ("wikipedia",),
    "quick": ("wikipedia", "sx-mathoverflow"),
    "full": ("reddit", "gdelt", "wikipedia", "sx-mathoverflow", "enron", "college-msg"),
    "paper": ("reddit", "mooc", "lastfm", "gdelt", "wikipedia"),
}
EVENTS: Final = {
    "smoke": {"tgn": 4_000, "tgat": 1_000, "graphsage": 1_000},
    "quick": {"tgn": 160_000, "tgat": 40_000, "graphsage": 3_000},
    "full": {"tgn": 10**9, "tgat": 150_000, "graphsage": 150_000},
    "paper": {"tgn": 10**9, "tgat": 10**9, "graphsage": 10**9},
}
"""First events of a stream that one epoch goes over."""
MODELS: Final = ("tgat", "tgn", "graphsage")
KINDS: Final = ("node", "edge")
GRID: Final = tuple(2.0**k for k in range(-8, 9))
"""Accesses, in means of the graph, at which the distributions are kept."""
TASKS: Final = ("link", "vertex", "tenth")
"""Roots that a static model is trained on: pairs of events, every vertex once, a tenth of them."""
Laws = dict[tuple[Any, ...], float]
"""Numbers by metric and (dimension, value) pairs."""


LIKELIHOOD: Final = observed(
    "likelihood_z", per=("dataset", "model", "of"), task="link", setting="upper half"
)
"""Vuong's z of accesses from pairs of events, above 0 where a power law is nearer."""
NEAR: Final = 2.0
"""Size of z below which neither law is nearer."""
NAMED: Final = ("wikipedia", "mooc", "lastfm", "gdelt")
"""Graphs on which the paper says that other workloads look alike."""
GINI: Final = observed("gini_index", per="dataset", model="graphsage", of="edge").keep(real_data)


def follows_law(kind: str, **where: Any) -> outcomes.Rule:
    """The nearer law on every real graph: a power law of nodes, an exponential one of edges.

    A twin draws its degrees from a power law.
    """
    rule = rules.all_above if kind == "node" else rules.all_below
    return rule(LIKELIHOOD.where(of=kind, **where).keep(real_data), 0.0, near=NEAR)


def above_zero(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries of shares that a logarithmic axis has; all others."""
    return [one for one in entries if one.of.metric != "portion" or one.of.value > 0]


def distribution(kind: str) -> FigureForm:
    """Figure of the share of ids with more accesses than a multiple of the mean."""
    above = 100 * observed("portion", per=("dataset", "bin"), of=kind).keep(
        above_zero, gaps_of_failures
    )
    return Sweep(
        f"fig5_{kind}", f"Accesses of {kind}s in an epoch (Figure 5)",
        {"temporal": above.where(model=MODELS[:2], task="link"),
         "static": above.where(model=MODELS[2:], task=TASKS)},
        panel="{dataset}", series="{model}{task}", x="bin",
        more=lambda _, dims, __: {"x": GRID[dims["bin"]], "counted": True},
        gaps={"series": "TGAT", "x": 1.0}, xlabel=f"accesses of one {kind}, in means",
        ylabel=f"share of {kind}s with more, %", marks="few", names=False,
    )  # fmt: skip


class Fig5(FormExperiment):
    forms, name = FORMS, "fig5"
    sources = {"portion": "counted"}
    device = "cpu"
    timeout_s = {"full": 3600, "paper": 3600, None: 300}
    headline = LIKELIHOOD.where(model=("tgat", "tgn")).keep(real_data)
    figure_forms = tuple(map(distribution, KINDS))
    claims = {
        "gnnflow-fig5-node-access-powerlaw": follows_law("node", model="tgat"),
        "gnnflow-fig5-edge-access-exponential": follows_law("edge", model="tgat"),
        "gnnflow-fig5-other-workloads": combine.both(*(
            follows_law(kind, model=("tgn", "tgat"), dataset=NAMED) for kind in KINDS
        )),
        "gnnflow-s43-static-gnn-edge-skew": combine.interpretations(
            "the paper does not name the task",
            {
                name: rules.all_above(GINI.where(task=task), 0.5)  # an exponential law's index
                for name, task in zip(
                    ("from events", "from all vertices", "from a tenth of them"), TASKS, strict=True
                )
            },
        ),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        return ({"dataset": name} for name in GRAPHS[preset] if name in BY_NAME)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Measurement()
        for model in MODELS:
            accesses = Accesses(graph, model, context.preset, events=EVENTS[context.preset][model])
            for seeds in TASKS if model in STATIC_MODELS else ("link",):
                counts = tally(accesses, seeds)
                for kind in KINDS:
                    where = {"model": model, "task": seeds, "of": kind}
                    laws = describe(counts[kind])
                    for (metric, *dims), value in laws.items():
                        found.observe(metric, float(value), **where, **dict(dims))
                    found.checks += law_checks(laws, f"{model} {seeds} {kind}", counts[kind])
            found.checks += accesses.checks()
            found.data = accesses.data.describe()
        return found


def tally(accesses: Accesses, seeds: str) -> dict[str, np.ndarray]:
    """int64[count] by kind: accesses of each id in an epoch; see `epoch`."""
    counts = {k: torch.zeros(accesses.count(k), dtype=torch.int64) for k in KINDS}
    for access in epoch(accesses, seeds):
        for kind in KINDS:
            counts[kind] += torch.bincount(access.of(kind), minlength=accesses.count(kind))
    return {kind: found.numpy() for kind, found in counts.items()}


def law_checks(laws: Laws, name: str, counts: np.ndarray) -> list[ResultCheck]:
    """Checks of the evenness and of the distribution of accesses."""
    met = sorted(int(count) for count in counts if count > 0)
    total, size = sum(met), max(1, len(met))
    apart, below = 0, 0
    zeros = len(counts) - len(met)
    for place, count in enumerate(met):  # sum over pairs of |a - b|, ascending
        apart += count * (zeros + place) - below
        below += count
    wanted: Laws = {("gini_index",): apart / max(1, len(counts) * total)}
    for k, limit in enumerate(GRID):
        above = sum(count * size > limit * total for count in met) / size
        wanted["portion", ("bin", k)] = above
    values = {key: laws[key] for key in wanted}
    return [close("shares", values, wanted, 1e-9, against="sums in plain Python", part=name)]


def epoch(accesses: Accesses, seeds: str) -> Iterable[Access]:
    """The batches of an epoch over events or over vertices."""
    if seeds == "link":
        return accesses.epoch(Round(0, 0, accesses.count("edge")))
    count = accesses.count("node")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(accesses.task.seed))
    order = order[: max(1, count // 10)] if seeds == "tenth" else order
    return map(accesses.from_vertices, order.split(accesses.task.batch))


def describe(counts: np.ndarray) -> Laws:
    """Fit of the upper half, evenness and distribution of the accesses."""
    met = counts[counts > 0]
    found: Laws = {("gini_index",): gini(counts)}
    least = int(np.median(met)) if met.size else 1
    if np.unique(counts[counts >= max(1, least)]).size >= 2:
        found["likelihood_z", ("setting", "upper half")] = fit(counts, least).z
    ordered = np.sort(met)
    limits = np.asarray(GRID) * (met.mean() if met.size else 1.0)
    above = 1 - np.searchsorted(ordered, limits, side="right") / max(1, ordered.size)
    return found | {("portion", ("bin", k)): float(share) for k, share in enumerate(above)}
