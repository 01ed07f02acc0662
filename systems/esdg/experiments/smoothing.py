"""Smoothing and what it brings to the graph difference: a sweep of its length (3.2, 5.4)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from dgbench.datasets.transforms import factors, m_transform
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import encode_sequence
from dgbench.lab.compare import select
from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.esdg.experiments.common import (
    Changes,
    Occurrences,
    failures,
    formula,
    one_thread,
    panel,
)
from dgbench.systems.esdg.experiments.recount import (
    OVER_EDGES,
    RawEdges,
    change_share,
    entry_keys,
    first_life,
    sequence_bytes,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, COUNTED, Graph
from dgbench.systems.esdg.oracle import summary

LIVES = (1, 2, 5, 10, 20, 40, 80)
MOST_ENTRIES = {"smoke": 1_000_000, "quick": 2_000_000, "full": 60_000_000, "paper": 200_000_000}
"""Entries of all snapshots that are made, so that counts are compared with what is really sent."""
GAINS = {"life_4x": 4.0, "life_4.1x": 4.1}
SMOKE = ("flickr", "bitcoin-otc", "amlsim-20k-fanin200cycle200")
PAPER_GAIN = 4.1


class Smoothing(Experiment):
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

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        names = SMOKE if preset == "smoke" else [graph.name for graph in COUNTED]
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=900 if preset == "paper" else 120,
            )
            for name in names
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Occurrences.of(graph, context.preset)
        lives, nodes = found.lives(), found.events.num_nodes
        counters = {"N": nodes, "T": lives.steps, "nnz": int(lives.raw().sum())}
        values: dict[str, float] = {}
        swept = {life: Changes.of(lives, life) for life in lengths(graph)}
        for life, changes in swept.items():
            counters |= _bytes(life, changes, nodes)
            values[f"delta {life}"] = changes.share
        for name, gain in GAINS.items():
            counters[name] = _first_life(lives, gain)
        edges = RawEdges(found)
        checks = _recounted(edges, counters, values, list(swept), nodes)
        with one_thread():  # snapshots of a few thousand entries, by the hundred
            made = _made(found, edges, graph.edge_life, MOST_ENTRIES[context.preset], swept)
        counters |= made[0]
        values |= made[1]
        return Measurement(
            values=values,
            units={key: "changed entries per entry" for key in values if key.startswith("delta")},
            counters=counters,
            data=found.data,
            checks=[*checks, *made[2]],
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="smoothing",
                title="Bytes of plain snapshots over bytes by difference, by length of smoothing",
                points=gain_points,
                options={
                    "xlabel": "snapshots that an edge lives, or window",
                    "ylabel": "fewer bytes (x)",
                    "hline": PAPER_GAIN,
                    "hline_label": "the paper's most, 4.1x",
                },
            ),
            FigureSpec(
                kind="sweep",
                name="smoothing_nnz",
                title="Smoothed over raw edges, by length of smoothing",
                points=nnz_points,
                options={
                    "xlabel": "snapshots that an edge lives, or window",
                    "ylabel": "smoothed / raw edges",
                    "guide_slope": 1.0,
                },
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment="smoothing")
        if not found:
            return ""
        lives = sorted(r.counters["life_4.1x"] for r in found if r.counters["life_4.1x"])
        raw = {r.params["dataset"]: gain(r, 1, forced=True) for r in found}
        lost = [name for name, value in raw.items() if value < 1]
        simulator = [raw[name] for name in raw if name.startswith("amlsim-")]
        text = (
            f"A gain of 4.1x needs edges that live {lives[0]} to {lives[-1]} snapshots "
            f"(median {median(lives):g}). "
            if lives
            else "No graph reaches a gain of 4.1x. "
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
        loops = [gain(r, 1, loops=True) for r in found if BY_NAME[r.params["dataset"]].printed]
        if loops:
            text += (
                f" With the loops of A + I sent along, raw snapshots of the paper's graphs (twins) "
                f"would gain {min(loops):.2g}x to {max(loops):.2g}x."
            )
        return text


def lengths(graph: Graph) -> list[int]:
    """Lengths that are swept, and the graph's own two. In the longest ones no edge may ever die."""
    return sorted({*LIVES, graph.edge_life, graph.window})


