"""Figure 5: how often nodes and edges are accessed, and by which law."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import torch

from dgbench.lab.charts import chart, failed, failures, mark
from dgbench.lab.grid import Grid
from dgbench.lab.laws import fit, gini
from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.gnnflow.experiments.accesses import Access, Accesses
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, MODEL_TITLES, STATIC_MODELS, panel
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
RECOUNTED: Final = 40
"""Last events or vertices whose accesses are counted once more."""
MODELS: Final = ("tgat", "tgn", "graphsage")
KINDS: Final = ("node", "edge")
GRID: Final = tuple(2.0**k for k in range(-8, 9))
"""Accesses, in means of the graph, at which the distributions are kept."""
SEEDED: Final = {
    "link": "pairs of events",
    "vertex": "every vertex once",
    "tenth": "a tenth of the vertices",
}
"""Roots that a static model is trained on."""
UPPER, ALL = ("setting", "upper half"), ("setting", "all")
"""Dimension of what laws are fitted to."""
Laws = dict[tuple[Any, ...], float]
"""Numbers by metric and (dimension, value) pairs."""


class Fig5(Grid):
    paper = "gnnflow"
    name = "fig5"
    sources: ClassVar[Any] = {"portion": "counted"}
    title = "Figure 5: which law accesses follow"
    device = "cpu"
    question = "Do accesses of nodes follow a power law, and those of edges an exponential one?"
    reading = (
        "Counts are of one epoch, every sample counts. Where the paper draws a straight line, we "
        "fit both laws by maximum likelihood to the upper half of the ids that are accessed at "
        "all, since a power law is one of tails, and compare likelihoods by Vuong's test; the "
        "fits to all of them stand in the rows too. What the paper calls skewed for static models "
        "is taken as less even than an exponential law, whose Gini index is 0.5. It does not name "
        "their task, so GraphSAGE starts from events (links) and, apart, from every vertex once or "
        "a tenth of the vertices, as where few have labels."
    )
    claims = (
        "gnnflow-fig5-node-access-powerlaw",
        "gnnflow-fig5-edge-access-exponential",
        "gnnflow-fig5-other-workloads",
        "gnnflow-s43-static-gnn-edge-skew",
    )

    timeout_s: ClassVar[Any] = {"full": 3600, "paper": 3600, None: 300}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        return ({"dataset": name} for name in GRAPHS[preset] if name in BY_NAME)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Measurement()
        for model in MODELS:
            accesses = Accesses(graph, model, context.preset, events=EVENTS[context.preset][model])
            for seeds in SEEDED if model in STATIC_MODELS else ("link",):
                counts = tally(accesses, seeds)
                found.checks.append(tally_check(accesses, seeds))
                for kind in KINDS:
                    where = {"model": model, "task": seeds, "of": kind}
                    laws = describe(counts[kind])
                    for (metric, *dims), value in laws.items():
                        found.observe(metric, float(value), **where, **dict(dims))
                    found.observe("requests", int(counts[kind].sum()), **where)
                    met = int((counts[kind] > 0).sum())
                    found.observe("requests", met, **where, setting="unique")
                    found.checks += law_checks(laws, f"{model} {seeds} {kind}", counts[kind])
            found.checks += accesses.checks()
            found.data = accesses.describe()
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            chart(
                "sweep",
                f"fig5_{kind}",
                f"Accesses of {kind}s in an epoch (Figure 5)",
                lambda rows, kind=kind: points(rows, kind),
                xlabel=f"accesses of one {kind}, in means",
                ylabel=f"share of {kind}s with more, %",
                marks="few",
                names=False,
            )
            for kind in KINDS
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = [row for row in rows_of(rows, experiment="fig5") if not row.data.get("twin")]
        if not found:
            return ""
        parts = [f"{kind}s {' or '.join(laws(found, kind, ('tgat', 'tgn')))}" for kind in KINDS]
        graphs = "graph" if len(found) == 1 else "graphs"
        return f"Nearer on {len(found)} real {graphs} (TGAT, TGN): {'; '.join(parts)}."


def tally(accesses: Accesses, seeds: str, most: int | None = None) -> dict[str, np.ndarray]:
    """int64[count] by kind: accesses of each id in an epoch; see `epoch`."""
    counts = {k: torch.zeros(accesses.count(k), dtype=torch.int64) for k in KINDS}
    for access in epoch(accesses, seeds, most):
        for kind in KINDS:
            counts[kind] += torch.bincount(access.of(kind), minlength=accesses.count(kind))
    return {kind: found.numpy() for kind, found in counts.items()}


def tally_check(accesses: Accesses, seeds: str) -> ResultCheck:
    """A check of `tally` over the last few events or vertices, id by id."""
    plain = {kind: Counter() for kind in KINDS}
    for access in epoch(accesses, seeds, RECOUNTED):
        for kind in KINDS:
            plain[kind].update(access.of(kind).tolist())
    found = tally(accesses, seeds, RECOUNTED)
    wanted = {
        kind: np.array([counts[i] for i in range(accesses.count(kind))], dtype=np.int64)
        for kind, counts in plain.items()
    }
    check = equal("counters", found, wanted, against="Python's counter")
    return msgspec.structs.replace(check, part=f"{accesses.model} {seeds}")


def law_checks(laws: Laws, name: str, counts: np.ndarray) -> list[ResultCheck]:
    """Checks of the evenness and of the distribution of accesses, and of the exponential's rate,
    which has a closed form."""
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
    least = max(1, int(np.median(met))) if met else 1
    for which, low in ((UPPER, least), (ALL, 1)):
        upper = [count for count in met if count >= low]
        if ("decay_rate", which) in laws:
            rate = math.log1p(len(upper) / (sum(upper) - low * len(upper)))
            wanted["decay_rate", which] = rate
    values = {key: laws[key] for key in wanted}
    return [close("shares", values, wanted, 1e-9, against="sums in plain Python", part=name)]


def epoch(accesses: Accesses, seeds: str, most: int | None = None) -> Sequence[Access]:
    """The batches of an epoch over events or over vertices, all or the last `most` of them."""
    if seeds == "link":
        last = accesses.count("edge")
        first = 0 if most is None else max(0, last - most)
        return list(accesses.epoch(Round(0, first, last)))
    count = accesses.count("node")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(accesses.task.seed))
    order = order[: max(1, count // 10)] if seeds == "tenth" else order
    order = order if most is None else order[-most:]
    return [accesses.from_vertices(part) for part in order.split(accesses.task.batch)]


def describe(counts: np.ndarray) -> Laws:
    """Fits, evenness and distribution of the accesses."""
    met = counts[counts > 0]
    found: Laws = {("gini_index",): gini(counts)}
    for which, least in ((UPPER, int(np.median(met)) if met.size else 1), (ALL, 1)):
        if np.unique(counts[counts >= max(1, least)]).size < 2:
            continue
        both = fit(counts, least)
        found |= {
            ("likelihood_z", which): both.z,
            ("tail_exponent", which): both.exponent,
            ("decay_rate", which): both.rate,
            ("distribution_gap", which, ("statistic", "power")): both.power_gap,
            ("distribution_gap", which, ("statistic", "exponential")): both.exponential_gap,
        }
    ordered = np.sort(met)
    limits = np.asarray(GRID) * (met.mean() if met.size else 1.0)
    above = 1 - np.searchsorted(ordered, limits, side="right") / max(1, ordered.size)
    return found | {("portion", ("bin", k)): float(share) for k, share in enumerate(above)}


def law_z(row: Any, model: str, kind: str) -> float | None:
    """Vuong's z of the accesses of pairs of events, above 0 where a power law is nearer."""
    return number(row, "likelihood_z", model=model, task="link", of=kind, setting="upper half")


def law(row: Any, model: str, kind: str) -> str:
    """The law that is nearer to the accesses of a row, or "neither"."""
    z = law_z(row, model, kind)
    if z is None or abs(z) < 2.0:
        return "neither"
    return "power law" if z > 0 else "exponential"


def laws(rows: Sequence[Any], kind: str, models: Sequence[str]) -> list[str]:
    """Names of the nearer laws with their counts."""
    names = [law(row, model, kind) for row in rows for model in models]
    return [f"{name} ({names.count(name)})" for name in dict.fromkeys(names)]


def points(rows: Sequence[Any], kind: str) -> list[dict[str, Any]]:
    """The share of ids with more accesses than x means, by model."""
    made = [
        mark(
            one.row, panel=panel(one.row), x=GRID[one["bin"]], y=100 * one.value, counted=True,
            series=MODEL_TITLES[one["model"]]
            + (f", from {SEEDED[one['task']]}" if one["model"] in STATIC_MODELS else ""),
        )
        for one in Table.of(rows, experiment="fig5").where("portion", of=kind)
        if one.value > 0
    ]  # fmt: skip
    return made + [
        {"panel": panel(row), "series": "TGAT", "x": 1.0, "failed": failed(row)}
        for row in failures(rows, "fig5")
    ]
