"""Smoothing and what it brings to the graph difference: a sweep of its length (3.2, 5.4)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import Any, ClassVar

import torch

from dgbench.datasets.transforms import factors, m_transform
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import encode_sequence
from dgbench.lab.charts import failures, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.printed import ledger
from dgbench.lab.result_checks import ResultCheck, equal, summarised
from dgbench.lab.table import number, rows_of
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.esdg.experiments.common import Changes, Occurrences, formula
from dgbench.systems.esdg.experiments.recount import (
    OVER_EDGES,
    RawEdges,
    agree,
    change_share,
    entry_keys,
    first_life,
    sequence_bytes,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, COUNTED, LEDGER, SnapshotGraph, panel

LIVES = (1, 2, 5, 10, 20, 40, 80)
MAX_ENTRIES = {"smoke": 1_000_000, "quick": 2_000_000, "full": 60_000_000, "paper": 200_000_000}
"""Entries of all snapshots that are made, so that counts are compared with what is really sent."""
SMOKE = ("flickr", "bitcoin-otc", "amlsim-20k-fanin200cycle200")
PAPER_GAIN = float(ledger(LEDGER)["abs-gd-transfer"]["high"])
GAINS = (4.0, PAPER_GAIN)


class Smoothing(Grid):
    paper = "esdg"
    name = "smoothing"
    title = "Smoothing and the graph difference"
    claims = (
        "esdg-s32-gd-bytes",
        "esdg-s54-window-equivalence",
    )
    device = "cpu"
    question = "How long must edges live for the difference to pay, and what does it save then?"
    reading = (
        "delta is (added + removed) / entries between neighbouring snapshots. Bytes are those of "
        "the matrices, with int64 indices and a float32 per entry unless said otherwise; the first "
        "snapshot goes plain. An edge life and a window of the same length keep the same entries, "
        "so one sweep serves both. Counts come from how long edges wait between occurrences; one "
        "length per graph is made and encoded, and its bytes must be those counted. The paper does "
        "not say whether the diagonal of A + I is sent; both are counted. The overlap of raw "
        "snapshots of a twin is an assumption."
    )

    axes: ClassVar = {"dataset": {"smoke": SMOKE, None: [graph.name for graph in COUNTED]}}
    timeout_s: ClassVar = {"paper": 900, None: 120}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Occurrences.of(graph, context.preset)
        lives, nodes = found.lives(), found.events.num_nodes
        counted = Measurement(data=found.data)
        counted.observe("vertices", nodes)
        counted.observe("snapshots", lives.steps)
        counted.observe("edges", int(lives.raw().sum()))
        swept = {life: Changes.of(lives, life) for life in lengths(graph)}
        for life, changes in swept.items():
            _observe_bytes(counted, life, changes, nodes)
            counted.observe("portion", changes.share, of="changed", life=life)
        for gain in GAINS:
            shortest = _first_life(lives, gain)
            counted.observe("smoothing_length", shortest, of="shortest", gain=gain)
        edges = RawEdges(found)
        counted.checks = _recounted(edges, counted, list(swept), nodes)
        with one_thread():  # snapshots of a few thousand entries, by the hundred
            _make(counted, found, edges, graph.edge_life, MAX_ENTRIES[context.preset], swept)
        return counted

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("smoothing",
                "Bytes of plain snapshots over bytes by difference, by length of smoothing",
                gain_points, xlabel="snapshots that an edge lives, or window",
                ylabel="fewer bytes (x)", hline=PAPER_GAIN,
                hline_label=f"the paper's most, {PAPER_GAIN}x"),
            sweep("smoothing_nnz", "Smoothed over raw edges, by length of smoothing", nnz_points,
                xlabel="snapshots that an edge lives, or window", ylabel="smoothed / raw edges",
                guide_slope=1.0),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment="smoothing")
        if not found:
            return ""
        shortest = {"of": "shortest", "gain": PAPER_GAIN}
        lives = sorted(filter(None, (number(r, "smoothing_length", **shortest) for r in found)))
        raw = {r.params["dataset"]: gain(r, 1, "forced") for r in found}
        lost = [name for name, value in raw.items() if value < 1]
        simulator = [raw[name] for name in raw if name.startswith("amlsim-")]
        text = (
            f"A gain of {PAPER_GAIN}x needs edges that live {lives[0]} to {lives[-1]} snapshots "
            f"(median {median(lives):g}). "
            if lives
            else f"No graph reaches a gain of {PAPER_GAIN}x. "
        )
        text += (
            f"Differences of raw snapshots are larger than the snapshots on {len(lost)} of "
            f"{len(raw)} graphs ({min(raw.values()):.2g}x to {max(raw.values()):.2g}x); sent plain "
            "then, they gain nothing."
        )
        if simulator and max(simulator) < 1:
            text += (
                f" That holds for small runs of the paper's own generator, too "
                f"({max(simulator):.2g}x), so the paper's up to 2x for CD-GCN needs snapshots that "
                "repeat edges or add them up."
            )
        loops = [
            gain(r, 1, "loops_sent", "loops_plain")
            for r in found
            if BY_NAME[r.params["dataset"]].printed
        ]
        if loops:
            text += (
                f" With the loops of A + I sent along, raw snapshots of the paper's graphs (twins) "
                f"would gain {min(loops):.2g}x to {max(loops):.2g}x."
            )
        return text


def lengths(graph: SnapshotGraph) -> list[int]:
    """Lengths that are swept, and the graph's own two. In the longest ones no edge may ever die."""
    return sorted({*LIVES, graph.edge_life, graph.window})


