"""Table 1: the graphs, their degrees, and what sampling leaves of these (section 6.1)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import psutil
import torch

from dgbench import datasets
from dgbench.datasets.sources import find_form
from dgbench.kernels_cuda.edge_sampling import EdgeTable, keep_share
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext, gaps_of_failures, prefer, real_data
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.laws import DECIDED, Laws, fit
from dgbench.lab.metrics import STATED
from dgbench.lab.printed import as_printed, plain, printed, same_printed
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry, Observation, observation
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe as describe_events
from dgbench.systems.tgcn.recounts import EDGES, check_kept
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    FORMS,
    GRAPHS,
    HELD_NAMES,
    PAPERS_GRAPHS,
    PRINTED_TITLE,
    SHARE,
    TWIN_NAMES,
    GridGraph,
    open_graph,
    table1,
)

CANDIDATES: Final = 24
"""Starts of a tail that are tried."""
MIN_TAIL: Final = 50
"""Vertices that a tail must hold."""
MIN_TAIL_SHARE: Final = 0.1
"""Share of the vertices that it must hold too: a few hubs fit anything."""
GRID: Final = tuple(2.0**k for k in range(-5, 10))
"""Degrees, in means of the graph, at which distributions are kept for the figure."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The part of a distribution that a power law fits best.

    Attributes:
        laws: both fits from `least` on.
        least: the smallest degree of the tail.
        share: of the vertices with an edge, those in the tail.
    """

    laws: Laws
    least: int
    share: float


def tail_of(degrees: np.ndarray, least: int = 0) -> Tail | None:
    """The tail from `least` on, or else the one that is nearest to its fitted power law.

    Nearest is meant by the distance of Kolmogorov and Smirnov.

    Args:
        degrees: int[n] >= 0; vertices without an edge take no part.
        least: where the tail begins; 0 to look for it.

    Returns:
        The tail, or None where fewer than `MIN_TAIL` vertices or two different degrees are left.
        A tail has `MIN_TAIL_SHARE` of the vertices.
        Starts are degrees that occur, at most `CANDIDATES` of them, evenly spaced in logarithms
        (Clauset, Shalizi and Newman, SIAM Review 2009, section 3.3).
    """
    some = np.asarray(degrees)[np.asarray(degrees) > 0]
    best: Tail | None = None
    for start in [least] if least else _starts(some).tolist():
        inside = some[some >= start]
        try:
            found = fit(inside, start)
        except InvalidInputError:  # one degree only
            continue
        if best is None or found.power_gap < best.laws.power_gap:
            best = Tail(found, start, len(inside) / len(some))
    return best


def _starts(degrees: np.ndarray) -> np.ndarray:
    if len(degrees) < MIN_TAIL:
        return np.empty(0, dtype=np.int64)
    size = max(MIN_TAIL, int(MIN_TAIL_SHARE * len(degrees)))
    last = np.partition(degrees, len(degrees) - size)[len(degrees) - size]
    there = np.unique(degrees[degrees <= last])
    if len(there) <= CANDIDATES:
        return there
    wanted = np.geomspace(there[0], there[-1], CANDIDATES)
    return np.unique(there[np.searchsorted(there, wanted).clip(max=len(there) - 1)])


def rescaled_gap(before: np.ndarray, after: np.ndarray, least: int = 1) -> float:
    """Distance of Kolmogorov and Smirnov between two sets of degrees, each over its mean.

    Args:
        before: int[n], degrees of the whole graph.
        after: int[n], of the sampled one, same vertices.
        least: vertices with a smaller degree before are left out; 1 keeps all with an edge.
    """
    there = before >= max(1, least)
    one, other = before[there].astype(np.float64), after[there].astype(np.float64)
    if not one.size or not other.sum():
        return 1.0
    one, other = np.sort(one / one.mean()), np.sort(other / other.mean())
    at = np.concatenate([one, other])
    below = [np.searchsorted(part, at, side="right") / len(part) for part in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def shares_above(degrees: np.ndarray) -> list[float]:
    """Shares of the vertices with more than each degree of `GRID`, of those with an edge."""
    some = np.asarray(degrees)[np.asarray(degrees) > 0]
    if not some.size:
        return [0.0] * len(GRID)
    return [float((some > x * some.mean()).mean()) for x in GRID]


SIZES: Final = {"vertices": "nodes", "edges": "edges"}
"""Metric of a size -> what a dataset's card calls it."""
WHOLE, HALF = "whole", "half"
DEFINITIONS: Final = {"E/V": 1, "2 E/V": 2}
"""Definitions of a mean degree: edges over vertices, or ends of edges over vertices."""


