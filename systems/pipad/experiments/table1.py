"""Table 1: sizes of the seven graphs, raw and smoothed (section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dgbench import datasets
from dgbench.datasets.transforms import equal_windows
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext, real_data, unnoted
from dgbench.lab.figure_forms import FigureForm
from dgbench.lab.printed import same_printed
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    COUNTED,
    FORMS,
    GRAPHS,
    IN_LEDGER,
    FrameGraph,
    open_graph,
)
from dgbench.systems.pipad.recounts import drawn, edges_of

SIZES = {
    "N": observed("vertices", per="dataset").pooled("last"),
    "E": observed("edges", per="dataset", of="raw").pooled("last"),
    "E_smoothed": observed("edges", per="dataset", of="smoothed").pooled("last"),
    "T": observed("snapshots", per="dataset").pooled("last"),
}
"""Column of the table -> its counts, of the last row of a graph."""
JUDGED = ("N", "E", "T")
"""Columns that a graph decides: D is a setting of ours, and the edge-life was chosen so that
E_smoothed comes out."""


def printed_beside(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, Any]:
    """Printed number of a graph's size, as `paper_vs_measured` draws it."""
    graph, key = BY_NAME[dims["dataset"]], dims["of"]
    return {"paper": graph.printed[key], "measured": int(one.value), "evidence": "counted",
            "unit": "count"}  # fmt: skip


def sizes_match(dataset: str, *, whole_digits: bool) -> outcomes.Rule:
    """Every printed number that one graph decides, at its printed digits.

    Args:
        whole_digits: zeros behind the digits of a whole number are digits, not a rounded rest.
    """

    def matches(key: str, value: int, digits: Any) -> bool:
        if whole_digits and str(digits).isdigit():
            return value == int(digits)
        return same_printed(value, BY_NAME[dataset].printed[key])

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        found = {
            key: one
            for key in JUDGED
            for one in SIZES[key].where(dataset=dataset).estimates(context).values()
        }
        if not found:
            return outcomes.RuleOutcome(lacking="the graph was not opened in this run")
        digits = context.claim.value["as_printed"]
        counts = {key: int(one.value) for key, one in found.items()}
        sides = tuple(
            (key, 1 if matches(key, count, digits["S" if key == "T" else key]) else -1)
            for key, count in counts.items()
        )
        return outcomes.RuleOutcome(sides, found["N"].rows, counts)

    return rule


def printed_sizes(dataset: str) -> outcomes.Rule:
    """The sizes of a graph; two interpretations where a zero may be a digit or a rounded rest."""
    rounded, exact = (sizes_match(dataset, whole_digits=whole) for whole in (False, True))

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        with unnoted():
            alike = rounded(context).sides == exact(context).sides
        if alike:
            return rounded(context)
        return combine.interpretations(
            "the paper does not tell a rounded zero",
            {"zeros may be rounded": rounded, "every digit counts": exact},
        )(context)

    return rule


class Table1(FormExperiment):
    forms, name = FORMS, "table1"
    device = "cpu"
    axes = {
        "dataset": {
            preset: [name for name in names if BY_NAME[name].printed]
            for preset, names in COUNTED.items()
        }
    }
    timeout_s = 300
    headline = SIZES["E"].keep(real_data)
    figure_forms = (
        FigureForm(
            "paper_vs_measured", "table1", "Sizes of the real graphs, printed and counted",
            {key: quantity.keep(real_data) for key, quantity in SIZES.items()},
            {"claim": "{dataset} {of}"}, value="measured", more=printed_beside,
        ),
    )  # fmt: skip
    claims = {
        **{
            f"pipad-tab1-{IN_LEDGER.get(name, name)}": printed_sizes(name)
            for name in (graph.name for graph in GRAPHS)
        },
        "pipad-s51-feature-dims": rules.all_equal(
            observed("length", per=("dataset", "size"), of=("input", "hidden")),
            lambda value, at: value[at["size"]][at["of"]],
        ),
    }

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset, whole=True)
        measured = Measurement(data=describe(data))
        measured.observe("vertices", data.num_nodes)
        measured.observe("snapshots", len(data))
        measured.observe("length", data.features.shape[2], of="input")
        measured.observe("length", graph.hidden_dim, of="hidden")
        if data.topology[0] is data.topology[-1]:
            # One topology for all snapshots: smoothing unites it with itself.
            links, found = data.topology[0].nnz, len(edges_of(data.topology[0]))
            edges = dict.fromkeys(("raw", "smoothed"), links * len(data))
            checks = [equal("counters", links, found, against="set of edges")]
        else:
            edges, checks = _edges(graph, context.preset, len(data))
        for of, count in edges.items():
            measured.observe("edges", count, of=of)
        shape = [*data.features.shape[:2], data.topology[0].num_rows]
        wanted = [len(data), data.num_nodes, data.num_nodes]
        measured.checks = [equal("counters", shape, wanted, against="arrays"), *checks]
        return measured


def _edges(
    graph: FrameGraph, preset: Preset, snapshots: int
) -> tuple[dict[str, int], list[ResultCheck]]:
    """Distinct edges summed over raw and over smoothed snapshots, self edges included.

    Checked against the distinct events of all windows, and of one drawn window that is smoothed.
    """
    events = datasets.open_events(graph.name, scale=graph.scale(preset))
    bins, bounds = equal_windows(events.t, snapshots)
    raw, smoothed = (
        edge_snapshots(
            events.src, events.dst, bins.long(), snapshots, events.num_nodes,
            edge_life=life, drop_self_loops=False,
        )
        for life in (1, graph.edge_life)
    )  # fmt: skip
    counted = {"raw": sum(csr.nnz for csr in raw), "smoothed": sum(csr.nnz for csr in smoothed)}
    inside = (events.t >= bounds[bins]) & (events.t <= bounds[bins + 1])
    keys = events.dst.numpy().astype(np.int64) * events.num_nodes + events.src.numpy()
    window, t = bins.numpy(), drawn(snapshots, 1)[0]
    distinct = np.unique(np.stack([window, keys]), axis=1).shape[1]
    wanted = np.unique(keys[(window <= t) & (window > t - graph.edge_life)])
    against = "distinct events of a window"
    return counted, [
        equal("windows", inside, torch.ones_like(inside), against="edges of the windows"),
        equal("counters", counted["raw"], distinct, against="distinct events of all windows"),
        equal("edges", edges_of(smoothed[t]), wanted, against=against),
    ]
