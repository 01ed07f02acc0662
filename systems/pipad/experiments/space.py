"""Space of the formats, change between snapshots and overlap of partitions (3.1, 4.1, 5.4).

Everything here is counted, so it is exact and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.lab.charts import chart
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.pipad.experiments.common import COUNTED, data_of, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME, panel
from dgbench.systems.pipad.format_words import count_formats, mean_change, partition_words
from dgbench.systems.pipad.recounts import (
    drawn,
    recount_change,
    recount_formats,
    recount_partition,
)

S_OPTIONS = (2, 4, 8)


def words(row: Any) -> dict[tuple[str, int | None], int]:
    """Words of a graph by format and snapshots of a partition."""
    return Table.of([row]).where("words").numbers("format", "snapshots_together")


def is_between(row: Any) -> bool:
    """CSR <= sliced CSR <= COO on one graph."""
    found = words(row)
    return found["csr", None] <= found["sliced", None] <= found["coo", None]


def partition_shares(row: Any) -> dict[int, float]:
    """Words of partitions over those of the same snapshots whole, by size."""
    found = words(row)
    return {
        size: found["partition", size] / whole
        for size in S_OPTIONS
        if (whole := found["whole", size])
    }


def format_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Words per entry of the three formats, by graph."""
    return [
        {
            "series": title,
            "x": panel(row),
            "y": words(row)[key, None] / max(1, Table.of([row]).where("edges").one().value),
            "counted": True,
            "row_ids": [row.id],
        }
        for key, title in (("csr", "CSR"), ("sliced", "sliced CSR"), ("coo", "COO"))
        for row in rows_of(rows, experiment="space")
    ]


def transfer_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Words of a partition over those of its snapshots whole, by partition size and graph."""
    return [
        {"series": panel(row), "x": size, "y": share, "counted": True, "row_ids": [row.id]}
        for row in rows_of(rows, experiment="space")
        for size, share in partition_shares(row).items()
    ]


class Space(Grid):
    paper = "pipad"
    name = "space"
    title = "Sections 4.1 and 5.4: words of the formats"
    claims = (
        "pipad-s1-topology-slow-change",
        "pipad-s41-space-sliced-csr",
        "pipad-s41-space-csr",
        "pipad-s41-space-coo",
        "pipad-s41-slice-cap",
        "pipad-s41-space-between",
        "pipad-s41-overlap-transfer-less",
        "pipad-s54-youtube-space",
    )
    device = "cpu"
    question = "What do sliced CSR and the overlap of snapshots save in space and transfer?"
    reading = (
        "A word is four bytes. Values are counted, as in the paper's formulas, although the "
        "factored normalisation needs none. Overlap rate: entries in all snapshots of a group "
        "over the mean entries of a snapshot."
    )
    axes = {"dataset": COUNTED}
    timeout_s = 300
    charts = (
        chart(
            "sweep",
            "space",
            "Words per stored entry, by format",
            format_points,
            xlabel="graph",
            ylabel="words per entry (log)",
            ylog=True,
        ),
        chart(
            "sweep",
            "overlap_transfer",
            "Topology words of a partition against whole snapshots",
            transfer_points,
            xlabel="snapshots per partition",
            ylabel="share of the words of whole snapshots",
            base=2,
            ylog=False,
            hline=1.0,
            hline_label="whole snapshots",
        ),
    )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset, whole=True)
        raw = open_graph(graph, context.preset, whole=True, edge_life=1)
        found = count_formats(list(data.topology))
        measured = Measurement(data=data_of(data), checks=[recount_formats(data.topology, found)])
        measured.observe("topology_change", mean_change(data), of="smoothed")
        measured.observe("topology_change", mean_change(raw), of="raw")
        measured.observe("sparsity", data.num_nodes * len(data) / max(1, found.entries))
        measured.observe("edges", found.entries)
        measured.observe("slices", found.slices)
        measured.observe("length", found.longest_slice, of="slice")
        measured.observe("snapshots", len(data))
        measured.observe("vertices", data.num_nodes)
        for name, count in found.words.items():
            measured.observe("words", count, format=name)
            measured.observe("mismatches", found.mismatches[name], format=name)
        for size in S_OPTIONS:
            partition, whole, rate = partition_words(data, size)
            measured.observe("overlap", rate, snapshots_together=size)
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

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment="space")
        if not found:
            return ""
        between = sum(map(is_between, found))
        saved = sum(partition_shares(row).get(4, 1.0) < 1 for row in found)
        return (
            f"Sliced CSR lies between CSR and COO on {between} of {len(found)} graphs; "
            f"moving partitions of four as overlap and remainders takes fewer words on "
            f"{saved} of {len(found)}."
        )