def far(graph: GridGraph) -> bool:
    """Return True if the publisher's files of a graph are not available here."""
    return find_form(datasets.card(graph.name)) is None


def machine() -> list[Observation]:
    """Numbers that section 6.1.1 prints of its machine, of this one."""
    return [
        observation("processors", os.cpu_count() or 1, of="host"),
        observation("memory", psutil.virtual_memory().total, of="host"),
    ]


def sizes() -> list[Observation]:
    """Vertices and edges of the paper's graphs, as their publishers state them and as counted."""
    found: list[Observation] = []
    for graph in GRAPHS:
        card = datasets.card(graph.name)
        for metric, size in SIZES.items():
            stated = getattr(card.published, size, None) if card.published else None
            if stated:
                found.append(observation(metric, int(stated), dataset=graph.name, method=STATED))
        if not far(graph):
            events = datasets.open_events(graph.name, source="real")
            width = 0 if events.edge_feat is None else events.edge_feat.shape[1]
            about = {"dataset": graph.name, "method": "counted"}
            found += [
                observation("vertices", events.num_nodes, **about),
                observation("edges", len(events), **about),
                observation("columns", width, of="edge features", **about),
            ]
    return found


def measure_graph(graph: GridGraph, context: RunContext) -> Measurement:
    """Counts, tails and halved degrees of one graph."""
    events = open_graph(graph.name, context.preset)
    table = EdgeTable.build(events.src, events.dst, events.t, events.num_nodes)
    kept = keep_share(table, SHARE, seed=1)
    found = Measurement(data=describe_events(events))
    before = degrees_of(events, torch.ones(len(events), dtype=torch.bool))
    after = degrees_of(events, kept)
    found.checks = [
        *check_kept(events.src, kept.nonzero().squeeze(1), SHARE),
        recounted(events, kept, before, after),
    ]
    for side in before:
        describe(found, side, before[side], after[side])
    return found


def degrees_of(events: Any, kept: torch.Tensor) -> dict[str, np.ndarray]:
    """int64[vertices] by side: `sources` and `destinations` where kinds differ, else `all`."""
    n = events.num_nodes
    out = torch.bincount(events.src[kept], minlength=n).numpy()
    into = torch.bincount(events.dst[kept], minlength=n).numpy()
    if events.num_src is None:
        return {"all": out + into}
    return {"sources": out[: events.num_src], "destinations": into[events.num_src :]}


def recounted(events: Any, kept: torch.Tensor, before: Any, after: Any) -> ResultCheck:
    """Check of degrees and of the shares of vertices above multiples of their mean."""
    own: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    for when, degrees, mask in (("before", before, slice(None)), ("after", after, kept)):
        sources, targets = events.src[mask].numpy(), events.dst[mask].numpy()
        ends = {"sources": sources, "destinations": targets}
        ends["all"] = np.concatenate([sources, targets])
        for side, table in degrees.items():
            counts = np.sort(np.unique(ends[side], return_counts=True)[1])
            name = f"{side} {when}"
            own[name], wanted[name] = np.sort(table[table > 0]), counts
            above = [sum(counts > x * counts.sum() / len(counts)) / len(counts) for x in GRID[::4]]
            own[f"{name} shares"] = np.round(shares_above(table)[::4], 9)
            wanted[f"{name} shares"] = np.round(np.array(above, dtype=np.float64), 9)
    return equal("degrees", own, wanted, against=EDGES)


def checked_sizes(found: list[Observation]) -> list[ResultCheck]:
    """Checks of this machine against its system calls, and of graphs whose files are here."""
    host = {one.metric: one.value for one in found if one.dims.get("of") == "host"}
    counted = {
        (one.metric, one.dims["dataset"]): one.value
        for one in found
        if one.dims.get("method") == "counted"
    }
    own: dict[str, Any] = {name: host[name] for name in ("memory", "processors")}
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    wanted = {"memory": pages, "processors": os.sysconf("SC_NPROCESSORS_ONLN")}
    for graph in GRAPHS:
        if ("edges", graph.name) in counted:
            events = datasets.open_events(graph.name, source="real")
            own[graph.name] = counted["edges", graph.name]
            wanted[graph.name] = events.src.numel()
            named = torch.cat([events.src, events.dst]).max()
            own[f"{graph.name} vertices"] = counted["vertices", graph.name] > int(named)
            wanted[f"{graph.name} vertices"] = True
    return [equal("counters", own, wanted, against="system calls and edges")]


