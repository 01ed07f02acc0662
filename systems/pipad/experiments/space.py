"""Space of the formats, change between snapshots and overlap of partitions (3.1, 4.1, 5.4).

Everything here is counted, so it is exact and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dgbench.datasets import SnapshotSequence
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import coo_words, csr_words, slice_csr
from dgbench.lab.compare import select
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.training import coordinates
from dgbench.systems.pipad.experiments.common import data_of, names, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME
from dgbench.systems.pipad.partitions import split
from dgbench.systems.pipad.recounts import (
    drawn,
    recount_change,
    recount_formats,
    recount_partition,
)

S_OPTIONS = (2, 4, 8)
MOST_GROUPS = 24
"""Groups looked at per partition size, spread evenly; more would not change a mean in sight."""


class Space(Experiment):
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

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=300,
            )
            for name in names(preset)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset, whole=True)
        raw = open_graph(graph, context.preset, whole=True, edge_life=1)
        counters = format_words(list(data.topology))
        values = {
            "change_smoothed": mean_change(data),
            "change_raw": mean_change(raw),
            "vertices_per_edge": data.num_nodes * len(data) / max(1, counters["nnz"]),
        }
        for size in S_OPTIONS:
            found = partition_words(data, size)
            values[f"overlap_rate_{size}"] = found.pop("rate")
            counters |= {f"{key}_{size}": int(value) for key, value in found.items()}
        checks = [recount_formats(data.topology, counters)]
        size = min(max(S_OPTIONS), len(data))
        for first in drawn(len(data) - size + 1, 1):
            csrs = [data.topology[t] for t in range(first, first + size)]
            checks += recount_partition(csrs, PartTopology.build(csrs))
        for sequence in (data, raw):
            for t in drawn(len(sequence) - 1, 1):
                pair = sequence.topology[t : t + 2]
                checks.append(recount_change(*pair, mean_change(sequence.slice(t, t + 2))))
        return Measurement(values=values, counters=counters, checks=checks, data=data_of(data))

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="space",
                title="Words per stored entry, by format",
                points=format_points,
                options={
                    "xlabel": "graph",
                    "ylabel": "words per entry (log)",
                    "ylog": True,
                },
            ),
            FigureSpec(
                kind="sweep",
                name="overlap_transfer",
                title="Topology words of a partition against whole snapshots",
                points=transfer_points,
                options={
                    "xlabel": "snapshots per partition",
                    "ylabel": "share of the words of whole snapshots",
                    "base": 2,
                    "ylog": False,
                    "hline": 1.0,
                    "hline_label": "whole snapshots",
                },
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment="space")
        if not found:
            return ""
        between = [r for r in found if is_between(r)]
        saved = [r for r in found if saves(r, 4)]
        return (
            f"Sliced CSR lies between CSR and COO on {len(between)} of {len(found)} graphs; "
            f"moving partitions of four as overlap and remainders takes fewer words on "
            f"{len(saved)} of {len(found)}."
        )


def format_words(topology: Sequence[Csr]) -> dict[str, int]:
    """Words of all snapshots as CSR, sliced CSR and COO, with entries and slices."""
    total = dict.fromkeys(("nnz", "slices", "words_csr", "words_sliced", "words_coo"), 0)
    total |= {"snapshots": len(topology), "vertices": topology[0].num_rows if topology else 0}
    total |= {"longest_slice": 0, "mismatches_csr": 0, "mismatches_sliced": 0, "mismatches_coo": 0}
    for csr in topology:
        sliced = slice_csr(csr)
        # The printed formulas against the lengths of arrays that are really there, values included.
        stored = {
            "csr": csr.indptr.numel() + 2 * csr.indices.numel(),
            "sliced": sliced.row_indices.numel()
            + sliced.slice_offsets.numel()
            + 2 * sliced.indices.numel(),
            "coo": sum(array.numel() for array in coordinates(csr)) + csr.nnz,
        }
        formula = {
            "csr": csr_words(csr),
            "sliced": sliced.words(),
            "coo": coo_words(csr.nnz),
        }
        for key, words in formula.items():
            total[f"words_{key}"] += words
            total[f"mismatches_{key}"] += int(words != stored[key])
        if sliced.num_slices:
            longest = int(sliced.slice_offsets.diff().max())
            total["longest_slice"] = max(total["longest_slice"], longest)
        total["nnz"] += csr.nnz
        total["slices"] += sliced.num_slices
    return total


def mean_change(data: SnapshotSequence) -> float:
    """Mean over adjacent snapshots of 1 - |A and B| / |A or B|."""
    changes = []
    for before, after in pairwise(data.topology):
        if before is after:
            changes.append(0.0)
            continue
        shared = PartTopology.build([before, after]).over.nnz
        union = before.nnz + after.nnz - shared
        changes.append(1 - shared / union if union else 0.0)
    return sum(changes) / max(1, len(changes))


def partition_words(data: SnapshotSequence, size: int) -> dict[str, float]:
    """Words of partitions of `size` snapshots and of the same snapshots whole, and overlap rate."""
    groups = [g for g in split(range(len(data)), size) if len(g) == size]
    step = max(1, len(groups) // MOST_GROUPS)
    parts_words = whole_words = 0
    rates = []
    for group in groups[::step]:
        csrs = [data.topology[t] for t in group]
        parts = PartTopology.build(csrs)
        parts_words += parts.words()
        whole_words += sum(slice_csr(csr).words() for csr in csrs)
        rates.append(parts.overlap_rate())
    mean = sum(rates) / max(1, len(rates))
    return {"words_partition": parts_words, "words_whole": whole_words, "rate": mean}


def is_between(row: Any) -> bool:
    """CSR <= sliced CSR <= COO on one graph."""
    c = row.counters
    return c["words_csr"] <= c["words_sliced"] <= c["words_coo"]


def saves(row: Any, size: int) -> bool:
    """A partition takes fewer words than its snapshots whole."""
    return row.counters[f"words_partition_{size}"] < row.counters[f"words_whole_{size}"]


def format_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Words per entry of the three formats, by graph."""
    return [
        {
            "series": title,
            "x": _title(row),
            "y": row.counters[f"words_{key}"] / max(1, row.counters["nnz"]),
            "counted": True,
            "row_ids": [row.id],
        }
        for key, title in (("csr", "CSR"), ("sliced", "sliced CSR"), ("coo", "COO"))
        for row in select(rows, experiment="space")
    ]


def transfer_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Words of a partition over those of its snapshots whole, by partition size and graph."""
    return [
        {
            "series": _title(row),
            "x": size,
            "y": row.counters[f"words_partition_{size}"] / row.counters[f"words_whole_{size}"],
            "counted": True,
            "row_ids": [row.id],
        }
        for row in select(rows, experiment="space")
        for size in S_OPTIONS
        if row.counters[f"words_whole_{size}"]
    ]


def _title(row: Any) -> str:
    title = BY_NAME[row.params["dataset"]].title
    return f"{title} (twin)" if row.data.get("twin") else title
