"""Cost of making and applying a graph difference (section 3.2): time, bandwidth, bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any

import torch

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import (
    Difference,
    count_changes,
    difference_bytes,
    encode,
    encode_sequence,
    plain_bytes,
    rebuild,
)
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import equal
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.esdg.experiments.common import Occurrences
from dgbench.systems.esdg.experiments.recount import entry_keys
from dgbench.systems.esdg.experiments.settings import ALL, BY_NAME, FORMS, GRAPHS, snapshots
from dgbench.systems.esdg.experiments.smoothing import MADE_AS_COUNTED

ENCODED, ARRAYS = "snapshots that were encoded", "arrays that are sent"

PARTS: dict[str, dict[Any, Sequence[str]]] = {
    "pair": {
        "smoke": ("epinions",),
        "quick": ("amlsim", "epinions"),
        None: [graph.name for graph in GRAPHS],
    },
    "sequence": {
        "smoke": ("amlsim-20k-fanin200cycle200",),
        "quick": ("amlsim", "flickr", "amlsim-20k-fanin200cycle200"),
        None: [graph.name for graph in ALL],
    },
}
"""Graphs by kind of cells and preset."""
SMOKE_PART = 8
"""A smoke run makes pairs of this part of the printed size."""
ROUNDS = {"smoke": 3, "quick": 5, "full": 15, "paper": 15}


SENT = observed("topology_sent", experiment="encoding", per=("part", "dataset"))


def copy_bandwidth(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, float]:
    """Bandwidth of a copy in the same process, beside that of applying a difference."""
    return {"limit": fmean(number(row, "bandwidth", of="copy") for row in one.rows) / 1e9}


class Encoding(FormExperiment):
    forms, name = FORMS, "encoding"
    timeout_s = {"paper": 600, None: 120}
    group = "{part}/{dataset}"
    headline = 1e-6 * observed("throughput", per="dataset", part="pair", of="keys")
    unit = "M keys/s"
    figure_forms = (
        FigureForm(
            "limit_share", "encoding", "Bandwidth of applying a difference",
            observed("bandwidth", per="dataset", part="pair", of="rebuild"),
            {"row": "{dataset}, random edges", "limit_name": "copy bandwidth", "unit": "GB/s"},
            value="value", scale=1e-9, more=copy_bandwidth, gaps={},
        ),
    )  # fmt: skip
    claims = {
        "esdg-s32-gd-bytes": combine.both(
            rules.all_equal(SENT.where(format="sent") - SENT.where(format="formula"), 0),
            MADE_AS_COUNTED,
            whatever_ran=True,
        )
    }

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        return [
            {"dataset": name, "part": part}
            for part, graphs in PARTS.items()
            for name in by_preset(graphs, preset)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        measure = _pair if cell.params["part"] == "pair" else _sequence
        with one_thread():
            return measure(str(cell.params["dataset"]), context)


def made_pair(vertices: int, entries: int, share: float, seed: int = 1) -> tuple[Csr, Csr]:
    """Two random snapshots of N vertices and about n entries each, spread evenly over all pairs, of
    which a share delta, from 0 to 2, differ (a + r over n)."""
    draw = torch.Generator().manual_seed(seed)
    pool = round(entries * (1 + share / 2))
    steps = torch.empty(pool, dtype=torch.float64).exponential_(generator=draw)
    keys = steps.mul_(vertices**2 / pool).cumsum_(0).long()
    keys = keys[keys < vertices**2].unique_consecutive()
    luck = torch.rand(len(keys), generator=draw)
    own = (share / 2) / (1 + share / 2)  # of the pool, held by one of the two only
    return _csr(keys[luck >= own], vertices), _csr(keys[(luck < own) | (luck >= 2 * own)], vertices)


def _csr(keys: torch.Tensor, vertices: int) -> Csr:
    rows = keys.div(vertices, rounding_mode="floor")
    indptr = torch.zeros(vertices + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(rows, minlength=vertices), 0, out=indptr[1:])
    return Csr(indptr, (keys - rows * vertices).to(torch.int32), vertices)


def _pair(name: str, context: RunContext) -> Measurement:
    graph = BY_NAME[name]
    part = SMOKE_PART if context.preset == "smoke" else 1
    entries = graph.printed["edge_life"] // graph.printed["T"] // part
    old, new = made_pair(graph.printed["N"] // part, entries, 2 / graph.edge_life)
    sent = encode(old, new, threads=1)
    removed, added = count_changes(old, new)
    formula = difference_bytes(added, removed, new.nnz)
    counted = _counts([sent], formula)
    here = torch.device(context.device)
    base = replace(old, indptr=old.indptr.to(here), indices=old.indices.to(here))
    arrived = sent.with_tensors([t.to(here) for t in sent.tensors])
    # Bytes that applying a difference must read and write: both matrices, and the pairs.
    pairs = sum(t.numel() * t.element_size() for t in (sent.removed, sent.added))
    moved = 4 * (old.nnz + new.nnz) + 16 * (old.num_rows + 1) + pairs
    source = torch.ones(moved // 2, dtype=torch.uint8, device=here)
    taken = _turns(
        {
            "encode": lambda: encode(old, new, threads=1),
            "rebuild": lambda: rebuild(base, arrived, check=False),
            "copy": source.clone,
        },
        ROUNDS[context.preset],
        context.device,
    )
    rebuilt = rebuild(base, arrived)  # after the timed runs
    counted.checks.append(equal("entries", entry_keys(rebuilt), entry_keys(new), against=ENCODED))
    seconds = {job: median(times) for job, times in taken.items()}
    counted.observe("operation_time", seconds["encode"], samples=taken["encode"])
    counted.observe("throughput", (old.nnz + new.nnz) / seconds["encode"], of="keys")
    counted.observe("bandwidth", moved / seconds["rebuild"], of="rebuild")
    counted.observe("bandwidth", 2 * (moved // 2) / seconds["copy"], of="copy")
    counted.data = {"dataset": name, "twin": True, "scale": 1 / part, "note": "random edges"}
    return counted


def _counts(sent: Sequence[Difference], formula: int) -> Measurement:
    """Bytes of what is sent, counted and by the formula, and those of its arrays."""
    found = Measurement()
    counts = {"sent": sum(d.nbytes for d in sent), "formula": formula}
    for format_, count in counts.items():
        found.observe("topology_sent", count, format=format_)
    every = [array for d in sent for array in (d.removed, d.added, d.values)]
    arrays = sum(array.numpy().nbytes for array in every if array is not None)
    found.checks = [equal("counters", counts, dict.fromkeys(counts, arrays), against=ARRAYS)]
    return found


def _sequence(name: str, context: RunContext) -> Measurement:
    graph = BY_NAME[name]
    found = Occurrences.of(graph, context.preset)
    kept = snapshots(context.preset)
    raw = found.snapshots(life=graph.edge_life)[0 if kept is None else -kept :]
    sent = encode_sequence(raw)
    expected = plain_bytes(raw[0].nnz)
    for before, csr in pairwise(raw):
        removed, added = count_changes(before, csr)
        whole = removed + added > csr.nnz
        expected += plain_bytes(csr.nnz) if whole else difference_bytes(added, removed, csr.nnz)
    made: list[Csr] = []
    for difference in sent:
        made.append(rebuild(made[-1] if made else None, difference, check=False))
    counted = _counts(sent, expected)
    counted.data = found.data
    rebuilt, encoded = ({str(t): entry_keys(csr) for t, csr in enumerate(of)} for of in (made, raw))
    counted.checks.append(equal("entries", rebuilt, encoded, against=ENCODED))
    return counted


def _turns(
    jobs: Mapping[str, Callable[[], Any]], rounds: int, device: str
) -> dict[str, list[float]]:
    """Seconds of each job by round; one round before warms up. Encoding always runs on the CPU."""
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, run in jobs.items():
            cuda = device == "cuda" and name != "encode"
            if cuda:
                torch.cuda.synchronize()
            clock = time.perf_counter if cuda else time.process_time
            start = clock()
            run()
            if cuda:
                torch.cuda.synchronize()
            if turn:
                taken[name].append(clock() - start)
    return taken
