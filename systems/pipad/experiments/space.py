"""Space of the formats, change between snapshots and overlap of partitions (3.1, 4.1, 5.4).

Everything here is counted, so it is exact and the same on every machine.
"""

from __future__ import annotations

from typing import Any

from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed, of_rows
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.pipad.experiments.settings import BY_NAME, COUNTED, FORMS, open_graph
from dgbench.systems.pipad.format_words import count_formats, mean_change, partition_words
from dgbench.systems.pipad.recounts import drawn, recount_change, recount_formats, recount_partition

S_OPTIONS = (2, 4, 8)


def words(of: Any, **more: Any) -> MeasuredQuantity:
    """Words of a format by graph."""
    return observed("words", per="dataset", format=of, **more)


def is_between(row: Any) -> bool:
    """Return True if CSR <= sliced CSR <= COO on one graph."""
    found = Table.of([row]).where("words").numbers("format", "snapshots_together")
    return bool(found["csr", None] <= found["sliced", None] <= found["coo", None])


SHARE = words("partition", snapshots_together=S_OPTIONS) / words(
    "whole", snapshots_together=S_OPTIONS
)
"""Words of partitions over those of the same snapshots whole."""
PER_ENTRY = words(("csr", "sliced", "coo")) / observed("edges", per="dataset")
CHANGE = 100 * observed("topology_change")


class Space(FormExperiment):
    forms, name = FORMS, "space"
    device = "cpu"
    axes = {"dataset": COUNTED}
    timeout_s = 300
    headline = 100 * SHARE
    unit = "%"
    figure_forms = (
        Sweep(
            "space", "Words per stored entry, by format", PER_ENTRY,
            series="{format}", x="{dataset}",
            xlabel="graph", ylabel="words per entry (log)", ylog=True,
        ),
        Sweep(
            "overlap_transfer", "Topology words of a partition against whole snapshots", SHARE,
            series="{dataset}", x="snapshots_together", xlabel="snapshots per partition",
            ylabel="share of the words of whole snapshots", base=2, ylog=False, hline=1.0,
            hline_label="whole snapshots",
        ),
    )  # fmt: skip
    claims = {
        "pipad-s1-topology-slow-change": combine.shown_beside(
            rules.near_claim(CHANGE.where(of="smoothed")),
            {"raw snapshots change by": CHANGE.where(of="raw")}, "%",
        ),
        **{
            f"pipad-s41-space-{name}": rules.all_equal(
                observed("mismatches", per="dataset", format=of), 0
            )
            for name, of in (("sliced-csr", "sliced"), ("csr", "csr"), ("coo", "coo"))
        },
        "pipad-s41-slice-cap": rules.at_most_claim(
            observed("length", per="dataset", of="slice").pooled("max")
        ),
        "pipad-s41-space-between": rules.on_most(of_rows(is_between, per="dataset"), bool, "graph"),
        "pipad-s41-overlap-transfer-less": rules.all_below(SHARE, 1.0),
        "pipad-s54-youtube-space": rules.all_below(
            words("sliced").where(dataset="youtube") / words("csr").where(dataset="youtube"), 1.0
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset, whole=True)
        raw = open_graph(graph, context.preset, whole=True, edge_life=1)
        found = count_formats(list(data.topology))
        measured = Measurement(data=describe(data), checks=[recount_formats(data.topology, found)])
        measured.observe("topology_change", mean_change(data), of="smoothed")
        measured.observe("topology_change", mean_change(raw), of="raw")
        measured.observe("edges", found.entries)
        measured.observe("length", found.longest_slice, of="slice")
        for name, count in found.words.items():
            measured.observe("words", count, format=name)
            measured.observe("mismatches", found.mismatches[name], format=name)
        for size in S_OPTIONS:
            partition, whole = partition_words(data, size)
            measured.observe("words", partition, format="partition", snapshots_together=size)
            measured.observe("words", whole, format="whole", snapshots_together=size)
        size = min(max(S_OPTIONS), len(data))
        for first in drawn(len(data) - size + 1, 1):
            csrs = [data.topology[t] for t in range(first, first + size)]
            measured.checks += recount_partition(csrs, PartTopology.build(csrs))
        for sequence in (data, raw):
            for t in drawn(len(sequence) - 1, 1):
                pair = sequence.topology[t : t + 2]
                change = mean_change(sequence.slice(t, t + 2))
                measured.checks.append(recount_change(*pair, change))
        return measured
