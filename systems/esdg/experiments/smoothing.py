"""Smoothing and what it brings to the graph difference: a sweep of its length (3.2, 5.4)."""

from __future__ import annotations

import math
import random
from typing import Any

import torch

from dgbench.datasets.transforms import factors, m_transform
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import encode_sequence
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import prefer, real_data
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.printed import ledger
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.result_checks import equal, summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.esdg.experiments.common import Changes, Occurrences
from dgbench.systems.esdg.experiments.recount import RawEdges, changes_check, entry_keys
from dgbench.systems.esdg.experiments.settings import BY_NAME, COUNTED, FORMS, LEDGER

LIVES = (1, 2, 5, 10, 20, 40, 80)
MAX_ENTRIES = {"smoke": 1_000_000, "quick": 2_000_000, "full": 60_000_000, "paper": 200_000_000}
"""Entries of all snapshots that are made, so that counts are compared with what is really sent."""
SMOKE = ("flickr", "bitcoin-otc", "amlsim-20k-fanin200cycle200")
PAPER_GAIN = float(ledger(LEDGER)["abs-gd-transfer"]["high"])


SENT = observed("topology_sent", per=("origin", "dataset"), life=LIVES)
GAIN = SENT.where(format="plain") / SENT.where(format="forced")
"""Bytes of plain snapshots over those of differences, which are sent also where they are larger."""
SMOOTHED = observed("edges", per=("origin", "dataset"), life=LIVES) / observed(
    "edges", per=("origin", "dataset")
)
"""Smoothed over raw edges."""
MADE, EQUAL = (
    observed("snapshots", per="dataset", of=of).keep(prefer(real_data)) for of in ("made", "equal")
)
NORMALISED = (100 * observed("relative_error", of="normalised")).keep(prefer(real_data))
PLACES = {"panel": "{origin}", "series": "{dataset}", "x": "life", "gaps": {"x": 1}}


def made_otherwise(row: Any) -> float:
    """Bytes of the snapshots that were made and encoded beyond those counted; NaN without any."""
    life = number(row, "smoothing_length", None, of="made")
    if life is None:
        return math.nan
    made, counted = (
        [number(row, "topology_sent", format=form, **dims) for form in ("sent", "forced")]
        for dims in ({"of": "made"}, {"life": life})
    )
    return max(abs(a - b) for a, b in zip(made, counted, strict=True))


MADE_AS_COUNTED = rules.all_equal(
    of_rows(made_otherwise, per="dataset", experiment="smoothing").pooled("max"), 0
)
"""Snapshots of one length that were made and encoded take as many bytes as were counted."""


class Smoothing(FormExperiment):
    forms, name = FORMS, "smoothing"
    device = "cpu"
    sources = {"relative_error": "counted"}
    axes = {"dataset": {"smoke": SMOKE, None: [graph.name for graph in COUNTED]}}
    timeout_s = {"paper": 900, None: 120}
    headline, unit = GAIN.where(life=1), "x"
    figure_forms = (
        Sweep(
            "smoothing",
            "Bytes of plain snapshots over bytes by difference, by length of smoothing", GAIN,
            **PLACES, xlabel="snapshots that an edge lives, or window",
            ylabel="fewer bytes (x)", hline=PAPER_GAIN,
            hline_label=f"the paper's most, {PAPER_GAIN}x",
        ),
        Sweep(
            "smoothing_nnz", "Smoothed over raw edges, by length of smoothing", SMOOTHED, **PLACES,
            xlabel="snapshots that an edge lives, or window", ylabel="smoothed / raw edges",
            guide_slope=1.0,
        ),
    )  # fmt: skip
    claims = {
        "esdg-s54-window-equivalence": combine.shown_beside(
            rules.all_equal(EQUAL - MADE, 0),
            {"normalised values differ by up to": NORMALISED.pooled("max")}, "%",
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        found = Occurrences.of(graph, context.preset)
        lives = found.lives()
        counted = Measurement(data=found.data)
        counted.observe("edges", int(lives.raw().sum()))
        edges = RawEdges(found)
        # In the longest ones no edge may ever die.
        swept = {
            life: Changes.of(lives, life)
            for life in sorted({*LIVES, graph.edge_life, graph.window})
        }
        for life, changes in swept.items():
            counted.observe("edges", int(changes.entries.sum()), life=life)
            sent = {
                "plain": changes.plain(),
                "forced": changes.sent(fallback=False),
                "sent": changes.sent(),
            }
            for format_, count in sent.items():
                counted.observe("topology_sent", count, format=format_, life=life)
            counted.checks.append(changes_check(changes, edges.changes(life)))
        with one_thread():  # snapshots of a few thousand entries, by the hundred
            _make(counted, found, edges, graph.edge_life, MAX_ENTRIES[context.preset], swept)
        counted.checks = summarised(counted.checks)
        return counted


def _make(
    counted: Measurement,
    found: Occurrences,
    edges: RawEdges,
    wanted: int,
    most: int,
    swept: dict[int, Changes],
) -> None:
    """Make one length both ways and encode it: what is really sent, and how alike both are."""
    fits = [life for life, changes in swept.items() if changes.entries.sum() <= most]
    if not fits:
        return
    life = wanted if wanted in fits else max(fits)
    lived, averaged = found.snapshots(life=life), m_transform(found.snapshots(), life)
    same = sum(
        torch.equal(a.indptr, b.indptr) and torch.equal(a.indices, b.indices)
        for a, b in zip(lived, averaged, strict=True)
    )
    counted.observe("smoothing_length", life, of="made")
    for format_ in ("sent", "forced"):
        sent = sum(d.nbytes for d in encode_sequence(lived, fallback=format_ == "sent"))
        counted.observe("topology_sent", sent, of="made", format=format_)
    counted.observe("snapshots", len(lived), of="made")
    counted.observe("snapshots", same, of="equal")
    gap = _normalised_gap(lived[-1], averaged[-1])
    counted.observe("relative_error", gap, of="normalised")
    steps = {*random.SystemRandom().sample(range(len(lived)), min(3, len(lived))), len(lived) - 1}
    counted.checks += [
        equal(
            "entries", entry_keys(made[t]), edges.window(t, life), against=f"edges of {life} steps"
        )
        for t in sorted(steps)
        for made in (lived, averaged)
    ]


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
