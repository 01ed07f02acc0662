"""Cost of making and applying a graph difference (section 3.2): time, bandwidth, bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
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
from dgbench.lab.charts import chart
from dgbench.lab.result_checks import equal
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.esdg.experiments.common import Occurrences
from dgbench.systems.esdg.experiments.recount import (
    OVER_EDGES,
    agree,
    entry_bytes,
    entry_keys,
    sequence_bytes,
    sequence_changes,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, GRAPHS, REAL, snapshots

ENCODED, ARRAYS = "snapshots that were encoded", "arrays that are sent"

PAIRS = {
    "smoke": ("epinions",),
    "quick": ("amlsim", "epinions"),
}
SEQUENCES = {
    "smoke": ("amlsim-20k-fanin200cycle200",),
    "quick": ("amlsim", "flickr", "amlsim-20k-fanin200cycle200"),
}
SMOKE_PART = 8
"""A smoke run makes pairs of this part of the printed size."""
ROUNDS = {"smoke": 3, "quick": 5, "full": 15, "paper": 15}
BAR_KEYS = 150e6
"""Keys per second and core that encoding should reach to stay out of the way."""


class Encoding(Experiment):
    paper = "esdg"
    name = "encoding"
    title = "Section 3.2: making and applying a difference"
    claims = ("esdg-s32-gd-bytes",)
    own_data = "its random graphs have the sizes that the paper prints"
    question = (
        "What does a difference cost to make and to apply, and is it exactly as large as said?"
    )
    reading = (
        "The paper gives no time for either. Pairs are two neighbouring smoothed snapshots of the "
        "printed size, with random edges of which 2 / l change, as if every edge came once; "
        "sequences are a graph's last snapshots, encoded as before training and rebuilt one after "
        "the other. A key is an entry of either snapshot. Encoding uses one core; bandwidth counts "
        "each byte that must be read and written once, as does the copy beside it, of as many "
        "bytes. On a CPU this is processor time."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        pairs = PAIRS.get(preset, tuple(graph.name for graph in GRAPHS))
        sequences = SEQUENCES.get(preset, tuple(graph.name for graph in (*GRAPHS, *REAL)))
        return [
            self.cell_of(
                {"dataset": name, "part": part},
                f"{part}/{name}",
                timeout_s=600 if preset == "paper" else 120,
            )
            for part, names in (("pair", pairs), ("sequence", sequences))
            for name in names
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            if cell.params["part"] == "pair":
                return _pair(str(cell.params["dataset"]), context)
            return _sequence(str(cell.params["dataset"]), context)

    def figures(self) -> list[FigureSpec]:
        return [
            chart("limit_share", "encoding", "Bandwidth of applying a difference", bandwidth_points)
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment="encoding", part="pair")
        if not found:
            return ""
        keys = Table.of(found).where("throughput", of="keys").values
        shares = [_bandwidth(row, "rebuild") / _bandwidth(row, "copy") for row in found]
        met = "reached" if min(keys) >= BAR_KEYS else "not reached"
        return (
            f"One core compares {min(keys) / 1e6:.0f} M to {max(keys) / 1e6:.0f} M keys a second "
            f"({met}: {BAR_KEYS / 1e6:g} M), and a snapshot is rebuilt at {min(shares):.0%} to "
            f"{max(shares):.0%} of the copy bandwidth. All bytes are 16 (a + r) + 4 n."
        )


def made_pair(vertices: int, entries: int, share: float, seed: int = 1) -> tuple[Csr, Csr]:
    """Two random snapshots of about `entries` entries, of which `share` differ (a + r over n).

    Args:
        vertices: N; entries are spread evenly over all pairs.
        entries: n of each.
        share: delta, 0 to 2.
        seed: of the draw.
    """
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


def rebuild_bytes(old: Csr, new: Csr, difference: Difference) -> int:
    """Bytes that applying a difference must read and write: both matrices, and the pairs."""
    pairs = difference.removed, difference.added
    moved = sum(t.numel() * t.element_size() for t in pairs)
    return 4 * (old.nnz + new.nnz) + 16 * (old.num_rows + 1) + moved


def _pair(name: str, context: RunContext) -> Measurement:
    graph = BY_NAME[name]
    part = SMOKE_PART if context.preset == "smoke" else 1
    entries = graph.printed["edge_life"] // graph.printed["T"] // part
    old, new = made_pair(graph.printed["N"] // part, entries, 2 / graph.edge_life)
    sent = encode(old, new, threads=1)
    removed, added = count_changes(old, new)
    counted = _counts([new.nnz], removed=removed, added=added)
    formats = {
        "sent": sent.nbytes,
        "formula": difference_bytes(added, removed, new.nnz),
        "plain": plain_bytes(new.nnz),
    }
    _observe_formats(counted, formats)
    here = torch.device(context.device)
    base, arrived = _to(old, here), sent.with_tensors([t.to(here) for t in sent.tensors])
    moved = rebuild_bytes(old, new, sent)
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
    changes = sequence_changes([old, new])
    wanted = _counts(
        [int(changes.entries[1])], removed=int(changes.removed[1]), added=int(changes.added[1])
    )
    again = {
        "sent": sequence_bytes(changes)[1],
        "formula": sequence_bytes(changes, fallback=False)[1],
        "plain": entry_bytes(int(changes.entries[1])),
    }
    _observe_formats(wanted, again)
    rebuilt = rebuild(base, arrived)  # after the timed runs
    counted.checks = [
        agree(counted, wanted, against=OVER_EDGES),
        equal("bytes", sent.nbytes, _array_bytes([sent]), against=ARRAYS),
        equal("entries", entry_keys(rebuilt), entry_keys(new), against=ENCODED),
    ]
    seconds = {job: median(times) for job, times in taken.items()}
    counted.observe("operation_time", seconds["encode"], samples=taken["encode"])
    counted.observe("operation_time", seconds["rebuild"], of="rebuild")
    counted.observe("throughput", (old.nnz + new.nnz) / seconds["encode"], of="keys")
    counted.observe("bandwidth", moved / seconds["rebuild"], of="rebuild")
    counted.observe("bandwidth", 2 * (moved // 2) / seconds["copy"], of="copy")
    counted.data = {"dataset": name, "twin": True, "scale": 1 / part, "note": "random edges"}
    return counted


def _counts(entries: Sequence[int], **changed: int) -> Measurement:
    """Entries of snapshots, and those that came and went."""
    found = Measurement()
    found.observe("edges", sum(entries))
    for of, count in changed.items():
        found.observe("changed_edges", count, of=of)
    return found


def _observe_formats(found: Measurement, formats: Mapping[str, int]) -> None:
    for format_, count in formats.items():
        found.observe("topology_sent", count, format=format_)


def _sequence(name: str, context: RunContext) -> Measurement:
    graph = BY_NAME[name]
    found = Occurrences.of(graph, context.preset)
    kept = snapshots(context.preset)
    raw = found.snapshots(life=graph.edge_life)[0 if kept is None else -kept :]
    start = time.process_time()
    sent = encode_sequence(raw)
    prepare_s = time.process_time() - start
    changes = [count_changes(a, b) for a, b in pairwise(raw)]
    plain = [False, *(sum(pair) > csr.nnz for pair, csr in zip(changes, raw[1:], strict=True))]
    expected = plain_bytes(raw[0].nnz) + sum(
        plain_bytes(csr.nnz) if whole else difference_bytes(added, removed, csr.nnz)
        for csr, (removed, added), whole in zip(raw[1:], changes, plain[1:], strict=True)
    )
    built: Csr | None = None
    start = time.process_time()
    made = []
    for difference in sent:
        built = rebuild(built, difference, check=False)
        made.append(built)
    rebuild_s = time.process_time() - start
    counted = _counts([csr.nnz for csr in raw])
    counted.observe("snapshots", len(raw))
    counted.observe("snapshots", sum(d.plain for d in sent), format="plain")
    formats = {
        "sent": sum(d.nbytes for d in sent),
        "formula": expected,
        "plain": sum(plain_bytes(csr.nnz) for csr in raw),
    }
    _observe_formats(counted, formats)
    recounted = sequence_changes(raw)
    changed, each = recounted.added + recounted.removed, sequence_bytes(recounted)
    whole = [entry_bytes(n) for n in recounted.entries.tolist()]
    wanted = _counts(recounted.entries.tolist())
    wanted.observe("snapshots", len(whole))
    wanted.observe("snapshots", 1 + int((changed > recounted.entries)[1:].sum()), format="plain")
    _observe_formats(wanted, {"sent": sum(each), "formula": sum(each), "plain": sum(whole)})
    rebuilt, encoded = ({str(t): entry_keys(csr) for t, csr in enumerate(of)} for of in (made, raw))
    counted.observe("preparation_time", prepare_s)
    counted.observe("operation_time", rebuild_s, of="rebuild")
    counted.data = found.data
    counted.checks = [
        agree(counted, wanted, against=OVER_EDGES),
        equal("bytes", formats["sent"], _array_bytes(sent), against=ARRAYS),
        equal("entries", rebuilt, encoded, against=ENCODED),
    ]
    return counted


def _array_bytes(differences: Sequence[Difference]) -> int:
    return sum(
        array.numpy().nbytes
        for d in differences
        for array in (d.removed, d.added, d.values)
        if array is not None
    )


def _to(csr: Csr, device: torch.device) -> Csr:
    return replace(csr, indptr=csr.indptr.to(device), indices=csr.indices.to(device))


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


def _bandwidth(row: Any, of: str) -> float:
    return number(row, "bandwidth", of=of)


def bandwidth_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Applying a difference against the copy bandwidth of the same process."""
    points: list[dict[str, Any]] = []
    mine = [r for r in rows if r.experiment == "encoding" and r.params["part"] == "pair"]
    for row in mine:
        title = BY_NAME[row.params["dataset"]].title
        if row.status != "ok":
            points.append({"row": title, "failed": f"{row.status}: {row.reason}"})
    for row in rows_of(mine):
        points.append(
            {
                "row": f"{BY_NAME[row.params['dataset']].title}, random edges",
                "value": _bandwidth(row, "rebuild") / 1e9,
                "limit": _bandwidth(row, "copy") / 1e9,
                "limit_name": "copy bandwidth",
                "unit": "GB/s",
                "row_ids": [row.id],
            }
        )
    return points