def _observe_bytes(counted: Measurement, life: int, changes: Changes, nodes: int) -> None:
    """Edges and bytes of one length."""
    counted.observe("edges", int(changes.entries.sum()), life=life)
    counted.observe("edges", int(changes.entries[0]), of="first", life=life)
    changed = int((changes.added[1:] + changes.removed[1:]).sum())
    counted.observe("changed_edges", changed, life=life)
    sent = {
        "plain": changes.plain(),
        "forced": changes.sent(fallback=False),
        "sent": changes.sent(),
        "plain32": changes.plain("int32"),
        "sent32": changes.sent(index="int32"),
        "loops_plain": changes.plain() + 20 * nodes * len(changes.entries),
        "loops_sent": changes.sent(loops=nodes),
    }
    for format_, count in sent.items():
        counted.observe("topology_sent", count, format=format_, life=life)


def _first_life(lives: Any, wanted: float) -> int:
    """The shortest life whose differences take a `wanted`th of the bytes, or 0."""
    low, high = 1, max(1, lives.steps - 1)
    if formula(Changes.of(lives, high).share) < wanted:
        return 0
    while low < high:  # longer lives change less
        middle = (low + high) // 2
        if formula(Changes.of(lives, middle).share) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


def _recounted(
    edges: RawEdges, own: Measurement, lives: list[int], nodes: int
) -> list[ResultCheck]:
    """Counts and bytes of every length against those of a window that slides over the edges."""
    wanted, shares = Measurement(), Measurement()
    wanted.observe("edges", edges.count)
    wanted.observe("snapshots", len(edges.snapshots))
    for life in lives:
        changes = edges.changes(life)
        entries = int(changes.entries.sum())
        wanted.observe("edges", entries, life=life)
        wanted.observe("edges", int(changes.entries[0]), of="first", life=life)
        changed = int((changes.added + changes.removed)[1:].sum())
        wanted.observe("changed_edges", changed, life=life)
        sent = {
            "plain": 20 * entries,
            "forced": sum(sequence_bytes(changes, fallback=False)),
            "sent": sum(sequence_bytes(changes)),
            "plain32": 12 * entries,
            "sent32": sum(sequence_bytes(changes, index_bytes=4)),
            "loops_plain": 20 * (entries + nodes * len(edges.snapshots)),
            "loops_sent": sum(sequence_bytes(changes, loops=nodes)),
        }
        for format_, count in sent.items():
            wanted.observe("topology_sent", count, format=format_, life=life)
        shares.observe("portion", change_share(changes), of="changed", life=life)
    for gain in GAINS:
        first = first_life(
            edges,
            lambda c, n=gain: 20 / (4 + 16 * change_share(c)) >= n,
            number(own, "smoothing_length", of="shortest", gain=gain),
            max(1, len(edges.snapshots) - 1),
        )
        wanted.observe("smoothing_length", first, of="shortest", gain=gain)
    return [
        agree(own, wanted, against=OVER_EDGES),
        agree(own, shares, against=OVER_EDGES, of="shares", tolerance=1e-12),
    ]