def describe(found: Measurement, side: str, before: np.ndarray, after: np.ndarray) -> None:
    """Observe one side: its tail, that of the halved graph, and how far they are apart."""
    tail = tail_of(before)
    tails = {WHOLE: tail}
    if tail is not None:  # the same vertices, as far as a degree tells
        tails[HALF] = tail_of(after, max(1, round(SHARE * tail.least)))
    for setting, one in tails.items():
        if one is not None:
            about: dict[str, Any] = {"of": side, "setting": setting}
            found.observe("tail_exponent", one.laws.exponent, **about)
            found.observe("likelihood_z", float(one.laws.z), **about)
    found.observe("distribution_gap", rescaled_gap(before, after, 1), of=side, method="halved")
    for setting, degrees in ((WHOLE, before), (HALF, after)):
        for k, share in enumerate(shares_above(degrees)):
            found.observe("portion", share, of=side, setting=setting, bin=k)


MACHINE = "machine"
SHOWN = {"smoke": ("lastfm", "college-msg"), None: (*TWIN_NAMES, *HELD_NAMES)}
NEEDS_FILES = "needs the publishers' files of the four graphs"
SAME = 0.05
"""Difference of exponents, and share of vertices out of place, that still is the same shape."""


def counted_first(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Sizes that were counted here; as their publisher states them where there are none."""
    here = [one for one in entries if one["part"] == MACHINE]
    counted = {one["dataset"] for one in here if one["method"] == "counted"}
    return [o for o in here if o["method"] == "counted" or o["dataset"] not in counted]


def size(metric: str) -> MeasuredQuantity:
    """A size of each of the paper's graphs."""
    either = lambda method: method in ("counted", STATED)  # noqa: E731
    known = observed(metric, part=MACHINE, dataset=TWIN_NAMES, method=either)
    return known.keep(counted_first).pooled("last")


def mean_degree(ends: int) -> MeasuredQuantity:
    """Mean degree by one definition, of the published sizes."""
    return ends * size("edges") / size("vertices")


def real_graphs(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on real graphs: the paper's, if all are here; degrees of a twin are drawn."""
    real = real_data(entries, context)
    own = [one for one in real if one.row in PAPERS_GRAPHS]
    return own if {one["dataset"] for one in own} >= set(TWIN_NAMES) else real


def is_cut(found: float, text: float | str) -> bool:
    """Return True if a number, cut to the digits of a printed one, equals it."""
    value, half = printed(text)
    return value <= found < value + 2 * half


def as_in_table(
    quantity: MeasuredQuantity, *conventions: Callable[[float, Any], bool]
) -> outcomes.Rule:
    """The number of each of the paper's graphs is the printed one, all by one convention."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := outcomes.lacking_words(quantity, numbers, context, {"dataset": TWIN_NAMES}):
            return outcomes.RuleOutcome(lacking=lacking)
        texts = [context.claim.value[PRINTED_TITLE[dict(at)["dataset"]]] for at in numbers]
        pairs = list(zip(numbers.values(), texts, strict=True))
        fits = max(
            ([same(one.value, text) for one, text in pairs] for same in conventions), key=sum
        )
        sides = zip(
            outcomes.labels(context, numbers), (1 if fit else -1 for fit in fits), strict=True
        )
        return replace(outcomes.outcome(context, numbers), sides=tuple(sides))

    return rule


def twitter_edges(same: Callable[[float, Any], bool]) -> outcomes.Rule:
    """Billion edges of Twitter, printed by one convention."""
    edges = 1e-9 * size("edges").where(dataset="twitter")
    return lambda context: rules.compare_all(
        edges, lambda one: 1 if same(one.value, context.claim.value) else -1,
        report=rules.largest,
    )(context)  # fmt: skip


def of_shape(metric: str, **where: Any) -> MeasuredQuantity:
    """A number of the degrees of real graphs, on each side where there are two."""
    return observed(metric, per=("dataset", "of"), **where).keep(real_graphs)


DEGREES = {
    **{words: mean_degree(ends) for words, ends in DEFINITIONS.items()},
    "printed": size("edges").printed(lambda at: table1(at["dataset"]).degree),
}
LARGER = observed(
    "portion", per=("dataset", "of", "setting", "bin"), bin=lambda number: number is not None
).keep(prefer(real_data), gaps_of_failures)
"""Share of the vertices with more than a degree, on real graphs where there are any."""
GAP = observed("distribution_gap", per=("dataset", "of"), method="halved")


def at_degree(context: EvaluationContext, dims: Mapping[str, Any], one: Any) -> dict[str, Any]:
    """The degree, in means of the graph, that a share of vertices lies above."""
    return {"x": GRID[dims["bin"]], "counted": True}


class Table1(FormExperiment):
    forms, name = FORMS, "table1"
    device = "cpu"
    sources = {"portion": "counted"}
    group = ""
    timeout_s = {"smoke": 60, "quick": 90, "full": 600, "paper": 7200}
    headline, unit = 100 * GAP, "%"
    figure_forms = (
        Sweep(
            "table1", "Mean degrees by either definition, and as printed (Table 1)", DEGREES,
            series="of", x="{dataset}", gaps={"series": "E/V", "x": GRAPHS[0].title},
            more=lambda context, dims, one: {
                "counted": True, **({"paper": True} if dims["of"] == "printed" else {})
            },
            xlabel="", ylabel="mean degree", sort=False,
        ),
        Sweep(
            "table1_half", "Degrees before and after half of every neighbourhood is sampled",
            100 * LARGER.map(lambda share: share or math.nan),
            panel="{dataset}, {of}", series="{setting}", x="bin", more=at_degree,
            gaps={"series": "whole graph", "x": 1.0},
            xlabel="degree over the mean degree", ylabel="share of vertices with more, %",
            base=2, marks="few", names=False,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-tab1-vertices": as_in_table(size("vertices"), as_printed, is_cut),
        "tgcn-tab1-edges": as_in_table(size("edges"), as_printed, is_cut),
        "tgcn-tab1-avg-degree": combine.interpretations(
            "what a mean degree is changes from row to row",
            {
                words: as_in_table(
                    mean_degree(ends),
                    lambda found, text: same_printed(round(found, 1), plain(text)),
                )
                for words, ends in DEFINITIONS.items()
            },
        ),
        "tgcn-tab1-feature": combine.needs_gpu(
            as_in_table(
                observed("columns", part=MACHINE, of="edge features", method="counted",
                         dataset=TWIN_NAMES),
                lambda found, text: found == text,
            ), f"{NEEDS_FILES}; what the column means is not explained",
        ),
        "tgcn-s1-twitter-edge-count": combine.interpretations(
            "Table 1 prints 1.47",
            {
                "cut to three digits": twitter_edges(is_cut),
                "rounded, as in Table 1": twitter_edges(as_printed),
            },
        ),
        "tgcn-s61-power-law": rules.compare_all(
            of_shape("likelihood_z", setting=WHOLE),
            lambda one: (one.value > DECIDED) - (one.value < -DECIDED),
        ),
        "tgcn-s61-sampling-keeps-degree-dist": combine.interpretations(
            "the mean degree halves, so that only a shape can stay",
            {
                "degrees over their mean": rules.at_most(
                    of_shape("distribution_gap", method="halved"), SAME
                ),
                "exponent of the tail": rules.all_within(
                    of_shape("tail_exponent", setting=HALF)
                    / of_shape("tail_exponent", setting=WHOLE), 1 - SAME, 1 + SAME,
                ),
            },
        ),
        "tgcn-s61-testbed": rules.not_measurable("needs a DGX with eight V100"),
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        machine = self.cell({"part": MACHINE}, preset, group=MACHINE, timeout_s=60.0)
        return [
            machine,
            *(self.cell({"dataset": n}, preset, group=n) for n in by_preset(SHOWN, preset)),
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        if "dataset" not in cell.params:
            found = [*machine(), *sizes()]
            return Measurement(
                observations=found,
                data={
                    "dataset": "all",
                    "twin": False,
                    "scale": 1.0,
                    "note": "publishers' sizes, this machine",
                },
                notes=[f"{g.title}: no files here, sizes as published" for g in GRAPHS if far(g)],
                checks=checked_sizes(found),
            )
        graph = BY_NAME[str(cell.params["dataset"])]
        return measure_graph(graph, context)