def _bytes(life: int, changes: Changes, nodes: int) -> dict[str, int]:
    """Counters of one length; their names end in it."""
    return {
        f"entries {life}": int(changes.entries.sum()),
        f"changed {life}": int((changes.added[1:] + changes.removed[1:]).sum()),
        f"first {life}": int(changes.entries[0]),
        f"plain {life}": changes.plain(),
        f"forced {life}": changes.sent(fallback=False),
        f"sent {life}": changes.sent(),
        f"plain32 {life}": changes.plain("int32"),
        f"sent32 {life}": changes.sent(index="int32"),
        f"loops_plain {life}": changes.plain() + 20 * nodes * len(changes.entries),
        f"loops_sent {life}": changes.sent(loops=nodes),
    }


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
    edges: RawEdges,
    counters: dict[str, int],
    values: dict[str, float],
    lives: list[int],
    nodes: int,
) -> list[ResultCheck]:
    """Counts and bytes of every length against those of a window that slides over the edges."""
    wanted = {"nnz": edges.count, "T": len(edges.snapshots)}
    shares = {}
    for life in lives:
        changes = edges.changes(life)
        entries = int(changes.entries.sum())
        wanted |= {
            f"entries {life}": entries,
            f"changed {life}": int((changes.added + changes.removed)[1:].sum()),
            f"first {life}": int(changes.entries[0]),
            f"plain {life}": 20 * entries,
            f"forced {life}": sum(sequence_bytes(changes, fallback=False)),
            f"sent {life}": sum(sequence_bytes(changes)),
            f"plain32 {life}": 12 * entries,
            f"sent32 {life}": sum(sequence_bytes(changes, index_bytes=4)),
            f"loops_plain {life}": 20 * (entries + nodes * len(edges.snapshots)),
            f"loops_sent {life}": sum(sequence_bytes(changes, loops=nodes)),
        }
        shares[f"delta {life}"] = change_share(changes)
    for name, least in GAINS.items():
        wanted[name] = first_life(
            edges,
            lambda c, n=least: 20 / (4 + 16 * change_share(c)) >= n,
            counters[name],
            max(1, counters["T"] - 1),
        )
    own = {key: counters[key] for key in wanted}
    return [
        equal("counters", own, wanted, against=OVER_EDGES),
        close("shares", values, shares, 1e-12, against=OVER_EDGES),
    ]


def _made(
    found: Occurrences, edges: RawEdges, wanted: int, most: int, swept: dict[int, Changes]
) -> tuple[dict[str, int], dict[str, float], list[ResultCheck]]:
    """One length made both ways and encoded: what is really sent, and how alike both are."""
    fits = [l for l, c in swept.items() if c.entries.sum() <= most]  # noqa: E741
    if not fits:
        return {}, {}, []
    life = wanted if wanted in fits else max(fits)
    lived, averaged = found.snapshots(life=life), m_transform(found.snapshots(), life)
    sent = {
        fallback: sum(d.nbytes for d in encode_sequence(lived, fallback=fallback))
        for fallback in (True, False)
    }
    same = sum(_same_entries(a, b) for a, b in zip(lived, averaged, strict=True))
    counters = {
        "made_life": life,
        "made_sent": sent[True],
        "made_forced": sent[False],
        "made_snapshots": len(lived),
        "same_entries": same,
    }
    changes = edges.changes(life)
    counted = {fallback: sum(sequence_bytes(changes, fallback=fallback)) for fallback in sent}
    steps = {*random.SystemRandom().sample(range(len(lived)), min(3, len(lived))), len(lived) - 1}
    entries = [
        equal(
            "entries", entry_keys(made[t]), edges.window(t, life), against=f"edges of {life} steps"
        )
        for t in sorted(steps)
        for made in (lived, averaged)
    ]
    checks = [equal("bytes", sent, counted, against=OVER_EDGES), *summary(entries)]
    return counters, {"normalised_gap": _normalised_gap(lived[-1], averaged[-1])}, checks


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


def gain(row: Any, life: int, *, forced: bool = False, loops: bool = False) -> float:
    """Bytes of plain snapshots over bytes by difference.

    Args:
        row: of this experiment.
        life: a length that was swept.
        forced: send differences always, also where they are larger.
        loops: A + I is sent.
    """
    if loops:
        return row.counters[f"loops_plain {life}"] / row.counters[f"loops_sent {life}"]
    kind = "forced" if forced else "sent"
    return row.counters[f"plain {life}"] / row.counters[f"{kind} {life}"]


def gain_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Gain by length, without falling back, so that losses show."""
    return _points(rows, lambda row, life: gain(row, life, forced=True))


def nnz_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Smoothed over raw edges by length."""
    return _points(rows, lambda row, life: row.counters[f"entries {life}"] / row.counters["nnz"])


def _points(rows: Sequence[Any], y_of: Any) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for row in select(rows, experiment="smoothing"):
        title, graph = panel(row), BY_NAME[row.params["dataset"]]
        for life in LIVES:
            points.append(
                {
                    "panel": "real graphs" if graph.real else "the paper's graphs",
                    "series": title,
                    "x": life,
                    "y": y_of(row, life),
                    "counted": True,
                    "twin": bool(row.data.get("twin")),
                    "row_ids": [row.id],
                }
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