def _make(
    counted: Measurement,
    found: Occurrences,
    edges: RawEdges,
    wanted: int,
    most: int,
    swept: dict[int, Changes],
) -> None:
    """Make one length both ways and encode it: what is really sent, and how alike both are."""
    fits = [l for l, c in swept.items() if c.entries.sum() <= most]  # noqa: E741
    if not fits:
        return
    life = wanted if wanted in fits else max(fits)
    lived, averaged = found.snapshots(life=life), m_transform(found.snapshots(), life)
    sent = {
        fallback: sum(d.nbytes for d in encode_sequence(lived, fallback=fallback))
        for fallback in (True, False)
    }
    same = sum(_same_entries(a, b) for a, b in zip(lived, averaged, strict=True))
    counted.observe("smoothing_length", life, of="made")
    counted.observe("topology_sent", sent[True], of="made", format="sent")
    counted.observe("topology_sent", sent[False], of="made", format="forced")
    counted.observe("snapshots", len(lived), of="made")
    counted.observe("snapshots", same, of="equal")
    gap = _normalised_gap(lived[-1], averaged[-1])
    counted.observe("relative_error", gap, of="normalised")
    changes = edges.changes(life)
    expected = {fallback: sum(sequence_bytes(changes, fallback=fallback)) for fallback in sent}
    steps = {*random.SystemRandom().sample(range(len(lived)), min(3, len(lived))), len(lived) - 1}
    entries = [
        equal(
            "entries", entry_keys(made[t]), edges.window(t, life), against=f"edges of {life} steps"
        )
        for t in sorted(steps)
        for made in (lived, averaged)
    ]
    counted.checks += [equal("bytes", sent, expected, against=OVER_EDGES), *summarised(entries)]


def _same_entries(a: Csr, b: Csr) -> bool:
    return torch.equal(a.indptr, b.indptr) and torch.equal(a.indices, b.indices)


def _normalised_gap(lived: Csr, averaged: Csr) -> float:
    """||x - y|| / ||y|| of the normalised entries, the diagonal included: only values differ."""

    def entries(csr: Csr) -> torch.Tensor:
        rows, cols = (scale.double() for scale in factors(csr))
        weights = rows.repeat_interleave(csr.indptr.diff()) * cols[csr.indices.long()]
        if csr.values is not None:
            weights = weights * csr.values.double()
        return torch.cat([weights, rows * cols])

    one, two = entries(lived), entries(averaged)
    return float((one - two).norm() / two.norm())


def gain(row: Any, life: int, sent: str = "sent", plain: str = "plain") -> float:
    """Bytes of plain snapshots over bytes by difference, of a length that was swept.

    Args:
        sent: `forced` sends differences always, also where they are larger; `loops_sent` those of
            A + I, over `loops_plain`.
    """
    top, bottom = (number(row, "topology_sent", format=f, life=life) for f in (plain, sent))
    return top / bottom


def gain_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Gain by length, without falling back, so that losses show."""
    return _points(rows, lambda row, life: gain(row, life, "forced"))


def nnz_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Smoothed over raw edges by length."""
    return _points(rows, lambda row, life: number(row, "edges", life=life) / number(row, "edges"))


def _points(rows: Sequence[Any], y_of: Any) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment="smoothing"):
        title, graph = panel(row), BY_NAME[row.params["dataset"]]
        for life in LIVES:
            points.append(
                mark(
                    row,
                    panel="real graphs" if graph.real else "the paper's graphs",
                    series=title,
                    x=life,
                    y=y_of(row, life),
                    counted=True,
                )
            )
    for row in failures(rows, "smoothing"):
        graph = BY_NAME[row.params["dataset"]]
        points.append(
            {
                "panel": "real graphs" if graph.real else "the paper's graphs",
                "series": graph.title,
                "x": 1,
                "failed": f"{row.status}: {row.reason}",
            }
        )
    return points
